// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/installcheck"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/version"
)

// leaseName is the Lease of the Deployment controller-manager in config/manager.
const leaseName = "nslifecycle.dev"

// minServerMinor is the minor version of the oldest Kubernetes 1 that nslifecycle supports.
const minServerMinor = 33

func newCheckCommand(session *session) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check the installation of the operator",
		Long: `Check the installation of the operator: versions, leaders, admission policies, whether the API server
reaches the webhooks, permissions of the operator, and whether installed controllers that are known
to write into new namespaces may do so.

The command changes nothing. Its dry runs and SubjectAccessReviews require the permissions of a
cluster administrator.

Exit status: 0 all checks passed, perhaps with warnings, 3 a check failed, 1 error, or a check has no
result, for example because you lack a permission.`,
		Example: `  # Check the installation
  kubectl nslifecycle check`,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              runWithContext(session.check),
	}
}

func (s *session) check(ctx context.Context, _ []string) error {
	reader, err := s.operatorClient()
	if err != nil {
		return err
	}
	set, err := effectiveSet(ctx, reader)
	if err != nil {
		return err
	}
	namespace := cmp.Or(set.SystemNamespace, defaultSystemNamespace)
	checker := installcheck.Checker{
		Client: reader, Clock: clock.RealClock{}, SystemNamespace: namespace, LeaseName: leaseName, HasInitialization: true,
	}
	results := []installcheck.Result{
		{Check: "plugin " + version.Read().Version}, s.checkServer(ctx), checkImages(ctx, reader, namespace),
	}
	results = slices.Concat(results, checker.RunAsAdministrator(ctx), checkKnownWriters(ctx, reader, set))
	var text strings.Builder
	installcheck.Print(&text, results)
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(s.Out, printer.WrapCommand(strings.TrimSuffix(line, "\n")))
	}
	return exitOf(results)
}

// exitOf returns the error with the exit status for results, which are printed.
func exitOf(results []installcheck.Result) error {
	var err error
	for _, result := range results {
		switch {
		case result.Err != nil && !result.IsUnknown:
			return &StatusError{Code: ExitBlocked}
		case result.Err != nil:
			err = &StatusError{Code: ExitError}
		}
	}
	return err
}

func (s *session) checkServer(ctx context.Context) installcheck.Result {
	result := installcheck.Result{Check: fmt.Sprintf("API server 1.%d or later", minServerMinor)}
	discoverer, err := newClient(s, discovery.NewDiscoveryClientForConfig)
	if err != nil {
		result.Err, result.IsUnknown = err, true
		return result
	}
	server, err := discoverer.ServerVersionWithContext(ctx)
	if err != nil {
		result.Err, result.IsUnknown = fmt.Errorf("failed to get the version of the API server: %w", err), true
		return result
	}
	result.Check += ": " + server.GitVersion
	var minor int
	if _, err := fmt.Sscanf(server.Minor, "%d", &minor); err != nil || server.Major == "1" && minor < minServerMinor {
		result.Err = errors.New("this version is not supported")
	}
	return result
}

// checkImages returns the images of the Deployments of the operator.
func checkImages(ctx context.Context, reader client.Reader, namespace string) installcheck.Result {
	result := installcheck.Result{Check: "operator"}
	var deployments appsv1.DeploymentList
	err := reader.List(ctx, &deployments, client.InNamespace(namespace),
		client.MatchingLabels{internalv1alpha1.LabelName: internalv1alpha1.Name})
	if err != nil {
		result.Err, result.IsUnknown = fmt.Errorf("failed to list Deployments in namespace %q: %w", namespace, err), true
		return result
	}
	var images []string
	for i := range deployments.Items {
		for _, container := range deployments.Items[i].Spec.Template.Spec.Containers {
			images = append(images, container.Image)
		}
	}
	slices.Sort(images)
	switch images = slices.Compact(images); len(images) {
	case 0:
		result.Warning = fmt.Sprintf("no Deployment of nslifecycle found in namespace %q", namespace)
	case 1:
		result.Check += " " + images[0]
	default:
		result.Warning = "the Deployments have different images: " + strings.Join(images, ", ")
	}
	return result
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package installcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// Checkup asks one cluster about one installation.
type Checkup struct {
	// Client reads from the API server and not from a cache.
	Client client.Client
	Clock  clock.PassiveClock
	// SystemNamespace is where the installation is, LeaseName the Lease in it that its
	// managers elect their leader by.
	SystemNamespace, LeaseName string
	// HasInitialization tells whether its managers look after new namespaces; without that
	// there need be no policies.
	HasInitialization bool
	// Policies returns an error where the admission policies are not as they should be, and
	// whether it is the manager that gives new namespaces their list, and not the API server.
	Policies func(context.Context) (managerInjects bool, err error)
}

// Finding is the answer to one question.
type Finding struct {
	// What should be so.
	What string
	// Err says why it is not, or is nil.
	Err error
}

// Run asks everything, whatever the answers.
func (c *Checkup) Run(ctx context.Context) []Finding {
	findings := []Finding{{What: "a manager is at work", Err: c.checkLeader(ctx)}}
	if !c.HasInitialization {
		return findings
	}
	managerInjects, err := c.Policies(ctx)
	return append(findings,
		Finding{What: "the admission policies are installed", Err: err},
		Finding{What: "the set of initializers is published", Err: c.checkSet(ctx)},
		Finding{What: "namespaces get the condition " + v1alpha1.ConditionInitializing, Err: c.checkCondition(ctx)},
		Finding{What: "namespaces can be created", Err: c.checkCreation(ctx, managerInjects)},
	)
}

// Failed joins the errors of findings; it is nil where all is well.
func Failed(findings []Finding) error {
	var failed []error
	for _, finding := range findings {
		failed = append(failed, finding.Err)
	}
	return errors.Join(failed...)
}

// Print writes one line for each finding.
func Print(out io.Writer, findings []Finding) {
	for _, finding := range findings {
		if finding.Err != nil {
			fmt.Fprintf(out, "FAIL  %s: %v\n", finding.What, finding.Err)
		} else {
			fmt.Fprintf(out, "ok    %s\n", finding.What)
		}
	}
}

func (c *Checkup) checkLeader(ctx context.Context) error {
	var lease coordinationv1.Lease
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.SystemNamespace, Name: c.LeaseName}, &lease)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("no manager has ever led in namespace %q; see why with: %s",
			c.SystemNamespace, shell.Command("kubectl --namespace=%s get pods", c.SystemNamespace))
	}
	if err != nil {
		return fmt.Errorf("reading Lease %q in namespace %q: %w", c.LeaseName, c.SystemNamespace, err)
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == "" || lease.Spec.RenewTime == nil {
		return errors.New("the last leader has stopped, and no other manager has taken over yet")
	}
	validity := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if c.Clock.Since(lease.Spec.RenewTime.Time) > validity {
		return fmt.Errorf("%s leads, but has not said so since %s", holder, lease.Spec.RenewTime.UTC().Format(time.RFC3339))
	}
	return nil
}

func (c *Checkup) checkSet(ctx context.Context) error {
	if _, err := c.readSet(ctx); err != nil {
		return fmt.Errorf("reading NamespaceInitializerSet %q: %w", v1alpha1.EffectiveSetName, err)
	}
	return nil
}

func (c *Checkup) readSet(ctx context.Context) (*v1alpha1.NamespaceInitializerSet, error) {
	set := &v1alpha1.NamespaceInitializerSet{}
	return set, c.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.EffectiveSetName}, set)
}

func (c *Checkup) checkCondition(ctx context.Context) error {
	var namespace corev1.Namespace
	if err := c.Client.Get(ctx, client.ObjectKey{Name: c.SystemNamespace}, &namespace); err != nil {
		return fmt.Errorf("reading namespace %q: %w", c.SystemNamespace, err)
	}
	if !slices.ContainsFunc(namespace.Status.Conditions, func(condition corev1.NamespaceCondition) bool {
		return condition.Type == v1alpha1.ConditionInitializing
	}) {
		return fmt.Errorf("namespace %q has none", c.SystemNamespace)
	}
	return nil
}

// checkCreation creates a namespace in a dry run. It is in order that it gets no list where
// nothing is registered, or where the manager gives it one afterwards.
func (c *Checkup) checkCreation(ctx context.Context, managerInjects bool) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "nslifecycle-check-"}}
	if err := c.Client.Create(ctx, namespace, client.DryRunAll); err != nil {
		return fmt.Errorf("a dry run was refused: %w", err)
	}
	if managerInjects {
		return nil
	}
	set, err := c.readSet(ctx)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading NamespaceInitializerSet %q: %w", v1alpha1.EffectiveSetName, err)
	}
	_, isInitializing := namespace.Labels[v1alpha1.LabelInitializing]
	wanted := len(initialization.Selected(set.Initializers, nil))
	if isInitializing != (wanted > 0) {
		return fmt.Errorf("%d initializers are registered for a namespace without labels, but initializing is %t in a dry "+
			"run; a change takes up to 30 s to be in force", wanted, isInitializing)
	}
	return nil
}

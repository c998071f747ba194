// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/parts"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/plugin/templates"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/shell"
	"github.com/nslifecycle/nslifecycle/internal/template/authorization"
	"github.com/nslifecycle/nslifecycle/internal/template/execute"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
	"github.com/nslifecycle/nslifecycle/internal/template/permissions"
)

const (
	// defaultSystemNamespace is the namespace of the operator if there is no API server to ask.
	defaultSystemNamespace = "nslifecycle-system"
	// operatorAccount is the ServiceAccount of the operator in all installations.
	operatorAccount = parts.ControllerManager
)

type templatePermissionsOptions struct {
	templateSource
	check bool
	// namespace is the namespace of the operator.
	namespace string
	// writer knows the kinds that the API server serves; nil before the first use.
	writer *execute.Writer
}

func newTemplatePermissionsCommand(session *session) *cobra.Command {
	options := &templatePermissionsOptions{templateSource: templateSource{session: session}}
	command := &cobra.Command{
		Use:   "permissions (NAME | -f FILE)",
		Short: "Print or check the permissions that a NamespaceTemplate requires",
		Long: `Print the objects that grant what a NamespaceTemplate requires, and nothing else: its
ServiceAccount, the permission of the operator to impersonate it, and its permissions, by name
unless an expression computes a name. With a file, they are those of all NamespaceTemplates in
it. With NAME, they include those of the revision that new namespaces still get.

With a file, the command asks the cluster only for the namespace of the operator, unless
--system-namespace is set, and for kinds that are not part of Kubernetes. If there is no API
server, it uses namespace nslifecycle-system.

Read the output before you apply it: all users who may impersonate the ServiceAccount, and the
authors of its templates, get these permissions in all namespaces. With permissions to bind roles,
to patch namespaces, or to create Pods, their controllers or custom resources, they can get others.

With --check, the command compares the permissions with those in the cluster and prints what
is missing. This requires permission to create SubjectAccessReviews and, if the ServiceAccount
may bind a role only because it has its permissions, to impersonate the ServiceAccount.

Exit status: 0 success, 3 with --check if permissions are missing, 1 error, or unknown whether
permissions are missing, for example because you lack these.`,
		Example: `  # Grant what a template requires, and create it
  kubectl nslifecycle template permissions -f team.yaml | kubectl apply -f -
  kubectl apply -f team.yaml

  # Print what is missing
  kubectl nslifecycle template permissions team --check`,
		Args:              options.validate,
		ValidArgsFunction: session.completeTemplate,
		RunE:              runWithContext(options.run),
	}
	options.addFlag(command)
	flags := command.Flags()
	flags.BoolVar(&options.check, "check", false,
		"If true, print which permissions are missing in the cluster instead of the objects.")
	flags.StringVar(&options.namespace, "system-namespace", "",
		"The namespace of the operator and of the ServiceAccounts. By default, the cluster is asked.")
	return command
}

func (o *templatePermissionsOptions) run(ctx context.Context, args []string) error {
	found, err := o.readAll(ctx, args)
	if err != nil {
		return err
	}
	if o.namespace == "" {
		if o.namespace, err = o.findSystemNamespace(ctx); err != nil {
			return err
		}
	}
	if o.check {
		return o.compare(ctx, found)
	}
	return o.print(ctx, found)
}

// readAll returns the NamespaceTemplate with a name, or all valid NamespaceTemplates in the file.
func (o *templatePermissionsOptions) readAll(ctx context.Context, args []string) ([]*templates.Template, error) {
	if o.filename != "" {
		return templates.ReadTemplates(o.filename, o.In)
	}
	found, err := o.read(ctx, args)
	return []*templates.Template{found}, err
}

// findSystemNamespace returns the namespace of the operator. With a file, the command does not need an API server.
func (o *templatePermissionsOptions) findSystemNamespace(ctx context.Context) (string, error) {
	namespace, _, err := o.operatorNamespaces(ctx)
	if err == nil {
		return namespace, nil
	}
	if o.filename != "" && !o.check && isUnreachable(err) {
		o.warnf("The objects are for namespace %s; use --system-namespace for another one: %v", defaultSystemNamespace, err)
		return defaultSystemNamespace, nil
	}
	return "", fmt.Errorf("%w; use --system-namespace to set it", err)
}

// isUnreachable reports whether an error shows that no connection to an API server was established. A client without a
// kubeconfig fails in this way, because it tries to connect to localhost.
func isUnreachable(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "dial"
}

func (o *templatePermissionsOptions) operator() rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: o.namespace, Name: operatorAccount}
}

// print prints the objects for all templates, or none of them.
func (o *templatePermissionsOptions) print(ctx context.Context, found []*templates.Template) error {
	var objects []client.Object
	var errs []error
	accounts := sets.New[string]()
	for _, one := range found {
		previous, err := o.previous(ctx, one)
		if err != nil {
			return err
		}
		account := one.Spec.ServiceAccountName
		grant, unknown := permissions.For(permissions.Input{
			Spec: &one.Spec, Previous: previous, SystemNamespace: o.namespace, ResourceOf: o.resourceOf,
		})
		errs = append(errs, unknown...)
		if !accounts.Has(account) {
			accounts.Insert(account)
			objects = append(objects, permissions.ServiceAccount(o.namespace, account))
		}
		objects = append(objects, permissions.Impersonation(o.operator(), o.namespace, account).Objects(one.Name)...)
		objects = append(objects, grant.Objects(one.Name)...)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := io.WriteString(o.Out, permissions.YAML(objects))
	return err
}

// previous returns the revision that new Namespaces still get, or nil. The revision of a template in a file is unknown.
func (o *templatePermissionsOptions) previous(
	ctx context.Context, of *templates.Template,
) (*v1alpha1.NamespaceTemplateSpec, error) {
	if o.filename != "" {
		return nil, nil
	}
	reader, err := o.operatorClient()
	if err != nil {
		return nil, err
	}
	return authorization.Previous(ctx, o.revisions(reader), of.NamespaceTemplate)
}

func (o *templatePermissionsOptions) revisions(reader client.Client) *observe.Revisions {
	return &observe.Revisions{Client: reader, Cached: reader, Live: reader, SystemNamespace: o.namespace}
}

// resourceOf returns the resource of a namespaced kind. It asks the API server only about kinds that are not part of
// Kubernetes.
func (o *templatePermissionsOptions) resourceOf(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	if resource, ok := templates.BuiltInResource(kind); ok {
		return resource, nil
	}
	if o.writer == nil {
		writer, err := o.templateWriter()
		if err != nil {
			return schema.GroupVersionResource{}, err
		}
		o.writer = writer
	}
	return o.writer.ResourceOf(kind)
}

// authorizer returns an authorizer with the permissions of the user.
func (o *templatePermissionsOptions) authorizer() (*authorization.Authorizer, error) {
	reader, err := o.operatorClient()
	if err != nil {
		return nil, err
	}
	writer, err := o.templateWriter()
	if err != nil {
		return nil, err
	}
	writer.SystemNamespace = o.namespace
	return &authorization.Authorizer{
		Client: reader, ServiceAccounts: reader, Revisions: o.revisions(reader), SystemNamespace: o.namespace,
		DryRunner: writer, Operator: o.operator(), Clock: clock.RealClock{},
	}, nil
}

// compare prints which permissions the templates lack in the cluster.
func (o *templatePermissionsOptions) compare(ctx context.Context, found []*templates.Template) error {
	authorizer, err := o.authorizer()
	if err != nil {
		return err
	}
	statuses := sets.New[metav1.ConditionStatus]()
	for _, one := range found {
		result := authorizer.Check(ctx, one.NamespaceTemplate, true)
		if err := ctx.Err(); err != nil {
			return err
		}
		o.printMissing(one, &result)
		statuses.Insert(result.Status())
	}
	switch {
	case statuses.Has(metav1.ConditionFalse):
		printf(o.Out, "To print the objects that grant all permissions, run: %s", o.printCommand(found[0].Name))
		return &StatusError{Code: ExitBlocked}
	case statuses.Has(metav1.ConditionUnknown):
		return &StatusError{Code: ExitError}
	}
	return nil
}

func (o *templatePermissionsOptions) printCommand(name string) string {
	if o.filename != "" {
		return o.withConnection(shell.Command(displayName+" template permissions -f %s", o.filename))
	}
	return o.withConnection(shell.Command(displayName+" template permissions %s", name))
}

// printMissing prints the result for a template.
func (o *templatePermissionsOptions) printMissing(of *templates.Template, result *authorization.Authorization) {
	account := of.Spec.ServiceAccountName
	printf(o.Out, "Template %s: %s", of.Name, map[metav1.ConditionStatus]string{
		metav1.ConditionTrue: "authorized", metav1.ConditionFalse: "not authorized", metav1.ConditionUnknown: "unknown",
	}[result.Status()])
	var text bytes.Buffer
	if result.IsAccountMissing {
		fmt.Fprintf(&text, "ServiceAccount %s does not exist.\n", account)
	}
	for _, list := range []struct {
		title string
		lines []string
	}{
		{"The operator lacks:", result.DeniedToOperator},
		{"ServiceAccount " + account + " lacks:", result.Denied},
		{"Unknown:", result.Unknown},
	} {
		if len(list.lines) > 0 {
			fmt.Fprintln(&text, list.title)
		}
		for _, line := range list.lines {
			fmt.Fprintln(&text, printer.WrapIndented(printable.Escape(line), "  "))
		}
	}
	fmt.Fprint(o.Out, text.String())
}

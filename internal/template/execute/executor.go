// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// Permissions let the operator read objects.
type Permissions interface {
	Permit(
		ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, verb string, resource schema.GroupResource,
		namespace, name string,
	) error
}

// Grants finds whether RoleBindings are effective.
type Grants interface {
	Check(ctx context.Context, namespace *corev1.Namespace, manifest *unstructured.Unstructured) error
}

// Writes stores the responses to writes.
type Writes interface {
	Wrote(namespace *corev1.Namespace, key template.ObjectKey, response *plan.Observed)
}

// Executor executes plans. The operator impersonates the ServiceAccounts of templates in all writes, and reads with its
// own permissions.
type Executor struct {
	Writer      *Writer
	Permissions Permissions
	Grants      Grants
	Writes      Writes
	// Live reads from the API server.
	Live            client.Reader
	SystemNamespace string
}

// Execute executes the operations of a plan, and returns their results. It stops with an error if the context ends or
// the Namespace is being deleted.
func (e *Executor) Execute(ctx context.Context, p plan.Plan) ([]plan.Result, error) {
	results := make([]plan.Result, 0, len(p.Operations))
	version := p.Namespace.ResourceVersion
	for _, operation := range p.Operations {
		if !operation.IsReady(results) {
			results = append(results, plan.Result{Err: plan.ErrSkipped})
			continue
		}
		if operation.Request.Verb == plan.SetMetadata && operation.Request.ResourceVersion != "" {
			operation.Request.ResourceVersion = version // An earlier operation of the plan can have changed the Namespace.
		}
		result := e.exchange(ctx, operation)
		if err := result.Err; errors.Is(err, context.Canceled) ||
			apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return results, err
		}
		if result.Namespace != nil {
			version = result.Namespace.ResourceVersion
		}
		results = append(results, result)
	}
	return results, nil
}

// exchange sends the requests of an operation.
func (e *Executor) exchange(ctx context.Context, operation plan.Operation) plan.Result {
	for !operation.IsDone() {
		operation = plan.Next(operation, e.send(ctx, operation))
	}
	if applied := operation.Result.Applied; applied != nil {
		e.Writes.Wrote(operation.Namespace, operation.Object.Key(), plan.ObservedOf(&applied.ObjectMeta))
	}
	return operation.Result
}

// send sends the next request of an operation.
func (e *Executor) send(ctx context.Context, operation plan.Operation) (response plan.Response) {
	request, namespace, account := operation.Request, operation.Namespace, operation.Template.Spec.ServiceAccountName
	switch request.Verb {
	case plan.Find:
		response.Metadata, response.Err = e.find(ctx, operation)
	case plan.Apply, plan.Read, plan.SetManagers:
		response = e.Writer.Patch(ctx, account, namespace.Name, request)
	case plan.Delete:
		response.IsGone, response.Err = e.Writer.delete(ctx, account, namespace.Name, request)
	case plan.SetMetadata:
		response.Metadata, response.Err = e.Writer.setMetadata(ctx, account, namespace, request)
	case plan.Discover:
		response.IsServed, response.Err = e.Writer.Kinds.IsServed(ctx, request.Kind.GroupKind())
	case plan.Confirm:
		response = e.confirm(ctx, operation)
	case plan.CheckGranted:
		response.Err = e.Grants.Check(ctx, namespace, request.Manifest)
	case plan.FindUncounted:
		response.IsUncounted, response.Err = e.findUncounted(ctx, namespace.Name, request.Name)
	default:
		response.Err = fmt.Errorf("unknown verb %q", request.Verb)
	}
	return response
}

// find returns the metadata of an object in the API server; nil if it does not exist. The ServiceAccounts of templates
// need no permission to read objects, so the operator uses its own, which depend on those of the ServiceAccount.
func (e *Executor) find(ctx context.Context, operation plan.Operation) (*metav1.PartialObjectMetadata, error) {
	kind, name, namespace := operation.Request.Kind, operation.Request.Name, operation.Namespace.Name
	if operation.Request.IsRemoval {
		resource, err := e.Writer.Kinds.ResourceOf(kind)
		if err != nil {
			return nil, err
		}
		err = e.Permissions.Permit(ctx, operation.Template, "delete", resource.GroupResource(), namespace, name)
		if err != nil {
			return nil, err
		}
		kind.Version = resource.Version
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := e.list(ctx, list, kind.Kind, namespace, name); err != nil {
		e.Writer.Kinds.ResetIfUnserved(err)
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].Name == name {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// list lists the objects of a kind with a name, at most one: the operator may list, but not get, them.
func (e *Executor) list(ctx context.Context, list client.ObjectList, kind, namespace, name string) error {
	err := e.Live.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{metav1.ObjectNameField: name})
	if err != nil {
		return fmt.Errorf("failed to list %s %q: %w", kind, name, err)
	}
	return nil
}

// confirm reads the Namespace and the template of an operation from the API server.
func (e *Executor) confirm(ctx context.Context, operation plan.Operation) plan.Response {
	namespace, live := &corev1.Namespace{}, &v1alpha1.NamespaceTemplate{}
	if err := e.Live.Get(ctx, client.ObjectKeyFromObject(operation.Namespace), namespace); err != nil {
		return plan.Response{Err: fmt.Errorf("failed to get namespace %q: %w", operation.Namespace.Name, err)}
	}
	if err := e.Live.Get(ctx, client.ObjectKeyFromObject(operation.Template), live); err != nil {
		return plan.Response{Err: fmt.Errorf("failed to get NamespaceTemplate %q: %w", operation.Template.Name, err)}
	}
	response := plan.Response{Namespace: namespace, Template: live}
	if operation.Request.MustFindAccount {
		var accounts corev1.ServiceAccountList
		account := operation.Template.Spec.ServiceAccountName
		response.Err = e.list(ctx, &accounts, "ServiceAccount", e.SystemNamespace, account)
		response.HasAccount = len(accounts.Items) > 0
	}
	return response
}

// findUncounted reports whether a ResourceQuota exists that is not counted.
func (e *Executor) findUncounted(ctx context.Context, namespace, name string) (bool, error) {
	var live corev1.ResourceQuotaList
	err := e.list(ctx, &live, "ResourceQuota", namespace, name)
	return slices.ContainsFunc(live.Items, func(q corev1.ResourceQuota) bool { return !observe.IsCounted(&q) }), err
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// Examples returns the first Namespaces of each change. A limit of 0 means all.
func (c *Comparison) Examples(limit int) []*NamespaceChange {
	counts := map[Change]int{}
	var examples []*NamespaceChange
	for i := range c.Items {
		item := &c.Items[i]
		if counts[item.Change]++; limit == 0 || counts[item.Change] <= limit {
			examples = append(examples, item)
		}
	}
	return examples
}

// DryRunner applies changes as server-side dry runs, with the permissions of the user.
type DryRunner struct {
	Client dynamic.Interface
	Mapper meta.RESTMapper
}

// Run adds the results of dry runs to a change that has been computed without the objects in the
// cluster. It returns why objects could not be tested, for example because the user lacks permissions.
func (r *DryRunner) Run(ctx context.Context, of *Template, result *Comparison, item *NamespaceChange) []string {
	var untested []string
	for i := range item.Objects {
		object := &item.Objects[i]
		if object.rendered == nil || object.rendered.Copy != nil || object.Change == Failed {
			continue
		}
		before := object.Change
		if err := r.dryRun(ctx, of, item.namespace, object); err != nil {
			untested = append(untested, fmt.Sprintf(msgDryRunRejected, object.Kind, item.Namespace, err))
		}
		if object.Change == Failed {
			result.Objects[before]--
			result.Objects[Failed]++
		}
	}
	isFailed := slices.ContainsFunc(item.Objects, func(object ObjectChange) bool { return object.Change == Failed })
	if isFailed && item.Change != Failed {
		result.Namespaces[item.Change]--
		result.Namespaces[Failed]++
		item.Change = Failed
	}
	return untested
}

// dryRun sets the fields of one object, or its failure. It returns an error if the object was not tested.
func (r *DryRunner) dryRun(ctx context.Context, of *Template, namespace *corev1.Namespace, object *ObjectChange) error {
	manifest := object.rendered.Manifest
	kind := manifest.GroupVersionKind()
	fail := func(format string, args ...any) error {
		object.Change, object.Message, object.Fields = Failed, fmt.Sprintf(format, args...), nil
		return nil
	}
	mapping, err := r.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return fail(msgKindNotServed, kind.Kind, kind.GroupVersion())
	case err != nil:
		return err
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		return fail(msgClusterScoped, kind.Kind, kind.GroupVersion())
	}
	objects := r.Client.Resource(mapping.Resource).Namespace(namespace.Name)
	live, err := objects.Get(ctx, manifest.GetName(), metav1.GetOptions{})
	isMissing := apierrors.IsNotFound(err)
	switch {
	case err != nil && !isMissing:
		return err
	case !isMissing && object.Change == Created && of.Spec.Sync.Adopt == v1alpha1.AdoptNever:
		return fail(msgAdoptNever)
	}
	applied, err := objects.Apply(ctx, manifest.GetName(),
		template.WithOwnMetadata(of.Name, namespace, manifest, object.rendered.Locked), metav1.ApplyOptions{
			DryRun: []string{metav1.DryRunAll}, FieldManager: template.FieldManager(of.Name),
			Force: object.Change != Created || of.Spec.Sync.Adopt == v1alpha1.AdoptAlways,
		})
	switch {
	// For a field that is not in the schema, the API server returns an internal error.
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsConflict(err), apierrors.IsInternalError(err):
		return fail(msgDryRunFailed, err)
	case apierrors.IsForbidden(err) && !dependsOnUser(err):
		return fail(msgDryRunFailed, err)
	case err != nil:
		return err
	case !isMissing:
		object.Fields = compareFields(object.Kind, withoutServerFields(live), withoutServerFields(applied))
	}
	return nil
}

// dependsOnUser reports whether a request can be forbidden only because the user sends it, and not the ServiceAccount
// of the template: without a permission, as an escalation of privileges, or by a policy such as
// v1alpha1.PolicyTemplateObjects. A policy that depends only on the object more likely returns Invalid, the default.
func dependsOnUser(err error) bool {
	return denial.IsMissingPermission(err) || len(denial.DenyingPolicies(err.Error())) > 0 ||
		strings.Contains(err.Error(), "attempting to grant RBAC permissions")
}

// withoutServerFields returns an object without the metadata that the API server sets.
func withoutServerFields(object *unstructured.Unstructured) map[string]any {
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	return object.Object
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/utils/ptr"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
)

// dryRunDeletion deletes an object as a dry run and returns the response. It deletes an object that is already being
// deleted, which can only be a Pod, as the kubelet does.
func (c *Collector) dryRunDeletion(ctx context.Context, object dryRunRequest) error {
	options := metav1.DeleteOptions{
		DryRun: object.dryRun, PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
		Preconditions: &metav1.Preconditions{UID: &object.UID},
	}
	if object.DeletionTimestamp != nil {
		options.GracePeriodSeconds = ptr.To[int64](0)
	}
	return c.metadata.Resource(object.GroupVersionResource).Namespace(object.Namespace).Delete(ctx, object.Name, options)
}

// dryRunRemoval removes a finalizer as a dry run and returns the response. The request contains the
// resource version, so that the error is a conflict if the object has changed.
func (c *Collector) dryRunRemoval(ctx context.Context, object dryRunRequest) error {
	finalizers := slices.DeleteFunc(slices.Clone(object.Finalizers), func(other string) bool {
		return other == object.finalizer
	})
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": object.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return fmt.Errorf("failed to encode a patch: %w", err)
	}
	_, err = c.metadata.Resource(object.GroupVersionResource).Namespace(object.Namespace).Patch(ctx, object.Name,
		types.MergePatchType, patch, metav1.PatchOptions{DryRun: object.dryRun})
	return err
}

// ownerVerbs are the verbs that a controller needs to remove a finalizer: one of each list. Without list and watch, it
// does not receive the object.
var ownerVerbs = [][]string{{"patch", "update"}, {"list"}, {"watch"}}

// reviewOwner returns the first verb of each list in ownerVerbs that a ServiceAccount lacks in the namespace.
func (c *Collector) reviewOwner(
	ctx context.Context, review owners.AccessReview, namespace string,
) (missing []string, err error) {
	account, of := review.ServiceAccount, review.Type
	user := serviceaccount.MakeUsername(account.Namespace, account.Name)
	for _, verbs := range ownerVerbs {
		isAllowed := false
		for _, verb := range verbs {
			if !isAllowed && err == nil {
				isAllowed, err = c.reviewAccess(ctx, user, authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: verb, Group: of.Group, Version: of.Version, Resource: of.Resource,
				})
			}
		}
		if !isAllowed {
			missing = append(missing, verbs[0])
		}
	}
	return missing, err
}

// reviewAccess creates an access review for a user, or for the user of the diagnosis if the name is empty, and reports
// whether the permission is granted. The groups of other users are unknown, except those of ServiceAccounts.
func (c *Collector) reviewAccess(
	ctx context.Context, user string, attributes authorizationv1.ResourceAttributes,
) (bool, error) {
	if user == "" {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &attributes,
		}}
		err := c.client.Create(ctx, review)
		return review.Status.Allowed, err
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: []string{"system:authenticated"}, ResourceAttributes: &attributes,
		Extra: map[string]authorizationv1.ExtraValue{internalv1alpha1.ExtraReview: {"true"}},
	}}
	if namespace, _, err := serviceaccount.SplitUsername(user); err == nil {
		review.Spec.Groups = append(review.Spec.Groups, serviceaccount.MakeGroupNames(namespace)...)
	}
	err := c.client.Create(ctx, review)
	return review.Status.Allowed, err
}

var apiServiceKind = schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}

// newMapper returns a RESTMapper for the types that are read as full objects. It sends no requests, so
// it works even if discovery fails.
func newMapper(scheme *runtime.Scheme) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeRoot
		switch kind.Kind {
		case "Pod", "Service", "Event", "ServiceAccount", "Deployment", "StatefulSet", "DaemonSet", "Lease",
			"EndpointSlice":
			scope = meta.RESTScopeNamespace
		}
		mapper.Add(kind, scope)
	}
	mapper.Add(apiServiceKind, meta.RESTScopeRoot)
	return mapper
}

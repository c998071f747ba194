// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"cmp"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// Review returns the review of a request of a subject. A ServiceAccount without a namespace is in the namespace of the
// request.
func Review(
	subject rbacv1.Subject, attributes *authorizationv1.ResourceAttributes,
) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: attributes, Groups: []string{user.AllAuthenticated},
		Extra: map[string]authorizationv1.ExtraValue{internalv1alpha1.ExtraReview: {"true"}},
	}
	switch subject.Kind {
	case rbacv1.GroupKind:
		spec.Groups = []string{subject.Name}
	case rbacv1.ServiceAccountKind:
		namespace := cmp.Or(subject.Namespace, attributes.Namespace)
		spec.User = serviceaccount.MakeUsername(namespace, subject.Name)
		spec.Groups = append(spec.Groups, serviceaccount.MakeGroupNames(namespace)...)
	default:
		spec.User = subject.Name
	}
	return spec
}

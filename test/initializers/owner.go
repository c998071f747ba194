// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializers

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

const (
	// OwnerBindingName is the name of the RoleBinding that Owner creates in a namespace.
	OwnerBindingName = "owner"
	// ownerRole is the ClusterRole that the RoleBinding references.
	ownerRole = "admin"
	// serviceAccountPrefix is the prefix of ServiceAccount user names.
	serviceAccountPrefix = "system:serviceaccount:"
)

// OwnerAccount is the name of both the ServiceAccount in OwnerManifest and its namespace.
const OwnerAccount = "owner-initializer"

// OwnerManifest contains the ServiceAccount, its namespace and the permissions that Owner requires.
// Apply it before you create a NamespaceInitializerConfiguration.
//
//go:embed manifests/owner.yaml
var OwnerManifest string

// Owner creates a RoleBinding that grants the ClusterRole admin to the requester of a namespace.
func Owner(ctx context.Context, client kubernetes.Interface, namespace *corev1.Namespace) error {
	requester := namespace.Annotations[v1alpha1.AnnotationRequestedBy]
	if requester == "" {
		return fmt.Errorf("the requester of namespace %q is unknown: the annotation %s is missing",
			namespace.Name, v1alpha1.AnnotationRequestedBy)
	}
	binding := applyrbacv1.RoleBinding(OwnerBindingName, namespace.Name).
		WithRoleRef(applyrbacv1.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(ownerRole)).
		WithSubjects(subject(requester))
	_, err := client.RbacV1().RoleBindings(namespace.Name).Apply(ctx, binding, applyOptions(OwnerAccount))
	if err != nil {
		return fmt.Errorf("failed to apply RoleBinding %q in namespace %q: %w", OwnerBindingName, namespace.Name, err)
	}
	return nil
}

// subject returns the RBAC subject for a user name.
func subject(user string) *applyrbacv1.SubjectApplyConfiguration {
	if account, ok := strings.CutPrefix(user, serviceAccountPrefix); ok {
		if namespace, name, ok := strings.Cut(account, ":"); ok {
			return applyrbacv1.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(namespace).WithName(name)
		}
	}
	return applyrbacv1.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.UserKind).WithName(user)
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializers

import (
	"context"
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/pkg/requester"
)

const (
	// OwnerBindingName is the name of the RoleBinding that Owner creates in a namespace.
	OwnerBindingName = "owner"
	// ownerRole is the ClusterRole that the RoleBinding references.
	ownerRole = "admin"
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
	owner, ok := requester.Subject(namespace)
	if !ok {
		return fmt.Errorf("the requester of namespace %q is unknown: the annotation %s is missing",
			namespace.Name, v1alpha1.AnnotationRequestedBy)
	}
	binding := applyrbacv1.RoleBinding(OwnerBindingName, namespace.Name).
		WithRoleRef(applyrbacv1.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(ownerRole)).
		WithSubjects(applyrbacv1.Subject().WithKind(owner.Kind).WithAPIGroup(owner.APIGroup).
			WithNamespace(owner.Namespace).WithName(owner.Name))
	_, err := client.RbacV1().RoleBindings(namespace.Name).Apply(ctx, binding, applyOptions(OwnerAccount))
	if err != nil {
		return fmt.Errorf("failed to apply RoleBinding %q in namespace %q: %w", OwnerBindingName, namespace.Name, err)
	}
	return nil
}

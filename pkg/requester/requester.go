// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requester identifies the user who created a Namespace. It does not depend on controller-runtime, so that
// all clients can use it.
package requester

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Subject returns the RBAC subject that matches the user in the annotation nslifecycle.dev/requested-by of a
// Namespace. The subject is a ServiceAccount if the API server would accept the user name as the name of a
// ServiceAccount, and a User otherwise. Subject returns false if the annotation is missing or empty.
func Subject(namespace metav1.Object) (rbacv1.Subject, bool) {
	username := namespace.GetAnnotations()[v1alpha1.AnnotationRequestedBy]
	if username == "" {
		return rbacv1.Subject{}, false
	}
	if accountNamespace, name, err := serviceaccount.SplitUsername(username); err == nil {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: accountNamespace, Name: name}, true
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: username}, true
}

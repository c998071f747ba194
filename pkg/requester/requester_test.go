// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package requester

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestSubject(t *testing.T) {
	user := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: name}
	}
	account := func(namespace, name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: name}
	}
	longName := strings.Repeat("a", 253)
	for username, want := range map[string]rbacv1.Subject{
		"alice@corp.example.com":              user("alice@corp.example.com"),
		"oidc:alice":                          user("oidc:alice"),
		"https://issuer.example.com#alice":    user("https://issuer.example.com#alice"),
		"system:admin":                        user("system:admin"),
		"system:kube-controller-manager":      user("system:kube-controller-manager"),
		"system:node:worker-1":                user("system:node:worker-1"),
		"system:serviceaccount:ci:deployer":   account("ci", "deployer"),
		"system:serviceaccount:ci:deploy.er":  account("ci", "deploy.er"),
		"system:serviceaccount:1:1":           account("1", "1"),
		"system:serviceaccount:a:" + longName: account("a", longName),

		"system:serviceaccount:":                     user("system:serviceaccount:"),
		"system:serviceaccount:ci":                   user("system:serviceaccount:ci"),
		"system:serviceaccount:ci:":                  user("system:serviceaccount:ci:"),
		"system:serviceaccount::deployer":            user("system:serviceaccount::deployer"),
		"system:serviceaccount:ci:deployer:x":        user("system:serviceaccount:ci:deployer:x"),
		"system:serviceaccount:ci:deployer\n":        user("system:serviceaccount:ci:deployer\n"),
		"system:serviceaccount:ci:deployer ":         user("system:serviceaccount:ci:deployer "),
		" system:serviceaccount:ci:deployer":         user(" system:serviceaccount:ci:deployer"),
		"system:serviceaccount:CI:deployer":          user("system:serviceaccount:CI:deployer"),
		"system:serviceaccount:kube.system:deployer": user("system:serviceaccount:kube.system:deployer"),
		"system:serviceaccount:../x:deployer":        user("system:serviceaccount:../x:deployer"),
		"system:serviceaccount:ci:deployér":          user("system:serviceaccount:ci:deployér"),
		"System:ServiceAccount:ci:deployer":          user("System:ServiceAccount:ci:deployer"),
		"system:serviceaccounts:ci":                  user("system:serviceaccounts:ci"),
		"system:serviceaccount:a:" + longName + "a":  user("system:serviceaccount:a:" + longName + "a"),
		"*": user("*"),
	} {
		namespace := &corev1.Namespace{}
		namespace.Annotations = map[string]string{v1alpha1.AnnotationRequestedBy: username}
		got, ok := Subject(namespace)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("Subject of %q (%t, -want +got):\n%s", username, ok, diff)
		}
	}
}

func TestSubjectWithoutRequester(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"no annotations": nil,
		"another":        {v1alpha1.AnnotationInitializers: "a.example.com"},
		"empty":          {v1alpha1.AnnotationRequestedBy: ""},
	} {
		namespace := &corev1.Namespace{}
		namespace.Annotations = annotations
		if got, ok := Subject(namespace); ok || got != (rbacv1.Subject{}) {
			t.Errorf("%s: Subject returned %v, %t", name, got, ok)
		}
	}
}

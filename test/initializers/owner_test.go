// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializers

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

func TestSubject(t *testing.T) {
	user := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
	}
	for name, want := range map[string]rbacv1.Subject{
		"user1@corp.example.com": user("user1@corp.example.com"),
		"system:serviceaccount:ci:deployer": {
			Kind: rbacv1.ServiceAccountKind, Namespace: "ci", Name: "deployer",
		},
		"system:serviceaccount:ci": user("system:serviceaccount:ci"),
		"system:admin":             user("system:admin"),
	} {
		if got := subject(name); got != want {
			t.Errorf("subject(%q) = %v, want %v", name, got, want)
		}
	}
}

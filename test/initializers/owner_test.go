// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
)

func TestSubject(t *testing.T) {
	user := func(name string) *applyrbacv1.SubjectApplyConfiguration {
		return applyrbacv1.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.UserKind).WithName(name)
	}
	for name, want := range map[string]*applyrbacv1.SubjectApplyConfiguration{
		"user1@corp.example.com": user("user1@corp.example.com"),
		"system:serviceaccount:ci:deployer": applyrbacv1.Subject().
			WithKind(rbacv1.ServiceAccountKind).WithNamespace("ci").WithName("deployer"),
		"system:serviceaccount:ci": user("system:serviceaccount:ci"),
		"system:admin":             user("system:admin"),
	} {
		if diff := cmp.Diff(want, subject(name)); diff != "" {
			t.Errorf("subject(%q): %s", name, diff)
		}
	}
}

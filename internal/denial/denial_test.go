// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package denial

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestIsMissingPermission(t *testing.T) {
	const rbac = `User "eve" cannot patch resource "namespaces" in API group "" at the cluster scope`
	forbidden := func(text string) error {
		return apierrors.NewForbidden(corev1.Resource("namespaces"), "shop", errors.New(text))
	}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"no error":              {},
		"RBAC":                  {fmt.Errorf("wrapped: %w", forbidden(rbac)), true},
		"same text, other code": {errors.New(rbac), false},
		"webhook":               {forbidden(`admission webhook "a.example.com" denied the request: no`), false},
		"webhook that lacks a permission": {
			forbidden(`admission webhook "a.example.com" denied the request: ` + rbac), false,
		},
		"policy": {
			forbidden(`ValidatingAdmissionPolicy 'a' with binding 'a' denied request: no`), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(IsMissingPermission(test.err)).To(Equal(test.want))
		})
	}
}

func TestMissingPermissions(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []MissingPermission
	}{
		"kube-apiserver, twice": {
			`User "eve" cannot list resource "pods" in API group "" in the namespace "a"; ` +
				`User "eve" cannot list resource "pods" in API group "" in the namespace "a"`,
			[]MissingPermission{{"eve", "list", "pods", ""}},
		},
		"constrained impersonation": {
			`User "eve" cannot impersonate-on:serviceaccount:patch resource "configmaps" in API group "" in the namespace "a"`,
			[]MissingPermission{{"eve", "impersonate-on:serviceaccount:patch", "configmaps", ""}},
		},
		"Calico, the tier cannot be read": {
			`User "eve" cannot list networkpolicies.projectcalico.org in tier "default" and namespace "a" (user cannot get tier)`,
			[]MissingPermission{{"eve", "get", "tiers", "projectcalico.org"}},
		},
		"Calico, no permission for policies in the tier": {
			`User "eve" cannot delete globalnetworkpolicies.projectcalico.org in tier "default"`,
			[]MissingPermission{{"eve", "delete", "tier.globalnetworkpolicies", "projectcalico.org"}},
		},
		"other text": {"the disk is full", nil},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(MissingPermissions(test.text)).To(Equal(test.want))
		})
	}
}

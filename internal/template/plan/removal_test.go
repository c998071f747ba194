// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/template"
)

func TestCompareDeletion(t *testing.T) {
	object := func(group, kind, name string) template.ObjectState {
		return template.ObjectState{Kind: schema.GroupKind{Group: group, Kind: kind}, Name: name}
	}
	want := []template.ObjectState{
		object(rbacv1.GroupName, "RoleBinding", "a"), object(rbacv1.GroupName, "RoleBinding", "b"),
		object(rbacv1.GroupName, "Role", "a"), object("apps", "Deployment", "a"), object("", "Pod", "a"),
		object(networkingv1.GroupName, "NetworkPolicy", "a"), object("", "ResourceQuota", "a"), object("", "LimitRange", "a"),
		object("", "ConfigMap", "a"), object("", "Secret", "a"), object("", "ServiceAccount", "a"),
	}
	reversed := slices.Clone(want)
	slices.Reverse(reversed)
	NewWithT(t).Expect(slices.SortedFunc(slices.Values(reversed), compareDeletion)).To(Equal(want))
}

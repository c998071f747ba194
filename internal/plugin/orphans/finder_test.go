// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package orphans

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

func TestStoredTypes(t *testing.T) {
	g := NewWithT(t)
	make := func(group, resource string, verbs ...string) resourcetypes.Type {
		made := resourcetypes.Type{Verbs: verbs}
		made.Group, made.Resource = group, resource
		return made
	}
	kept := StoredTypes([]resourcetypes.Type{
		make("", "configmaps", "list", "delete"), make("", "bindings", "create"), make("metrics.k8s.io", "pods", "list"),
		make("", "events", "list", "delete"), make("events.k8s.io", "events", "list", "delete"),
	})
	g.Expect(kept).To(HaveLen(2))
	g.Expect(kept[1].String()).To(Equal("events"))
}

func TestCountNamespaces(t *testing.T) {
	NewWithT(t).Expect(CountNamespaces([]Orphan{{Namespace: "a"}, {Namespace: "b"}, {Namespace: "a"}})).To(Equal(2))
}

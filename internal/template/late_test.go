// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func TestLateSelections(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("ns").Label("kind", "a").Obj()
	namespace.UID = "uid"
	var late lateSelections
	g.Expect(late.update(namespace, []string{"a"})).To(BeEmpty(), "the first pass after a start")
	g.Expect(late.update(namespace, []string{"a", "b"})).To(BeEmpty(), "a new template")
	namespace.Labels["kind"] = "c"
	g.Expect(late.update(namespace, []string{"b", "c"})).To(Equal([]string{"c"}), "a new label")
	g.Expect(late.update(namespace, []string{"b", "c"})).To(BeEmpty(), "the next pass")
	namespace.Labels["kind"] = "d"
	g.Expect(late.update(namespace, nil)).To(BeEmpty())
	namespace.Labels["kind"] = "c"
	g.Expect(late.update(namespace, []string{"c"})).To(Equal([]string{"c"}), "the label again")
	late.forget(namespace.UID)
	g.Expect(late.byUID).To(BeEmpty())
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestLateSelections(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("ns").Label("kind", "a").Obj()
	namespace.UID = "uid"
	now := time.Now()
	var late lateSelection
	namespace.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	g.Expect(late.Update(namespace, []string{"a"}, now)).To(BeEmpty(), "the first pass after a start")
	g.Expect(late.Update(namespace, []string{"a", "b"}, now)).To(BeEmpty(), "a new template")
	namespace.Labels["kind"] = "c"
	g.Expect(late.Update(namespace, []string{"b", "c"}, now)).To(Equal([]string{"c"}), "a new label")
	g.Expect(late.Update(namespace, []string{"b", "c"}, now)).To(BeEmpty(), "the next pass")
	namespace.Labels["kind"] = "d"
	g.Expect(late.Update(namespace, nil, now)).To(BeEmpty())
	namespace.Labels["kind"] = "c"
	g.Expect(late.Update(namespace, []string{"c"}, now)).To(Equal([]string{"c"}), "the label again")
	late = lateSelection{}
	namespace.CreationTimestamp = metav1.NewTime(now.Truncate(time.Second))
	g.Expect(late.Update(namespace, []string{"c"}, now)).To(Equal([]string{"c"}), "a label before the first pass")
}

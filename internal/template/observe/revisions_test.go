// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func TestCurrentOf(t *testing.T) {
	team := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "1"}}
	// stored returns a ControllerRevision of a template with the UID.
	stored := func(uid types.UID, revision string, number int64, current string) appsv1.ControllerRevision {
		owner := metav1.NewControllerRef(&metav1.ObjectMeta{Name: "team", UID: uid}, v1alpha1.GroupVersion.WithKind("NamespaceTemplate"))
		object := appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: "team-" + revision, OwnerReferences: []metav1.OwnerReference{*owner}}, Revision: number,
		}
		if current != "" {
			object.Annotations = map[string]string{v1alpha1.AnnotationCurrentRevision: current}
		}
		return object
	}
	type list = []appsv1.ControllerRevision
	for name, test := range map[string]struct {
		stored list
		want   string
	}{
		"none":                             {},
		"only of a deleted template":       {stored: list{stored("0", "a", 1, "1")}},
		"the first":                        {stored: list{stored("1", "a", 1, "1")}, want: "a"},
		"a rollout":                        {stored: list{stored("1", "a", 1, "1"), stored("1", "b", 2, "")}, want: "a"},
		"a completed rollout":              {stored: list{stored("1", "a", 1, "1"), stored("1", "b", 2, "2")}, want: "b"},
		"the return to an earlier one":     {stored: list{stored("1", "b", 2, "2"), stored("1", "a", 3, "1")}, want: "b"},
		"the completed return":             {stored: list{stored("1", "b", 2, "2"), stored("1", "a", 3, "3")}, want: "a"},
		"more than nine":                   {stored: list{stored("1", "a", 9, "9"), stored("1", "b", 10, "10"), stored("1", "c", 11, "")}, want: "b"},
		"of a deleted template, and later": {stored: list{stored("1", "a", 1, "1"), stored("0", "b", 7, "7")}, want: "a"},
		"a lost mark during a rollout":     {stored: list{stored("1", "a", 1, ""), stored("1", "b", 2, "")}, want: "a"},
		"an invalid mark":                  {stored: list{stored("1", "a", 1, "x"), stored("1", "b", 2, "-1")}, want: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(currentOf(team, test.stored)).To(Equal(test.want))
		})
	}
}

func TestNumberOf(t *testing.T) {
	g := NewWithT(t)
	numbered := func(name string, number int64) appsv1.ControllerRevision {
		return appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name}, Revision: number}
	}
	g.Expect(numberOf("a", nil)).To(BeEquivalentTo(1))
	g.Expect(numberOf("b", []appsv1.ControllerRevision{numbered("a", 4)})).To(BeEquivalentTo(5))
	g.Expect(numberOf("b", []appsv1.ControllerRevision{numbered("a", 4), numbered("b", 7)})).To(BeEquivalentTo(7), "the newest")
	g.Expect(numberOf("a", []appsv1.ControllerRevision{numbered("a", 4), numbered("b", 7)})).To(BeEquivalentTo(8), "an earlier one")
}

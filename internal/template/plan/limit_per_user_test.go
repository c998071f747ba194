// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// limited returns a template that permits a user a number of Namespaces.
func limited(name string, limit int32) *v1alpha1.NamespaceTemplate {
	return &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.NamespaceTemplateSpec{MaxNamespacesPerUser: ptr.To(limit)},
	}
}

// created returns an initialized Namespace that alice has created with the template "team".
func created(name string, changes ...func(*corev1.Namespace)) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.LabelTemplate: "team"},
		Annotations: map[string]string{
			v1alpha1.AnnotationRequestedBy:       "alice",
			v1alpha1.AnnotationInitializers:      v1alpha1.TemplatesInitializer + ",b.example.com",
			v1alpha1.AnnotationSelectedTemplates: "base,team",
		},
	}}
	for _, change := range changes {
		change(namespace)
	}
	return namespace
}

func annotated(key, value string) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) { namespace.Annotations[key] = value }
}

func terminating(namespace *corev1.Namespace) {
	namespace.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	namespace.Finalizers = []string{"test.example.com/hold"}
}

// awaiting makes a Namespace wait for its templates.
func awaiting(namespace *corev1.Namespace) {
	namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = namespace.Annotations[v1alpha1.AnnotationInitializers]
}

func protected(namespace *corev1.Namespace) {
	namespace.Labels[v1alpha1.LabelDeletionProtection] = ""
}

func TestLimitsCount(t *testing.T) {
	failed := annotated(v1alpha1.AnnotationInitializationResult, `{"status":"Failure"}`)
	later := annotated(v1alpha1.AnnotationPendingInitializers, "b.example.com")
	one := Usage{Total: 1}
	tests := map[string]struct {
		namespace  *corev1.Namespace
		isAdmitted bool
		want       Usage
	}{
		"initialized":                       {namespace: created("a"), want: one},
		"of another user":                   {namespace: created("a", annotated(v1alpha1.AnnotationRequestedBy, "bob"))},
		"labeled by another user":           {namespace: created("a", annotated(v1alpha1.AnnotationSelectedTemplates, "base,teams"))},
		"labeled, without templates":        {namespace: created("a", annotated(v1alpha1.AnnotationSelectedTemplates, ""))},
		"relabeled":                         {namespace: created("a", func(n *corev1.Namespace) { n.Labels = nil }), want: one},
		"terminating":                       {namespace: created("a", terminating), want: Usage{Total: 1, Terminating: 1}},
		"not admitted yet":                  {namespace: created("a", awaiting)},
		"not admitted, terminating":         {namespace: created("a", awaiting, terminating)},
		"admitted":                          {namespace: created("a", awaiting), isAdmitted: true, want: one},
		"admitted, failed":                  {namespace: created("a", awaiting, failed), isAdmitted: true},
		"admitted, deleted":                 {namespace: created("a", awaiting, terminating), isAdmitted: true},
		"failed, protected":                 {namespace: created("a", awaiting, failed, protected), want: Usage{Total: 1, Protected: 1}},
		"failed, protected, terminating":    {namespace: created("a", awaiting, failed, protected, terminating)},
		"another one's turn":                {namespace: created("a", later), want: one},
		"another one has failed":            {namespace: created("a", later, failed)},
		"another one has failed, protected": {namespace: created("a", later, failed, protected), want: Usage{Total: 1, Protected: 1}},
		"protected":                         {namespace: created("a", protected), want: one},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			admitted := map[types.UID]sets.Set[string]{"a": sets.New("other")}
			if test.isAdmitted {
				admitted["a"].Insert("team")
			}
			namespaces := []corev1.Namespace{*test.namespace}
			g.Expect(usageOf(limited("team", 1), "alice", namespaces, admitted)).To(Equal(test.want))
		})
	}
}

func TestLimitsRefusal(t *testing.T) {
	tests := map[string]struct {
		used Usage
		want string
	}{
		"initialized": {used: Usage{Total: 3}, want: "each user: delete a namespace before you create another one"},
		"terminating": {used: Usage{Total: 3, Terminating: 1}, want: "each user, 1 of them being deleted: wait for the deletion before"},
		"protected":   {used: Usage{Total: 3, Protected: 2}, want: "each user, 2 of them failed and protected from deletion: delete"},
		"both": {
			used: Usage{Total: 3, Protected: 1, Terminating: 1},
			want: "each user, 1 of them failed and protected from deletion, 1 of them being deleted: wait",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(test.used.Refusal(limited("team", 3), "alice")).To(ContainSubstring(
				`user "alice" has 3 namespaces with template "team", which permits 3 for ` + test.want))
		})
	}
}

func TestCheckLimits(t *testing.T) {
	g, namespace := NewWithT(t), created("a", awaiting)
	// Only those with which the Namespaces were created limit them.
	templates := []v1alpha1.NamespaceTemplate{*limited("team", 1), {ObjectMeta: metav1.ObjectMeta{Name: "base"}}, *limited("another", 0), *limited("base", 2)}
	found := LimitsOf(namespace, templates, nil)
	g.Expect(found).To(HaveExactElements(HaveField("Name", "base"), HaveField("Name", "team")))
	g.Expect(LimitsOf(namespace, templates, sets.New("team"))).To(HaveLen(1), "an admitted Namespace stays admitted")
	namespaces := []corev1.Namespace{*created("b")}
	g.Expect(CheckLimits(found, "alice", namespaces, nil)).To(HaveField("Message", ContainSubstring("which permits 1")))
	g.Expect(CheckLimits(found, "bob", namespaces, nil)).To(BeNil())
}

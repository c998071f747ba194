// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestRemoveNames(t *testing.T) {
	tests := map[string]struct {
		list  string
		names []string
		want  string
	}{
		"the first name":                 {"a,b,c", []string{"a"}, "b,c"},
		"a name in the middle":           {"a,b,c", []string{"b"}, "a,c"},
		"the last name":                  {"a,b,c", []string{"c"}, "a,b"},
		"several":                        {"a,b,c", []string{"c", "a"}, "b"},
		"all":                            {"a,b", []string{"a", "b"}, ""},
		"the only name":                  {"a", []string{"a"}, ""},
		"a name that is not in the list": {"a,b", []string{"c"}, "a,b"},
		"a part of a name":               {"a.corp.com,b", []string{"a"}, "a.corp.com,b"},
		"a duplicate":                    {"a,b,a", []string{"a"}, "b"},
		"spaces are kept":                {"a, b ,c", []string{"a"}, " b ,c"},
		"a name with spaces":             {"a, b ,c", []string{"b"}, "a,c"},
		"only spaces":                    {"a, ,", []string{"a"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(removeNames(test.list, test.names)).To(Equal(test.want))
		})
	}
}

// ComputeConditions keeps the conditions of skipped initializers.
func TestComputeConditionsKeepsSkippedConditions(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	skipped := one(quota, no, v1alpha1.ReasonTimedOut, "skipped: timed out", before)
	dropped := one(mesh, no, v1alpha1.ReasonDeregistered, "skipped: not registered", before)
	namespace := func() *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh)
	}
	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		want      []corev1.NamespaceCondition
	}{
		"other initializers are pending": {
			namespace: namespace().Pending(rbac, mesh).Condition(skipped),
			want: []corev1.NamespaceCondition{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(rbac, 2, 3), at),
				one(rbac, no, v1alpha1.ReasonPending, messageInitializerPending, at),
				one(mesh, no, v1alpha1.ReasonPending, messageInitializerWaiting, at),
			},
		},
		"all other initializers completed": {
			namespace: namespace().Pending().Condition(skipped),
			want: []corev1.NamespaceCondition{
				whole(no, v1alpha1.ReasonInitialized, completedMessage([]string{quota}), at),
				one(rbac, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
				one(mesh, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
			},
		},
		"several initializers were skipped, in list order": {
			namespace: namespace().Pending().Condition(dropped).Condition(skipped),
			want: []corev1.NamespaceCondition{
				whole(no, v1alpha1.ReasonInitialized, completedMessage([]string{quota, mesh}), at),
				one(rbac, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
			},
		},
		"all initializers were skipped": {
			namespace: namespace().Pending().Condition(dropped).Condition(skipped).
				Condition(one(rbac, no, v1alpha1.ReasonDeregistered, "skipped", before)),
			want: []corev1.NamespaceCondition{whole(no, v1alpha1.ReasonInitialized,
				completedMessage([]string{rbac, quota, mesh}), at)},
		},
		// A pending initializer with a reason that is reserved for the operator.
		"a pending initializer is not skipped": {
			namespace: namespace().Pending(quota).Condition(skipped),
			want: []corev1.NamespaceCondition{
				whole(yes, v1alpha1.ReasonInitializing, waitingFor(quota, 3, 3), at),
				one(rbac, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
				one(quota, no, v1alpha1.ReasonPending, messageInitializerPending, before),
				one(mesh, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
			},
		},
		"a condition with another status is not kept": {
			namespace: namespace().Pending().Condition(one(quota, yes, v1alpha1.ReasonTimedOut, "?", before)),
			want: []corev1.NamespaceCondition{
				whole(no, v1alpha1.ReasonInitialized, messageCompleted, at),
				one(rbac, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
				one(quota, yes, v1alpha1.ReasonInitialized, messageInitializerDone, before),
				one(mesh, yes, v1alpha1.ReasonInitialized, messageInitializerDone, at),
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := test.namespace.Obj()
			NewWithT(t).Expect(withoutReady(ComputeConditions(object, ParseState(object), at))).To(Equal(test.want))
		})
	}
}

func TestSkippedConditions(t *testing.T) {
	g := NewWithT(t)
	g.Expect(SkippedConditions([]string{rbac, mesh}, "R", "m", metav1.NewTime(now))).To(Equal([]corev1.NamespaceCondition{
		one(rbac, corev1.ConditionFalse, "R", "m", at), one(mesh, corev1.ConditionFalse, "R", "m", at),
	}))
}

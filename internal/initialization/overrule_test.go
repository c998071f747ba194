// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func TestOverrule(t *testing.T) {
	limit := &Limit{rbac, "c", 30 * time.Second, v1alpha1.InitializerIgnore}
	waiting := func() *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh)
	}
	since := func(ago time.Duration) corev1.NamespaceCondition {
		return turn(rbac, corev1.ConditionTrue, now.Add(-ago))
	}
	everybody := []string{rbac, quota, mesh}
	free := map[string]Registration{rbac: {}, quota: {}, mesh: {}}
	limited := map[string]Registration{
		rbac: {"c", settings(30, v1alpha1.InitializerIgnore)}, quota: {"c", settings(1, "")}, mesh: {},
	}

	tests := map[string]struct {
		namespace  *wrappers.NamespaceWrapper
		registered map[string]Registration
		absent     []string
		want       Overruling
	}{
		"nothing to do": {namespace: waiting(), registered: free, absent: everybody},
		"not absent for long enough": {
			namespace: waiting(), registered: map[string]Registration{rbac: {}},
		},
		"the first one is dropped": {
			namespace: waiting(), registered: map[string]Registration{quota: {}, mesh: {}}, absent: everybody,
			want: Overruling{Dropped: []string{rbac}},
		},
		"the one in the middle is dropped": {
			namespace: waiting(), registered: map[string]Registration{rbac: {}, mesh: {}}, absent: everybody,
			want: Overruling{Dropped: []string{quota}},
		},
		"the last one is dropped": {
			namespace: waiting(), registered: map[string]Registration{rbac: {}, quota: {}}, absent: everybody,
			want: Overruling{Dropped: []string{mesh}},
		},
		"all are dropped": {namespace: waiting(), absent: everybody, want: Overruling{Dropped: everybody}},
		"only those that have been absent for long enough": {
			namespace: waiting(), absent: []string{mesh}, want: Overruling{Dropped: []string{mesh}},
		},
		"done already": {
			namespace: waiting().Pending(quota, mesh), registered: map[string]Registration{quota: {}, mesh: {}},
			absent: everybody,
		},
		"nobody is dropped from a namespace that is being deleted": {
			namespace: waiting().Terminating(now), absent: everybody,
		},
		"nobody is dropped from a namespace that has failed": {
			namespace: waiting().Result(`{"status":"Failure"}`), absent: everybody,
		},
		"nobody is pending": {namespace: waiting().Pending(), absent: everybody},

		"a time-out that has not begun": {
			namespace: waiting(), registered: limited, want: Overruling{After: 31 * time.Second},
		},
		"a time-out that runs": {
			namespace: waiting().Condition(since(10 * time.Second)), registered: limited,
			want: Overruling{After: 21 * time.Second},
		},
		"the last moment of a time-out": {
			namespace: waiting().Condition(since(31*time.Second - 1)), registered: limited, want: Overruling{After: 1},
		},
		"a time-out that is over": {
			namespace: waiting().Condition(since(31 * time.Second)), registered: limited,
			want: Overruling{Expired: limit},
		},
		"a time-out that is over for another initializer": {
			namespace: waiting().Pending(quota, mesh).Condition(since(time.Hour)), registered: limited,
			want: Overruling{After: 2 * time.Second},
		},
		"it was the turn of one that has no time-out any more": {
			namespace: waiting().Condition(since(time.Hour)), registered: free,
		},
		"a time-out that is over, in a namespace that is being deleted": {
			namespace: waiting().Condition(since(time.Hour)).Terminating(now), registered: limited,
		},
		"a time-out that is over, in a namespace that has failed": {
			namespace: waiting().Condition(since(time.Hour)).Result(`{"status":"Failure"}`), registered: limited,
		},
		"dropped before anything else": {
			namespace:  waiting().Condition(since(time.Hour)),
			registered: map[string]Registration{rbac: limited[rbac], mesh: {}}, absent: everybody,
			want: Overruling{Dropped: []string{quota}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := test.namespace.Obj()
			NewWithT(t).Expect(Overrule(namespace, Observe(namespace), test.registered, test.absent, now)).
				To(Equal(test.want))
		})
	}
}

func TestSkipped(t *testing.T) {
	ignored := &Limit{rbac, "c", 30 * time.Second, v1alpha1.InitializerIgnore}
	failing := &Limit{rbac, "c", 30 * time.Second, v1alpha1.InitializerFail}
	tests := map[string]struct {
		overruling          Overruling
		names               []string
		wantReason, message string
	}{
		"nobody":           {overruling: Overruling{After: 1}},
		"policy Fail":      {overruling: Overruling{Expired: failing}},
		"policy unset":     {overruling: Overruling{Expired: &Limit{Initializer: rbac}}},
		"policy Ignore":    {Overruling{Expired: ignored}, []string{rbac}, v1alpha1.ReasonTimedOut, `skipped: not done within 30s of its turn, the time-out in NamespaceInitializerConfiguration "c"`},
		"registered never": {Overruling{Dropped: []string{rbac, mesh}}, []string{rbac, mesh}, v1alpha1.ReasonDeregistered, "skipped: no NamespaceInitializerConfiguration names the initializer any more"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			names, reason, message := test.overruling.Skipped()
			g.Expect(names).To(Equal(test.names))
			g.Expect(reason).To(Equal(test.wantReason))
			g.Expect(message).To(Equal(test.message))
		})
	}
}

func TestWithout(t *testing.T) {
	tests := map[string]struct {
		list  string
		names []string
		want  string
	}{
		"the first":               {"a,b,c", []string{"a"}, "b,c"},
		"the middle":              {"a,b,c", []string{"b"}, "a,c"},
		"the last":                {"a,b,c", []string{"c"}, "a,b"},
		"several":                 {"a,b,c", []string{"c", "a"}, "b"},
		"all":                     {"a,b", []string{"a", "b"}, ""},
		"the only one":            {"a", []string{"a"}, ""},
		"one that is not there":   {"a,b", []string{"c"}, "a,b"},
		"a part of a name":        {"a.corp.com,b", []string{"a"}, "a.corp.com,b"},
		"one that is there twice": {"a,b,a", []string{"a"}, "b"},
		"blanks stay":             {"a, b ,c", []string{"a"}, " b ,c"},
		"one with blanks":         {"a, b ,c", []string{"b"}, "a,c"},
		"nothing but blanks":      {"a, ,", []string{"a"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(Without(test.list, test.names)).To(Equal(test.want))
		})
	}
}

// What was written of a skipped initializer stays true, whatever comes.
func TestSkippedConditionsStay(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	skipped := one(quota, no, v1alpha1.ReasonTimedOut, "skipped: not done in time", before)
	dropped := one(mesh, no, v1alpha1.ReasonDeregistered, "skipped: named by nobody", before)
	namespace := func() *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace("x").Initializers(rbac, quota, mesh)
	}
	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		want      []corev1.NamespaceCondition
	}{
		"others are pending": {
			namespace: namespace().Pending(rbac, mesh).Condition(skipped),
			want: []corev1.NamespaceCondition{
				whole(yes, v1alpha1.ReasonPending, "waiting for rbac.corp.com (2 of 3)", at),
				one(rbac, no, v1alpha1.ReasonPending, myTurn, at),
				one(mesh, no, v1alpha1.ReasonPending, notMyTurn, at),
			},
		},
		"all others are done": {
			namespace: namespace().Pending().Condition(skipped),
			want: []corev1.NamespaceCondition{
				whole(no, v1alpha1.ReasonCompleted, allDone+", but for quota.corp.com, which was skipped", at),
				one(rbac, yes, v1alpha1.ReasonCompleted, myDone, at),
				one(mesh, yes, v1alpha1.ReasonCompleted, myDone, at),
			},
		},
		"several were skipped, in the order of the list": {
			namespace: namespace().Pending().Condition(dropped).Condition(skipped),
			want: []corev1.NamespaceCondition{
				whole(no, v1alpha1.ReasonCompleted, allDone+", but for quota.corp.com and mesh.corp.com, which were skipped", at),
				one(rbac, yes, v1alpha1.ReasonCompleted, myDone, at),
			},
		},
		"all were skipped": {
			namespace: namespace().Pending().Condition(dropped).Condition(skipped).
				Condition(one(rbac, no, v1alpha1.ReasonDeregistered, "skipped", before)),
			want: []corev1.NamespaceCondition{whole(no, v1alpha1.ReasonCompleted,
				allDone+", but for rbac.corp.com, quota.corp.com and mesh.corp.com, which were skipped", at)},
		},
		// An initializer must not use the operator's words of itself.
		"one that is pending cannot have been skipped": {
			namespace: namespace().Pending(quota).Condition(skipped),
			want: []corev1.NamespaceCondition{
				whole(yes, v1alpha1.ReasonPending, "waiting for quota.corp.com (3 of 3)", at),
				one(rbac, yes, v1alpha1.ReasonCompleted, myDone, at),
				one(quota, no, v1alpha1.ReasonPending, myTurn, before),
				one(mesh, yes, v1alpha1.ReasonCompleted, myDone, at),
			},
		},
		"one with another status is not taken for skipped": {
			namespace: namespace().Pending().Condition(one(quota, yes, v1alpha1.ReasonTimedOut, "?", before)),
			want: []corev1.NamespaceCondition{
				whole(no, v1alpha1.ReasonCompleted, allDone, at),
				one(rbac, yes, v1alpha1.ReasonCompleted, myDone, at),
				one(quota, yes, v1alpha1.ReasonCompleted, myDone, before),
				one(mesh, yes, v1alpha1.ReasonCompleted, myDone, at),
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := test.namespace.Obj()
			NewWithT(t).Expect(ComputeConditions(object, Observe(object), at)).To(Equal(test.want))
		})
	}
}

func TestSkippedConditions(t *testing.T) {
	g := NewWithT(t)
	g.Expect(SkippedConditions([]string{rbac, mesh}, "R", "m", metav1.NewTime(now))).To(Equal([]corev1.NamespaceCondition{
		one(rbac, corev1.ConditionFalse, "R", "m", at), one(mesh, corev1.ConditionFalse, "R", "m", at),
	}))
}

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

// created is the creation time of the namespaces of these tests.
var created = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func after(offset time.Duration) *metav1.Time {
	return &metav1.Time{Time: created.Add(offset)}
}

func entry(name string, since *metav1.Time) v1alpha1.EffectiveInitializer {
	return v1alpha1.EffectiveInitializer{Name: name, Configuration: "corp", InForceSince: since}
}

const finalizer = "search.example.com/index"

// selecting returns the entry with a selector for one label.
func selecting(entry v1alpha1.EffectiveInitializer, key, value string) v1alpha1.EffectiveInitializer {
	entry.NamespaceSelector = &v1alpha1.NamespaceSelector{
		MatchLabels: map[string]v1alpha1.LabelValue{key: v1alpha1.LabelValue(value)},
	}
	return entry
}

func TestComputeInjection(t *testing.T) {
	before := []v1alpha1.EffectiveInitializer{entry(rbac, after(-time.Hour)), entry(quota, after(-time.Minute))}
	tests := map[string]struct {
		change       func(*corev1.Namespace)
		name         string
		initializers []v1alpha1.EffectiveInitializer
		want         []string
	}{
		"a new namespace":       {initializers: before, want: []string{rbac, quota}},
		"nothing is registered": {},
		"only those that select it": {
			initializers: []v1alpha1.EffectiveInitializer{
				selecting(entry(rbac, after(0)), "team", "a"), selecting(entry(quota, after(0)), "team", "b"),
				selecting(entry(mesh, after(time.Second)), "team", "a"),
			},
			change: func(namespace *corev1.Namespace) { namespace.Labels = map[string]string{"team": "a"} },
			want:   []string{rbac},
		},
		"only those that were enforced when it was created": {
			initializers: []v1alpha1.EffectiveInitializer{
				entry(rbac, after(time.Second)), entry(quota, after(0)), entry(mesh, after(time.Hour)),
			},
			want: []string{quota},
		},
		"it existed before all of them": {
			initializers: []v1alpha1.EffectiveInitializer{entry(rbac, after(time.Second))},
		},
		"it is not known since when": {
			initializers: []v1alpha1.EffectiveInitializer{entry(rbac, nil), entry(quota, after(-time.Second))},
			want:         []string{quota},
		},
		"the operator has found that it needs none": {
			initializers: before, change: condition(corev1.ConditionFalse, v1alpha1.ReasonNotRequired),
		},
		"the operator has seen its list": {
			initializers: before, change: condition(corev1.ConditionTrue, v1alpha1.ReasonPending),
		},
		"it is being deleted": {
			initializers: before, change: func(namespace *corev1.Namespace) { namespace.DeletionTimestamp = after(time.Second) },
		},
		"it is a namespace of the cluster": {initializers: before, name: metav1.NamespaceSystem},
		"it is the operator's own":         {initializers: before, name: systemNamespace},
		"it has a list":                    {initializers: before, change: annotation(v1alpha1.AnnotationPendingInitializers)},
		"it has had a list":                {initializers: before, change: annotation(v1alpha1.AnnotationInitializers)},
		"it has a result":                  {initializers: before, change: annotation(v1alpha1.AnnotationInitializationResult)},
		"an API server has had it":         {initializers: before, change: annotation(v1alpha1.AnnotationRequestedBy)},
		"the operator has had it":          {initializers: before, change: annotation(v1alpha1.AnnotationInjectedAt)},
		"it has the label": {
			initializers: before,
			change: func(namespace *corev1.Namespace) {
				namespace.Labels = map[string]string{v1alpha1.LabelInitializing: ""}
			},
		},
		"conditions, labels and annotations of other controllers": {
			initializers: before,
			change: func(namespace *corev1.Namespace) {
				namespace.Labels = map[string]string{"app": "web"}
				namespace.Annotations = map[string]string{"corp.example.com/initializers": "x"}
				namespace.Status.Conditions = []corev1.NamespaceCondition{{Type: corev1.NamespaceDeletionContentFailure}}
			},
			want: []string{rbac, quota},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := wrappers.MakeNamespace("x").Obj()
			namespace.CreationTimestamp = *after(0)
			if test.name != "" {
				namespace.Name = test.name
			}
			if test.change != nil {
				test.change(namespace)
			}
			set := &v1alpha1.NamespaceInitializerSet{Initializers: test.initializers}
			got := Names(ComputeInjection(namespace, set, systemNamespace))
			NewWithT(t).Expect(got).To(HaveExactElements(test.want))
		})
	}
}

func condition(status corev1.ConditionStatus, reason string) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) {
		namespace.Status.Conditions = []corev1.NamespaceCondition{{
			Type: v1alpha1.ConditionInitializing, Status: status, Reason: reason,
		}}
	}
}

func annotation(key string) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) { namespace.Annotations = map[string]string{key: ""} }
}

// ParseState reads what Inject writes, and nothing is injected twice.
func TestInject(t *testing.T) {
	g := NewWithT(t)
	namespace := &corev1.Namespace{}
	set := &v1alpha1.NamespaceInitializerSet{Initializers: []v1alpha1.EffectiveInitializer{
		entry(rbac, &metav1.Time{}), entry(quota, &metav1.Time{}),
	}}
	set.Initializers[1].Finalizer = finalizer
	initializers := ComputeInjection(namespace, set, systemNamespace)
	names := []string{rbac, quota}
	g.Expect(Names(initializers)).To(Equal(names))

	Inject(namespace, initializers, created.Add(20*time.Millisecond))
	g.Expect(ParseState(namespace)).To(Equal(State{Phase: PhasePending, All: names, Pending: names}))
	g.Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationInjectedAt, "2026-03-01T12:00:00.02Z"))
	g.Expect(namespace.Annotations).NotTo(HaveKey(v1alpha1.AnnotationRequestedBy))
	g.Expect(namespace.Spec.Finalizers).To(Equal([]corev1.FinalizerName{finalizer}))
	g.Expect(ComputeInjection(namespace, set, systemNamespace)).To(BeEmpty())
}

func TestStamp(t *testing.T) {
	tests := map[string]struct {
		wanted, have, want []v1alpha1.EffectiveInitializer
		needs              bool
	}{
		"nothing": {want: []v1alpha1.EffectiveInitializer{}},
		"a new one": {
			wanted: []v1alpha1.EffectiveInitializer{entry(rbac, nil)},
			want:   []v1alpha1.EffectiveInitializer{entry(rbac, after(0))}, needs: true,
		},
		"an old one keeps its time at another position": {
			wanted: []v1alpha1.EffectiveInitializer{entry(quota, nil), entry(rbac, nil)},
			have:   []v1alpha1.EffectiveInitializer{entry(rbac, after(-time.Hour))},
			want:   []v1alpha1.EffectiveInitializer{entry(quota, after(0)), entry(rbac, after(-time.Hour))}, needs: true,
		},
		"an old one without a time gets one": {
			wanted: []v1alpha1.EffectiveInitializer{entry(rbac, nil)},
			have:   []v1alpha1.EffectiveInitializer{entry(rbac, nil)},
			want:   []v1alpha1.EffectiveInitializer{entry(rbac, after(0))}, needs: true,
		},
		"one was removed": {
			wanted: []v1alpha1.EffectiveInitializer{entry(quota, nil)},
			have:   []v1alpha1.EffectiveInitializer{entry(rbac, after(-time.Hour)), entry(quota, after(-time.Minute))},
			want:   []v1alpha1.EffectiveInitializer{entry(quota, after(-time.Minute))},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(Stamp(test.wanted, test.have, *after(0))).To(Equal(test.want))
			g.Expect(NeedsStamp(test.wanted, test.have)).To(Equal(test.needs))
		})
	}
}

func TestInForceFrom(t *testing.T) {
	g := NewWithT(t)
	g.Expect(InForceFrom(nil)).To(BeZero())
	g.Expect(InForceFrom([]v1alpha1.EffectiveInitializer{entry(mesh, nil)})).To(BeZero())
	g.Expect(InForceFrom([]v1alpha1.EffectiveInitializer{
		entry(rbac, after(-time.Hour)), entry(quota, after(time.Second)), entry(mesh, nil),
	})).To(Equal(created.Add(time.Second)))
}

// A namespace that was open for a long time is not deleted because an initializer fails.
func TestWhyNotDeleteAfterTheWindow(t *testing.T) {
	tests := map[string]struct {
		injectedAt string
		want       string
	}{
		"the API server added the list":             {},
		"just after its creation":                   {injectedAt: "2026-03-01T12:00:00.25Z"},
		"within the window":                         {injectedAt: "2026-03-01T12:00:59Z"},
		"before its creation because clocks differ": {injectedAt: "2026-03-01T11:59:58Z"},
		"after the window":                          {injectedAt: "2026-03-01T12:01:00Z", want: "open for 1m0s"},
		"long after it":                             {injectedAt: "2026-03-01T14:00:00Z", want: "open for 2h0m0s"},
		"an invalid time":                           {injectedAt: "yesterday", want: "open for 1m0s"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := wrappers.MakeNamespace("x").Initializers(rbac).Result(failureResult).Obj()
			namespace.CreationTimestamp = *after(0)
			if test.injectedAt != "" {
				namespace.Annotations[v1alpha1.AnnotationInjectedAt] = test.injectedAt
			}
			why := WhyNotDelete(namespace, ParseState(namespace), systemNamespace)
			if test.want == "" {
				NewWithT(t).Expect(why).To(BeEmpty())
			} else {
				NewWithT(t).Expect(why).To(ContainSubstring(test.want))
			}
		})
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	rbac  = "rbac.corp.com"
	quota = "quota.corp.com"
	mesh  = "mesh.corp.com"

	indexFinalizer = "search.example.com/index"
)

// created is the creation time of the namespaces in these tests.
var created = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func after(offset time.Duration) *metav1.Time {
	return &metav1.Time{Time: created.Add(offset)}
}

func entry(name string, since *metav1.Time) v1alpha1.EffectiveInitializer {
	return v1alpha1.EffectiveInitializer{Name: name, Configuration: "corp", InForceSince: since}
}

// selecting returns the entry with a selector that matches one label.
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
		"new namespace":   {initializers: before, want: []string{rbac, quota}},
		"no initializers": {},
		"only initializers that select the namespace": {
			initializers: []v1alpha1.EffectiveInitializer{
				selecting(entry(rbac, after(0)), "team", "a"), selecting(entry(quota, after(0)), "team", "b"),
				selecting(entry(mesh, after(time.Second)), "team", "a"),
			},
			change: func(namespace *corev1.Namespace) { namespace.Labels = map[string]string{"team": "a"} },
			want:   []string{rbac},
		},
		"the initializer of the templates, without a template": {
			initializers: []v1alpha1.EffectiveInitializer{entry(v1alpha1.TemplatesInitializer, after(0)), entry(quota, after(0))},
			want:         []string{quota},
		},
		"only initializers that were enforced when the namespace was created": {
			initializers: []v1alpha1.EffectiveInitializer{
				entry(rbac, after(time.Second)), entry(quota, after(0)), entry(mesh, after(time.Hour)),
			},
			want: []string{quota},
		},
		"created before any initializer was enforced": {
			initializers: []v1alpha1.EffectiveInitializer{entry(rbac, after(time.Second))},
		},
		"an initializer with an unknown enforcement time is not added": {
			initializers: []v1alpha1.EffectiveInitializer{entry(rbac, nil), entry(quota, after(-time.Second))},
			want:         []string{quota},
		},
		"reconciled before, without initializers": {
			initializers: before, change: condition(corev1.ConditionFalse, v1alpha1.ReasonNotRequired),
		},
		"reconciled before, with a pending list": {
			initializers: before, change: condition(corev1.ConditionTrue, v1alpha1.ReasonPending),
		},
		"terminating": {
			initializers: before, change: func(namespace *corev1.Namespace) { namespace.DeletionTimestamp = after(time.Second) },
		},
		"system namespace of the cluster":  {initializers: before, name: metav1.NamespaceSystem},
		"system namespace of the operator": {initializers: before, name: systemNamespace},
		"pending list":                     {initializers: before, change: annotation(v1alpha1.AnnotationPendingInitializers)},
		"list at creation":                 {initializers: before, change: annotation(v1alpha1.AnnotationInitializers)},
		"result":                           {initializers: before, change: annotation(v1alpha1.AnnotationInitializationResult)},
		"requester":                        {initializers: before, change: annotation(v1alpha1.AnnotationRequestedBy)},
		"time of injection":                {initializers: before, change: annotation(v1alpha1.AnnotationInjectedAt)},
		"label": {
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
			got := initialization.Names(computeInjection(namespace, set, systemNamespace))
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

// ParseState accepts the state that inject writes, and initializers are not injected twice.
func TestInjectState(t *testing.T) {
	g := NewWithT(t)
	namespace := &corev1.Namespace{}
	set := &v1alpha1.NamespaceInitializerSet{Initializers: []v1alpha1.EffectiveInitializer{
		entry(rbac, &metav1.Time{}), entry(quota, &metav1.Time{}),
	}}
	set.Initializers[1].Finalizer = indexFinalizer
	initializers := computeInjection(namespace, set, systemNamespace)
	names := []string{rbac, quota}
	g.Expect(initialization.Names(initializers)).To(Equal(names))

	inject(namespace, set, initializers, created.Add(20*time.Millisecond))
	g.Expect(initialization.ParseState(namespace)).To(Equal(initialization.State{Phase: initialization.PhasePending, All: names, Pending: names}))
	g.Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationInjectedAt, "2026-03-01T12:00:00.02Z"))
	g.Expect(namespace.Annotations).NotTo(Or(
		HaveKey(v1alpha1.AnnotationRequestedBy), HaveKey(v1alpha1.AnnotationSelectedTemplates)))
	g.Expect(namespace.Spec.Finalizers).To(Equal([]corev1.FinalizerName{indexFinalizer}))
	g.Expect(computeInjection(namespace, set, systemNamespace)).To(BeEmpty())
}

// The record contains the templates that select the Namespace, if it waits for them.
func TestInjectRecordsTheSelectedTemplates(t *testing.T) {
	g := NewWithT(t)
	set := &v1alpha1.NamespaceInitializerSet{
		Initializers: []v1alpha1.EffectiveInitializer{
			entry(v1alpha1.TemplatesInitializer, &metav1.Time{}), entry(quota, &metav1.Time{}),
		},
		Templates: []v1alpha1.EffectiveTemplate{
			{Name: "base", NamespaceSelector: &v1alpha1.NamespaceSelector{}}, {Name: "other"}, {Name: "team"},
		},
	}
	namespace := wrappers.MakeNamespace("x").Label(v1alpha1.LabelTemplate, "team").Obj()
	inject(namespace, set, computeInjection(namespace, set, systemNamespace), created)
	g.Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationSelectedTemplates, "base,team"))
	namespace = wrappers.MakeNamespace("x").Label(v1alpha1.LabelTemplate, "team").Obj()
	inject(namespace, set, set.Initializers[1:], created)
	g.Expect(namespace.Annotations).NotTo(HaveKey(v1alpha1.AnnotationSelectedTemplates))
}

func TestStampEntries(t *testing.T) {
	tests := map[string]struct {
		wanted, have, want []v1alpha1.EffectiveInitializer
		needs              bool
	}{
		"empty set": {want: []v1alpha1.EffectiveInitializer{}},
		"new entry": {
			wanted: []v1alpha1.EffectiveInitializer{entry(rbac, nil)},
			want:   []v1alpha1.EffectiveInitializer{entry(rbac, after(0))}, needs: true,
		},
		"existing entry at another position keeps its time": {
			wanted: []v1alpha1.EffectiveInitializer{entry(quota, nil), entry(rbac, nil)},
			have:   []v1alpha1.EffectiveInitializer{entry(rbac, after(-time.Hour))},
			want:   []v1alpha1.EffectiveInitializer{entry(quota, after(0)), entry(rbac, after(-time.Hour))}, needs: true,
		},
		"existing entry without a time gets a time": {
			wanted: []v1alpha1.EffectiveInitializer{entry(rbac, nil)},
			have:   []v1alpha1.EffectiveInitializer{entry(rbac, nil)},
			want:   []v1alpha1.EffectiveInitializer{entry(rbac, after(0))}, needs: true,
		},
		"entry removed": {
			wanted: []v1alpha1.EffectiveInitializer{entry(quota, nil)},
			have:   []v1alpha1.EffectiveInitializer{entry(rbac, after(-time.Hour)), entry(quota, after(-time.Minute))},
			want:   []v1alpha1.EffectiveInitializer{entry(quota, after(-time.Minute))},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(stamp(test.wanted, test.have, *after(0))).To(Equal(test.want))
			g.Expect(needsStamp(test.wanted, test.have)).To(Equal(test.needs))
		})
	}
}

func TestLatestEnforcement(t *testing.T) {
	g := NewWithT(t)
	g.Expect(latestEnforcement(nil)).To(BeZero())
	g.Expect(latestEnforcement([]v1alpha1.EffectiveInitializer{entry(mesh, nil)})).To(BeZero())
	g.Expect(latestEnforcement([]v1alpha1.EffectiveInitializer{
		entry(rbac, after(-time.Hour)), entry(quota, after(time.Second)), entry(mesh, nil),
	})).To(Equal(created.Add(time.Second)))
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestNamespaceCounts(t *testing.T) {
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	initializing := func(created time.Time, pending ...string) corev1.Namespace {
		namespace := wrappers.MakeNamespace("x").Initializers("a", "b").Pending(pending...).Obj()
		namespace.CreationTimestamp = metav1.NewTime(created)
		return *namespace
	}
	terminating := func(deleted time.Time, tokens ...corev1.FinalizerName) corev1.Namespace {
		namespace := wrappers.MakeNamespace("x").Terminating(deleted).Obj()
		namespace.Spec.Finalizers = tokens
		return *namespace
	}
	configuration := func(active metav1.ConditionStatus, names ...string) v1alpha1.NamespaceInitializerConfiguration {
		configuration := wrappers.MakeConfiguration("c").Initializers(names...).Obj()
		if active != "" {
			configuration.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionActive, Status: active}}
		}
		return *configuration
	}
	failed := initializing(at(-6), "b")
	failed.Annotations[v1alpha1.AnnotationInitializationResult] = `{"status":"Failure"}`
	namespaces := []corev1.Namespace{
		*wrappers.MakeNamespace("initialized").Obj(), failed,
		initializing(at(-5), "a", "b"), initializing(at(-9), "b"), initializing(at(-7), "b"),
		*wrappers.MakeNamespace("deleted").Pending("a").Terminating(at(-2)).Obj(),
		terminating(at(-3), corev1.FinalizerKubernetes), terminating(at(-4), "example.com/agent"),
	}
	configurations := []v1alpha1.NamespaceInitializerConfiguration{
		configuration(metav1.ConditionTrue, "a", "c"), configuration(metav1.ConditionFalse, "d"), configuration(""),
	}
	noActive := map[string]int{"True": 0, "False": 0, "Unknown": 0}
	noReason := map[string]int{"Deleting": 0, "ObjectsRemain": 0, "Failing": 0, "FinalizersRemain": 0}
	initializingCounts := namespaceCounts{
		initializing:   map[string]int{"a": 1, "b": 2, "c": 0, "d": 0},
		configurations: map[string]int{"True": 1, "False": 1, "Unknown": 1},
		terminating:    map[string]int{},
		oldest:         map[diagnosis.NamespaceState]time.Time{diagnosis.StateInitializing: at(-9), diagnosis.StateFailed: at(-6)},
	}
	terminatingCounts := namespaceCounts{
		initializing: map[string]int{}, configurations: map[string]int{},
		terminating: map[string]int{"Deleting": 2, "ObjectsRemain": 0, "Failing": 0, "FinalizersRemain": 1},
		oldest:      map[diagnosis.NamespaceState]time.Time{diagnosis.StateTerminating: at(-4)},
	}
	all := NamespaceSource{HasInitialization: true, HasFinalization: true}
	tests := map[string]struct {
		source         NamespaceSource
		namespaces     []corev1.Namespace
		configurations []v1alpha1.NamespaceInitializerConfiguration
		want           namespaceCounts
	}{
		"nothing": {source: all, want: namespaceCounts{
			initializing: map[string]int{}, configurations: noActive, terminating: noReason,
			oldest: map[diagnosis.NamespaceState]time.Time{},
		}},
		"everything": {source: all, namespaces: namespaces, configurations: configurations, want: namespaceCounts{
			initializing: initializingCounts.initializing, configurations: initializingCounts.configurations, terminating: terminatingCounts.terminating,
			oldest: map[diagnosis.NamespaceState]time.Time{
				diagnosis.StateInitializing: at(-9), diagnosis.StateFailed: at(-6), diagnosis.StateTerminating: at(-4),
			},
		}},
		"only initialization runs": {
			source: NamespaceSource{HasInitialization: true}, namespaces: namespaces, configurations: configurations, want: initializingCounts,
		},
		"only finalization runs": {source: NamespaceSource{HasFinalization: true}, namespaces: namespaces, want: terminatingCounts},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			test.source.Finalizer = corev1.FinalizerKubernetes
			g.Expect(test.source.count(test.namespaces, test.configurations)).To(Equal(test.want))
		})
	}
}

// collect returns the number of metrics that a collector sends.
func collect(collector prometheus.Collector) int {
	collected := make(chan prometheus.Metric, 100)
	collector.Collect(collected)
	return len(collected)
}

func TestNamespaceCollectorCountsOnlyOnTheLeader(t *testing.T) {
	g := NewWithT(t)
	var c namespaceCollector
	g.Expect(collect(&c)).To(BeZero(), "before any manager is the leader")

	reader := fake.NewClientBuilder().WithScheme(scheme.New()).Build()
	run := func(reader client.Reader) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		before := c.source.Load()
		source := NamespaceSource{Reader: reader, HasInitialization: true, HasFinalization: true}
		go func() { done <- c.runnable(source).Start(ctx) }()
		g.Eventually(c.source.Load).WithTimeout(time.Minute).ShouldNot(BeIdenticalTo(before))
		return func() {
			cancel()
			g.Expect(<-done).To(Succeed())
		}
	}
	stopFirst := run(reader)
	g.Expect(collect(&c)).NotTo(BeZero())
	stopSecond := run(reader)
	stopFirst()
	g.Expect(collect(&c)).NotTo(BeZero(), "while the second manager is the leader")
	stopSecond()
	g.Expect(collect(&c)).To(BeZero(), "after the second manager has stopped")

	broken := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme.New()).Build(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("the cache has not started")
		},
	})
	defer run(broken)()
	g.Expect(collect(&c)).To(BeZero(), "after an error, the metrics are absent")
}

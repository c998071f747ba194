// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

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
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func TestCensusCount(t *testing.T) {
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	waiting := func(created time.Time, pending ...string) corev1.Namespace {
		namespace := wrappers.MakeNamespace("x").Initializers("a", "b").Pending(pending...).Obj()
		namespace.CreationTimestamp = metav1.NewTime(created)
		return *namespace
	}
	dies := func(deleted time.Time, tokens ...corev1.FinalizerName) corev1.Namespace {
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
	namespaces := []corev1.Namespace{
		*wrappers.MakeNamespace("ordinary").Obj(),
		waiting(at(-5), "a", "b"), waiting(at(-9), "b"), waiting(at(-7), "b"),
		*wrappers.MakeNamespace("deleted").Pending("a").Terminating(at(-2)).Obj(),
		dies(at(-3), corev1.FinalizerKubernetes), dies(at(-4), "example.com/agent"),
	}
	configurations := []v1alpha1.NamespaceInitializerConfiguration{
		configuration(metav1.ConditionTrue, "a", "c"), configuration(metav1.ConditionFalse, "d"), configuration(""),
	}
	noActive := map[string]int{"True": 0, "False": 0, "Unknown": 0}
	noState := map[string]int{"emptying": 0, "remaining": 0, "failing": 0, "waiting": 0}
	births := counts{
		initializing:   map[string]int{"a": 1, "b": 2, "c": 0, "d": 0},
		configurations: map[string]int{"True": 1, "False": 1, "Unknown": 1},
		terminating:    map[string]int{},
		oldest:         map[diagnosis.Stage]time.Time{diagnosis.StageInitializing: at(-9)},
	}
	deaths := counts{
		initializing: map[string]int{}, configurations: map[string]int{},
		terminating: map[string]int{"emptying": 2, "remaining": 0, "failing": 0, "waiting": 1},
		oldest:      map[diagnosis.Stage]time.Time{diagnosis.StageTerminating: at(-4)},
	}
	tests := map[string]struct {
		controllers    Controllers
		namespaces     []corev1.Namespace
		configurations []v1alpha1.NamespaceInitializerConfiguration
		want           counts
	}{
		"nothing": {want: counts{
			initializing: map[string]int{}, configurations: noActive, terminating: noState,
			oldest: map[diagnosis.Stage]time.Time{},
		}},
		"everything": {namespaces: namespaces, configurations: configurations, want: counts{
			initializing: births.initializing, configurations: births.configurations, terminating: deaths.terminating,
			oldest: map[diagnosis.Stage]time.Time{
				diagnosis.StageInitializing: at(-9), diagnosis.StageTerminating: at(-4),
			},
		}},
		"initialization alone": {
			controllers: Controllers{Initialization: true}, namespaces: namespaces, configurations: configurations, want: births,
		},
		"finalization alone": {controllers: Controllers{Finalization: true}, namespaces: namespaces, want: deaths},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			district := &district{controllers: test.controllers, token: corev1.FinalizerKubernetes}
			g.Expect(district.count(test.namespaces, test.configurations)).To(Equal(test.want))
		})
	}
}

// collect returns how many metrics a collector has to tell.
func collect(collector prometheus.Collector) int {
	collected := make(chan prometheus.Metric, 100)
	collector.Collect(collected)
	return len(collected)
}

func TestCensusCountsForTheLeaderAlone(t *testing.T) {
	g := NewWithT(t)
	var c census
	g.Expect(collect(&c)).To(BeZero(), "on a standby")

	reader := fake.NewClientBuilder().WithScheme(NewScheme()).Build()
	run := func(reader client.Reader) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		before := c.current
		go func() { done <- c.runner(district{reader: reader}).Start(ctx) }()
		g.Eventually(func() bool {
			c.lock.Lock()
			defer c.lock.Unlock()
			return c.current != before
		}).Should(BeTrue())
		return func() {
			cancel()
			g.Expect(<-done).To(Succeed())
		}
	}
	stopFirst := run(reader)
	g.Expect(collect(&c)).NotTo(BeZero())
	stopSecond := run(reader)
	stopFirst()
	g.Expect(collect(&c)).NotTo(BeZero(), "the other one still counts")
	stopSecond()
	g.Expect(collect(&c)).To(BeZero(), "when it is over")

	broken := interceptor.NewClient(fake.NewClientBuilder().WithScheme(NewScheme()).Build(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("the cache has not started")
		},
	})
	defer run(broken)()
	g.Expect(collect(&c)).To(BeZero(), "what cannot be read is absent, and no error")
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// collectTimeout limits the duration of reads from a cache, because a cache that has not synced
// must not delay the other metrics.
const collectTimeout = time.Second

// namespaces is the only namespaceCollector in the process, because the process has only one
// registry.
var namespaces = &namespaceCollector{}

var (
	initializingDesc = prometheus.NewDesc(metricsNamespace+"_namespaces_initializing",
		helpNamespacesInitializing, []string{"initializer"}, nil)
	terminatingDesc = prometheus.NewDesc(metricsNamespace+"_namespaces_terminating",
		helpNamespacesTerminating, []string{"reason"}, nil)
	oldestDesc = prometheus.NewDesc(metricsNamespace+"_oldest_namespace_timestamp_seconds",
		helpOldestNamespace, []string{"state"}, nil)
	configurationsDesc = prometheus.NewDesc(metricsNamespace+"_configurations",
		helpConfigurations, []string{"active"}, nil)
)

// NamespaceSource describes what one manager counts.
type NamespaceSource struct {
	// Reader reads from the manager's cache.
	Reader client.Reader
	// HasInitialization, HasFinalization and HasTemplates report whether the manager runs these
	// controllers. Namespaces that only other controllers handle are not counted.
	HasInitialization, HasFinalization, HasTemplates bool
	// Finalizer is the namespace finalizer that the manager removes.
	Finalizer corev1.FinalizerName
}

// CollectNamespaces returns a runnable that collects the metrics of namespaces while the manager is
// the leader.
func CollectNamespaces(source NamespaceSource) manager.Runnable { return namespaces.runnable(source) }

// namespaceCollector counts the objects in the leader's cache whenever the metrics are scraped, so
// the counts always match the cache.
type namespaceCollector struct {
	source atomic.Pointer[NamespaceSource]
}

func (c *namespaceCollector) runnable(source NamespaceSource) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		c.source.Store(&source)
		<-ctx.Done()
		c.source.CompareAndSwap(&source, nil)
		return nil
	})
}

// Describe implements prometheus.Collector.
func (*namespaceCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		initializingDesc, terminatingDesc, oldestDesc, configurationsDesc, templateNamespacesDesc, templatePausedDesc,
	} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *namespaceCollector) Collect(collected chan<- prometheus.Metric) {
	source := c.source.Load()
	if source == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	// After an error, the metrics are absent. An invalid metric would make the whole scrape fail.
	_ = source.collect(ctx, collected)
}

func (s *NamespaceSource) collect(ctx context.Context, collected chan<- prometheus.Metric) error {
	var namespaces corev1.NamespaceList
	if err := s.Reader.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	var configurations v1alpha1.NamespaceInitializerConfigurationList
	if s.HasInitialization {
		if err := s.Reader.List(ctx, &configurations, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
	}
	var templates v1alpha1.NamespaceTemplateList
	if s.HasTemplates {
		if err := s.Reader.List(ctx, &templates, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
	}
	collectTemplates(templates.Items, collected)
	send := func(desc *prometheus.Desc, counts map[string]int) {
		for value, count := range counts {
			collected <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(count), value)
		}
	}
	counts := s.count(namespaces.Items, configurations.Items)
	send(initializingDesc, counts.initializing)
	send(terminatingDesc, counts.terminating)
	send(configurationsDesc, counts.configurations)
	for state, oldest := range counts.oldest {
		collected <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, float64(oldest.Unix()),
			string(state))
	}
	return nil
}

type namespaceCounts struct {
	initializing, terminating, configurations map[string]int
	oldest                                    map[diagnosis.NamespaceState]time.Time
}

// count returns the counts by label value. The count is 0 for each registered initializer, each
// reason and each status without objects.
func (s *NamespaceSource) count(
	namespaces []corev1.Namespace, configurations []v1alpha1.NamespaceInitializerConfiguration,
) namespaceCounts {
	counts := namespaceCounts{
		initializing: map[string]int{}, terminating: map[string]int{}, configurations: map[string]int{},
		oldest: map[diagnosis.NamespaceState]time.Time{},
	}
	if s.HasInitialization {
		counts.addConfigurations(configurations)
	}
	if s.HasFinalization {
		for _, reason := range finalization.TerminatingReasons() {
			counts.terminating[string(reason)] = 0
		}
	}
	for i := range namespaces {
		namespace := &namespaces[i]
		if namespace.DeletionTimestamp != nil {
			if s.HasFinalization {
				counts.terminating[string(finalization.TerminatingReasonOf(namespace, s.Finalizer))]++
				counts.addToState(diagnosis.StateTerminating, namespace.DeletionTimestamp.Time)
			}
			continue
		}
		state := initialization.ParseState(namespace)
		if len(state.Pending) == 0 || !s.HasInitialization {
			continue
		}
		counts.addToState(diagnosis.NamespaceState(state.Phase), namespace.CreationTimestamp.Time)
		if state.Phase == initialization.PhaseInitializing {
			counts.initializing[state.Pending[0]]++
		}
	}
	return counts
}

func (c *namespaceCounts) addConfigurations(configurations []v1alpha1.NamespaceInitializerConfiguration) {
	for _, active := range []metav1.ConditionStatus{
		metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown,
	} {
		c.configurations[string(active)] = 0
	}
	for i := range configurations {
		c.configurations[string(activeStatus(&configurations[i]))]++
		for _, initializer := range configurations[i].Initializers {
			c.initializing[initializer.Name] = 0
		}
	}
}

func (c *namespaceCounts) addToState(state diagnosis.NamespaceState, since time.Time) {
	if oldest, ok := c.oldest[state]; !ok || since.Before(oldest) {
		c.oldest[state] = since
	}
}

func activeStatus(configuration *v1alpha1.NamespaceInitializerConfiguration) metav1.ConditionStatus {
	condition := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionActive)
	if condition == nil {
		return metav1.ConditionUnknown
	}
	return condition.Status
}

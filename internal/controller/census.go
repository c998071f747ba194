// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
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

// collectTimeout bounds the reads from a cache: one that has not synced must not hold up the
// other metrics.
const collectTimeout = time.Second

// counted is the census of the process, as the registry is that of the process.
var counted = &census{}

var (
	initializingDesc = prometheus.NewDesc(metricsNamespace+"_namespaces_initializing",
		"Namespaces that wait for initializers, by the initializer whose turn it is.", []string{"initializer"}, nil)
	terminatingDesc = prometheus.NewDesc(metricsNamespace+"_namespaces_terminating",
		"Namespaces that are being deleted, by what their conditions tell.", []string{"state"}, nil)
	oldestDesc = prometheus.NewDesc(metricsNamespace+"_oldest_namespace_timestamp_seconds",
		"When the one of the namespaces in this stage that has been in it for longest was created, or deleted; "+
			"absent where there is none.", []string{"stage"}, nil)
	configurationsDesc = prometheus.NewDesc(metricsNamespace+"_configurations",
		"NamespaceInitializerConfigurations, by the status of their condition Active.", []string{"active"}, nil)
)

// census counts, whenever the metrics are read, what the caches of the leader hold. So what
// it counts cannot be out of step with the cluster, whatever was missed before.
type census struct {
	lock    sync.Mutex
	current *district
}

// district is what one manager counts.
type district struct {
	reader      client.Reader
	controllers Controllers
	token       corev1.FinalizerName
}

// runner counts for one manager, for as long as it is the leader.
func (c *census) runner(counts district) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		c.change(func() { c.current = &counts })
		<-ctx.Done()
		c.change(func() {
			if c.current == &counts {
				c.current = nil
			}
		})
		return nil
	})
}

func (c *census) change(f func()) {
	c.lock.Lock()
	defer c.lock.Unlock()
	f()
}

// Describe sends what there may be.
func (*census) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{initializingDesc, terminatingDesc, oldestDesc, configurationsDesc} {
		descs <- desc
	}
}

// Collect sends what there is.
func (c *census) Collect(collected chan<- prometheus.Metric) {
	var current *district
	c.change(func() { current = c.current })
	if current == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	// What cannot be read is absent. An invalid metric would take all the others with it.
	_ = current.collect(ctx, collected)
}

func (d *district) collect(ctx context.Context, collected chan<- prometheus.Metric) error {
	var namespaces corev1.NamespaceList
	if err := d.reader.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	var configurations v1alpha1.NamespaceInitializerConfigurationList
	if d.controllers.Runs(Initialization) {
		if err := d.reader.List(ctx, &configurations, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
	}
	send := func(desc *prometheus.Desc, counts map[string]int) {
		for value, count := range counts {
			collected <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(count), value)
		}
	}
	found := d.count(namespaces.Items, configurations.Items)
	send(initializingDesc, found.initializing)
	send(terminatingDesc, found.terminating)
	send(configurationsDesc, found.configurations)
	for stage, oldest := range found.oldest {
		collected <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, float64(oldest.Unix()),
			string(stage))
	}
	return nil
}

// counts are the results of a census.
type counts struct {
	initializing, terminating, configurations map[string]int
	oldest                                    map[diagnosis.Stage]time.Time
}

// count leaves out what the controllers of this manager do not look after. What can be
// expected is counted as 0.
func (d *district) count(
	namespaces []corev1.Namespace, configurations []v1alpha1.NamespaceInitializerConfiguration,
) counts {
	found := counts{
		initializing: map[string]int{}, terminating: map[string]int{}, configurations: map[string]int{},
		oldest: map[diagnosis.Stage]time.Time{},
	}
	if d.controllers.Runs(Initialization) {
		for _, active := range []metav1.ConditionStatus{
			metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown,
		} {
			found.configurations[string(active)] = 0
		}
		for i := range configurations {
			found.configurations[string(activeStatus(&configurations[i]))]++
			for _, initializer := range configurations[i].Initializers {
				found.initializing[initializer.Name] = 0
			}
		}
	}
	if d.controllers.Runs(Finalization) {
		for _, state := range finalization.States() {
			found.terminating[string(state)] = 0
		}
	}
	for i := range namespaces {
		namespace := &namespaces[i]
		if namespace.DeletionTimestamp != nil {
			if d.controllers.Runs(Finalization) {
				found.terminating[string(finalization.StateOf(namespace, d.token))]++
				found.noteOldest(diagnosis.StageTerminating, namespace.DeletionTimestamp.Time)
			}
			continue
		}
		pending := initialization.ParseState(namespace).Pending
		if len(pending) > 0 && d.controllers.Runs(Initialization) {
			found.initializing[pending[0]]++
			found.noteOldest(diagnosis.StageInitializing, namespace.CreationTimestamp.Time)
		}
	}
	return found
}

func (c *counts) noteOldest(stage diagnosis.Stage, since time.Time) {
	if oldest, isKnown := c.oldest[stage]; !isKnown || since.Before(oldest) {
		c.oldest[stage] = since
	}
}

func activeStatus(configuration *v1alpha1.NamespaceInitializerConfiguration) metav1.ConditionStatus {
	condition := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionActive)
	if condition == nil {
		return metav1.ConditionUnknown
	}
	return condition.Status
}

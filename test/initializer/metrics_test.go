// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/pkg/initializer"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("The metrics of an initializer", func() {
	It("count calls by result, pending namespaces and the time until completion", func(ctx context.Context) {
		blocking, name := unique("a-measured")+".corp.com", unique("b-measured")+".corp.com"
		proceed := make(chan struct{})
		var called calls
		serve(ctx, newAccount(ctx, unique("measured"), serving), name,
			func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
				switch called.record(namespace) {
				case 1:
					return initializer.Result{}, errors.New("down")
				case 2:
					return initializer.Result{}, initializer.NotYet(time.Millisecond, "Waiting", "")
				case 3:
					panic("out of range")
				case 4:
					select {
					case <-proceed:
					case <-ctx.Done():
					}
				}
				return initializer.Result{}, ctx.Err()
			})
		register(ctx, blocking, name)
		namespace := create(ctx, wrappers.MakeNamespace(unique("measured")))
		Consistently(func() float64 { return metric(name, "pending_namespaces", "").GetGauge().GetValue() },
			time.Second).Should(BeZero(), "it is not the turn of the initializer")
		serve(ctx, newAccount(ctx, unique("blocking"), serving), blocking,
			func(context.Context, *corev1.Namespace) (initializer.Result, error) { return initializer.Result{}, nil })
		Eventually(func() int { return len(called.of(namespace.Name)) }).WithContext(ctx).Should(Equal(4))
		Expect(metric(name, "pending_namespaces", "").GetGauge().GetValue()).To(BeEquivalentTo(1))

		close(proceed)
		expectReady(ctx, namespace.Name)
		for result, want := range map[string]int{
			"succeeded": 1, "failed": 0, "waiting": 1, "error": 1, "panic": 1, "canceled": 0,
		} {
			Expect(metric(name, "calls_total", result).GetCounter().GetValue()).To(BeEquivalentTo(want), result)
		}
		Eventually(func() float64 { return metric(name, "pending_namespaces", "").GetGauge().GetValue() }).
			WithContext(ctx).Should(BeZero())
		duration := func() *dto.Histogram {
			return findMetric(name, "completion_duration_seconds", "succeeded").GetHistogram()
		}
		Eventually(func() uint64 { return duration().GetSampleCount() }).WithContext(ctx).Should(BeEquivalentTo(1))
		// The backoff delays of an error and a panic.
		Expect(duration().GetSampleSum()).To(And(BeNumerically(">=", 0.4), BeNumerically("<", 30)))
	})
})

// metric returns a metric of an initializer, or fails the spec.
func metric(initializerName, metricName, result string) *dto.Metric {
	GinkgoHelper()
	found := findMetric(initializerName, metricName, result)
	Expect(found).NotTo(BeNil(), "metric %s with result %s does not exist", metricName, result)
	return found
}

// findMetric returns nil if the metric does not exist.
func findMetric(initializerName, metricName, result string) *dto.Metric {
	GinkgoHelper()
	for _, metric := range framework.Metrics()["nslifecycle_function_"+metricName] {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		if labels["controller"] == "initializer "+initializerName && labels["result"] == result {
			return metric
		}
	}
	return nil
}

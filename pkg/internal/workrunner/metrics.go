// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Values of the label result.
const (
	resultSucceeded = "Succeeded"
	resultFailed    = "Failed"
	resultWaiting   = "Waiting"
	resultError     = "Error"
	resultPanic     = "Panic"
	resultCanceled  = "Canceled"
)

// The label controller has the same values as in controller-runtime's metrics, which already measure
// reconciliations and queues.
const (
	labelController = "controller"
	labelResult     = "result"
)

var (
	callsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "nslifecycle", Subsystem: "function", Name: "calls_total", Help: helpCalls,
	}, []string{labelController, labelResult})
	completionDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "nslifecycle", Subsystem: "function", Name: "completion_duration_seconds", Help: helpCompletion,
		// From 50 ms to 27 minutes.
		Buckets:                     prometheus.ExponentialBuckets(0.05, 2, 16),
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}, []string{labelController, labelResult})
	currentNamespaces = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "nslifecycle", Subsystem: "function", Name: "namespaces", Help: helpNamespaces,
	}, []string{labelController})
)

func init() {
	metrics.Registry.MustRegister(callsTotal, completionDuration, currentNamespaces)
}

// initializeMetrics exports the metrics of a controller with the value 0.
func initializeMetrics(controller string, canFail bool) {
	currentNamespaces.WithLabelValues(controller)
	for _, result := range []string{
		resultSucceeded, resultFailed, resultWaiting, resultError, resultPanic, resultCanceled,
	} {
		if result != resultFailed || canFail {
			callsTotal.WithLabelValues(controller, result)
		}
	}
}

func (r *Reconciler) callResult(ctx context.Context, err error) string {
	var failed *FailedError
	var notYet *NotYetError
	var panicked *panicError
	switch {
	case err == nil:
		return resultSucceeded
	case errors.As(err, &panicked):
		return resultPanic
	case errors.Is(ctx.Err(), context.Canceled):
		return resultCanceled
	case errors.As(err, &failed) && r.Handler.Fail != nil:
		return resultFailed
	case errors.As(err, &notYet):
		return resultWaiting
	}
	return resultError
}

// observeCompletion records the time since the Namespace became ready. A Namespace that was deleted
// or no longer matches might not have such a time.
func (r *Reconciler) observeCompletion(task *task, result string) {
	if task.readySince.IsZero() {
		return
	}
	completionDuration.WithLabelValues(r.Handler.Name, result).Observe(r.Clock.Since(task.readySince).Seconds())
}

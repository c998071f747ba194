// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/version"
)

// metricsNamespace is the prefix of all metric names.
const metricsNamespace = "nslifecycle"

// nativeBucketFactor is the maximum ratio of the widths of two adjacent buckets of a native
// histogram.
const nativeBucketFactor = 1.1

var (
	// InitializationDuration is labeled with one of the outcomes Initialized, Failed and Deleted.
	InitializationDuration = newDurations("initialization_duration_seconds", helpInitializationDuration,
		[]float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600})

	// FinalizationDuration is labeled with an outcome of package finalization.
	FinalizationDuration = newDurations("finalization_duration_seconds", helpFinalizationDuration,
		[]float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 900, 3600, 14400, 86400})

	// InitializersSkippedTotal is labeled with the reason of the initializer's condition.
	InitializersSkippedTotal = newCounters("initializers_skipped_total", helpInitializersSkipped, "reason")

	effectiveSetStatus = newGauges("effective_set_status", helpEffectiveSetStatus, "reason")

	// finalizationGracePeriod is a vector without labels, so that the metric is absent until the first deletion.
	finalizationGracePeriod = newGauges("finalization_grace_period_seconds", helpGracePeriod)

	objectsDeletedTotal = newCounter("finalization_objects_deleted_total", helpObjectsDeleted)

	finalizationRequestsTotal = newCounters("finalization_requests_total", helpFinalizationRequests, "purpose")

	sharedListRequestsTotal = newCounter("finalization_shared_list_requests_total", helpSharedListRequests)

	// FinalizationThrottledTotal counts requeues after a response with Retry-After.
	FinalizationThrottledTotal = newCounter("finalization_throttled_total", helpFinalizationThrottled)

	// NamespacesBlocked is labeled with the state and the most likely cause.
	NamespacesBlocked = newGauges("namespaces_blocked", helpNamespacesBlocked, "state", "cause")

	// DiagnosesTotal is labeled with one of the results Blocked, Progressing, Outdated and Error.
	DiagnosesTotal = newCounters("diagnoses_total", helpDiagnoses, "result")

	// DiagnosisDuration also observes failed diagnoses.
	DiagnosisDuration = prometheus.NewHistogram(
		durationOptions("diagnosis_duration_seconds", helpDiagnosisDuration, prometheus.ExponentialBuckets(0.05, 2, 11)))

	// DiagnosisRequestsTotal counts the requests that all diagnoses send.
	DiagnosisRequestsTotal = newCounter("diagnosis_requests_total", helpDiagnosisRequests)

	holdWritesTotal = newCounters("hold_writes_total", helpHoldWritesTotal, "outcome")

	holdDuration = prometheus.NewHistogram(durationOptions("hold_duration_seconds", helpHoldDuration,
		[]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30}))

	holdWrites = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: metricsNamespace, Name: "hold_writes", Help: helpHoldWrites,
	})

	// TemplateApplyDuration is observed when the operator removes its initializer from the pending list.
	TemplateApplyDuration = prometheus.NewHistogram(durationOptions("template_apply_duration_seconds", helpTemplateApply,
		[]float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}))

	// TemplateConflictsTotal is labeled with the template.
	TemplateConflictsTotal = newCounters("template_conflicts_total", helpTemplateConflicts, "template")

	templateWritesTotal = newCounters("template_writes_total", helpTemplateWrites, "template", "action")

	buildInfo = newGauges("build_info", helpBuildInfo, "version", "revision", "go_version")
)

// Results of DiagnosesTotal.
const (
	// ResultBlocked means that the diagnosis has findings.
	ResultBlocked = "Blocked"
	// ResultProgressing means that the diagnosis has no findings.
	ResultProgressing = "Progressing"
	// ResultOutdated means that the namespace made progress or was deleted during the diagnosis.
	ResultOutdated = "Outdated"
	// ResultError means that the diagnosis failed.
	ResultError = "Error"
)

// Outcomes of InitializationDuration.
const (
	// OutcomeInitialized means that all initializers were removed from the pending list.
	OutcomeInitialized = "Initialized"
	// OutcomeFailed means that the namespace has a failure result.
	OutcomeFailed = "Failed"
	// OutcomeDeleted means that the namespace was deleted while initializers were pending.
	OutcomeDeleted = "Deleted"
)

// Collectors returns all collectors in this package. They are registered with controller-runtime.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		buildInfo, NamespacesBlocked, DiagnosesTotal, DiagnosisDuration, DiagnosisRequestsTotal, InitializationDuration,
		InitializersSkippedTotal, FinalizationDuration, effectiveSetStatus, finalizationGracePeriod, objectsDeletedTotal,
		finalizationRequestsTotal, sharedListRequestsTotal, FinalizationThrottledTotal, holdWritesTotal,
		holdDuration, holdWrites, TemplateApplyDuration, TemplateConflictsTotal, templateWritesTotal, namespaces,
	}
}

func init() {
	ctrlmetrics.Registry.MustRegister(Collectors()...)
	build := version.Read()
	buildInfo.WithLabelValues(build.Version, build.Revision, build.Go).Set(1)
	// Initialize the counters, because rate() misses the first increase of a counter that did not
	// exist before.
	for _, result := range []string{ResultBlocked, ResultProgressing, ResultOutdated, ResultError} {
		DiagnosesTotal.WithLabelValues(result)
	}
	for _, outcome := range []string{OutcomeInitialized, OutcomeFailed, OutcomeDeleted} {
		InitializationDuration.WithLabelValues(outcome)
	}
	for _, outcome := range hold.Outcomes() {
		holdWritesTotal.WithLabelValues(string(outcome))
	}
	for _, reason := range initialization.SkipReasons() {
		InitializersSkippedTotal.WithLabelValues(reason)
	}
	for _, outcome := range []string{finalization.OutcomeReleased, finalization.OutcomeSuperseded} {
		FinalizationDuration.WithLabelValues(outcome)
	}
	for _, purpose := range finalization.Purposes() {
		finalizationRequestsTotal.WithLabelValues(string(purpose))
	}
}

func newCounter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help})
}

func newCounters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(
		prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help}, labels)
}

func newGauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: metricsNamespace, Name: name, Help: help}, labels)
}

func newDurations(name, help string, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(durationOptions(name, help, buckets), []string{"outcome"})
}

// durationOptions returns the options of a histogram that is served with classic buckets and as a
// native histogram.
func durationOptions(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Namespace: metricsNamespace, Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     nativeBucketFactor,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}
}

// StartTime estimates the exact time of a timestamp that has a precision of one second. It returns
// the time when the watch event was seen, limited to that second. The error is at most one second,
// and zero if the event was seen immediately.
func StartTime(timestamp metav1.Time, seen time.Time) time.Time {
	switch latest := timestamp.Add(time.Second); {
	case seen.Before(timestamp.Time):
		return timestamp.Time
	case seen.After(latest):
		return latest
	}
	return seen
}

// Seconds returns the seconds from start to end. It returns 0 for a negative difference, which is
// possible if the times are from the clocks of different machines.
func Seconds(start, end time.Time) float64 {
	return max(end.Sub(start), 0).Seconds()
}

// SetEffectiveSetStatus sets the status of the effective set. The status is a reason of the Active
// condition.
func SetEffectiveSetStatus(reason string) {
	for _, possible := range []string{
		v1alpha1.ReasonEnforced, v1alpha1.ReasonAuditMode, v1alpha1.ReasonEnforcementPending,
		v1alpha1.ReasonPolicyMissing, v1alpha1.ReasonRejected,
	} {
		value := 0.0
		if possible == reason {
			value = 1
		}
		effectiveSetStatus.WithLabelValues(possible).Set(value)
	}
}

// SetGracePeriod records the grace period of the namespace that was deleted last.
func SetGracePeriod(gracePeriod time.Duration) {
	finalizationGracePeriod.WithLabelValues().Set(gracePeriod.Seconds())
}

// FinalizationRecorder records the requests, deletions and durations of finalization.
type FinalizationRecorder struct{}

// Requested counts a request.
func (FinalizationRecorder) Requested(purpose finalization.Purpose) {
	finalizationRequestsTotal.WithLabelValues(string(purpose)).Inc()
}

// Deleted counts an object whose deletion the API server has accepted.
func (FinalizationRecorder) Deleted() { objectsDeletedTotal.Inc() }

// Answered counts list requests that were answered from a shared list, one for each type.
func (FinalizationRecorder) Answered(types int) { sharedListRequestsTotal.Add(float64(types)) }

// RecordFinalization records the duration of a finalization and returns it in seconds.
func (FinalizationRecorder) RecordFinalization(
	outcome string, deletionTimestamp metav1.Time, firstSeen, finishedAt time.Time,
) float64 {
	seconds := Seconds(StartTime(deletionTimestamp, firstSeen), finishedAt)
	FinalizationDuration.WithLabelValues(outcome).Observe(seconds)
	return seconds
}

// HoldRecorder records the writes that the hold webhooks receive.
type HoldRecorder struct{}

// Held implements hold.Recorder.
func (HoldRecorder) Held() func(hold.Outcome) {
	start := time.Now()
	holdWrites.Inc()
	return func(outcome hold.Outcome) {
		holdWrites.Dec()
		holdDuration.Observe(time.Since(start).Seconds())
		holdWritesTotal.WithLabelValues(string(outcome)).Inc()
	}
}

// Answered implements hold.Recorder.
func (HoldRecorder) Answered(outcome hold.Outcome) {
	holdWritesTotal.WithLabelValues(string(outcome)).Inc()
}

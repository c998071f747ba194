// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/finalization"
	buildversion "github.com/nslifecycle/nslifecycle/internal/version"
)

// metricsNamespace starts the name of every metric of this project.
const metricsNamespace = "nslifecycle"

// nativeBucketFactor is how much wider each bucket of a native histogram is than the one
// before it, at most.
const nativeBucketFactor = 1.1

// The metrics of this project, beside those of controller-runtime. Each but buildInfo is changed
// by the leader alone, since only the leader runs the reconcilers. They are those of the process,
// as the registry is. None has the name of a namespace in a label: there may be very many.
// docs/metrics.md lists them all, and a test compares.
var (
	initializationDuration = newDurations("initialization_duration_seconds",
		"How long namespaces with initializers took from their creation until they were open, or failed, "+
			"or were deleted before that.",
		[]float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600})

	finalizationDuration = newDurations("finalization_duration_seconds",
		"How long namespaces took from their deletion until the finalizer token was released.",
		[]float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 900, 3600, 14400, 86400})

	initializersSkippedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricsNamespace,
		Name:      "initializers_skipped_total",
		Help: "Initializers that namespaces went on without, because their time was over or no configuration names " +
			"them any more.",
	}, []string{"reason"})

	effectiveSetStatus = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: metricsNamespace,
		Name:      "effective_set_status",
		Help: "1 for what the API server does with the effective set of initializers, as last found out, " +
			"and 0 for all else; InForce is how it should be.",
	}, []string{"reason"})

	// Without a label, and yet a vector: it is absent until the first deletion.
	settlingTime = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: metricsNamespace,
		Name:      "settling_time_seconds",
		Help:      "How long after its deletion a namespace may be found empty for good, as last chosen.",
	}, nil)

	objectsDeletedTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: metricsNamespace,
		Name:      "objects_deleted_total",
		Help:      "Objects in namespaces that the API server has accepted to delete, each counted once.",
	})

	finalizationRequestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricsNamespace,
		Name:      "finalization_requests_total",
		Help: "Requests to the API server that finalization has made about the content of namespaces, by purpose. " +
			"Discovery and watches are not among them.",
	}, []string{"purpose"})

	surveyAnswersTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: metricsNamespace,
		Name:      "shared_list_requests_total",
		Help: "Answers to what there is of one type in one namespace. Each would have taken at least one request if " +
			"namespaces did not share them: less the requests for purpose shared_list, they are the requests saved.",
	})

	finalizationPutOffTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: metricsNamespace,
		Name:      "finalization_throttled_total",
		Help:      "How often a namespace had to be left for later since the API server put requests off, with 429.",
	})

	namespacesBlocked = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: metricsNamespace,
		Name:      "namespaces_blocked",
		Help: "Namespaces that do not get on with their initialization or deletion, " +
			"by the leading cause.",
	}, []string{"stage", "cause"})

	diagnosesTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: metricsNamespace,
		Name:      "diagnoses_total",
		Help:      "Diagnoses of namespaces that had not moved for a while, by what came of them.",
	}, []string{"result"})

	diagnosisDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: metricsNamespace,
		Name:      "diagnosis_duration_seconds",
		Help:      "How long a diagnosis took, most of it spent on reading from the API server.",
		Buckets:   prometheus.ExponentialBuckets(0.05, 2, 11),
		// Also as a native histogram, for a Prometheus that asks for one.
		NativeHistogramBucketFactor:     nativeBucketFactor,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	})

	diagnosisRequestsTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: metricsNamespace,
		Name:      "diagnosis_requests_total",
		Help:      "Requests to the API server that diagnoses have made.",
	})

	buildInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: metricsNamespace,
		Name:      "build_info",
		Help:      "Always 1; the labels say which manager this is.",
	}, []string{"version", "revision", "go_version"})
)

// The results of a diagnosis, in diagnosesTotal.
const (
	// resultBlocked: there are findings.
	resultBlocked = "blocked"
	// resultProgressing: there is nothing to blame.
	resultProgressing = "progressing"
	// resultOutdated: the namespace has moved, or gone, in the meantime.
	resultOutdated = "outdated"
	// resultError: the namespace could not be looked at.
	resultError = "error"
)

// The outcomes of an initialization, in initializationDuration.
const (
	// outcomeCompleted: all initializers have done their work.
	outcomeCompleted = "completed"
	// outcomeFailed: an initializer has said that the namespace cannot be initialized.
	outcomeFailed = "failed"
	// outcomeDeleted: somebody deleted the namespace while it was waiting.
	outcomeDeleted = "deleted"
)

func init() {
	metrics.Registry.MustRegister(buildInfo, namespacesBlocked, diagnosesTotal, diagnosisDuration, diagnosisRequestsTotal,
		initializationDuration, initializersSkippedTotal, finalizationDuration, effectiveSetStatus, settlingTime,
		objectsDeletedTotal, finalizationRequestsTotal, surveyAnswersTotal, finalizationPutOffTotal, counted)
	build := buildversion.Read()
	buildInfo.WithLabelValues(build.Version, build.Revision, build.Go).Set(1)
	// A counter that appears with its first value hides its first increase.
	for _, result := range []string{resultBlocked, resultProgressing, resultOutdated, resultError} {
		diagnosesTotal.WithLabelValues(result)
	}
	for _, outcome := range []string{outcomeCompleted, outcomeFailed, outcomeDeleted} {
		initializationDuration.WithLabelValues(outcome)
	}
	for _, reason := range []string{v1alpha1.ReasonTimedOut, v1alpha1.ReasonDeregistered} {
		initializersSkippedTotal.WithLabelValues(reason)
	}
	for _, outcome := range []string{finalization.OutcomeReleased, finalization.OutcomeOvertaken} {
		finalizationDuration.WithLabelValues(outcome)
	}
	for _, purpose := range finalization.Purposes() {
		finalizationRequestsTotal.WithLabelValues(string(purpose))
	}
}

// newDurations returns a histogram of durations by outcome, native and classic.
func newDurations(name, help string, buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: metricsNamespace, Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     nativeBucketFactor,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}, []string{"outcome"})
}

// whenBegun returns when something began of which the API server has noted the second: when
// it was seen, if that was within this second, and otherwise the end of it at most. So what
// is measured from there is never more than a second too short or too long, and far better
// where it was seen at once.
func whenBegun(noted metav1.Time, seen time.Time) time.Time {
	switch latest := noted.Add(time.Second); {
	case seen.Before(noted.Time):
		return noted.Time
	case seen.After(latest):
		return latest
	}
	return seen
}

// secondsSince never is negative, whatever the clocks of two machines say.
func secondsSince(begin, end time.Time) float64 {
	return max(end.Sub(begin), 0).Seconds()
}

// tellStatus makes the metrics say what the API server does with the effective set.
func tellStatus(reason string) {
	for _, possible := range []string{
		v1alpha1.ReasonEnforced, v1alpha1.ReasonEnforcementPending, v1alpha1.ReasonPolicyMismatch, v1alpha1.ReasonPolicyMissing,
		v1alpha1.ReasonRefused,
	} {
		value := 0.0
		if possible == reason {
			value = 1
		}
		effectiveSetStatus.WithLabelValues(possible).Set(value)
	}
}

// meter counts what finalization does.
type meter struct{}

func (meter) Requested(purpose finalization.Purpose) {
	finalizationRequestsTotal.WithLabelValues(string(purpose)).Inc()
}

func (meter) Deleted() { objectsDeletedTotal.Inc() }

func (meter) Answered(types int) { surveyAnswersTotal.Add(float64(types)) }

// RecordFinalization records the duration of a finalization and returns it in seconds.
func (meter) RecordFinalization(outcome string, deletionTimestamp metav1.Time, firstSeen, finishedAt time.Time) float64 {
	seconds := secondsSince(whenBegun(deletionTimestamp, firstSeen), finishedAt)
	finalizationDuration.WithLabelValues(outcome).Observe(seconds)
	return seconds
}

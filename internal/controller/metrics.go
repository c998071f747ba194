// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	buildversion "github.com/nslifecycle/nslifecycle/internal/version"
)

// metricsNamespace starts the name of every metric of this project.
const metricsNamespace = "nslifecycle"

// The metrics of this project, beside those of controller-runtime. Each but buildInfo is changed
// by the leader alone, since only the leader runs the reconcilers. They are those of the process,
// as the registry is. docs/operations.md lists them all.
var (
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
		NativeHistogramBucketFactor:     1.1,
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

func init() {
	metrics.Registry.MustRegister(namespacesBlocked, diagnosesTotal, diagnosisDuration, diagnosisRequestsTotal, buildInfo)
	build := buildversion.Read()
	buildInfo.WithLabelValues(build.Version, build.Revision, build.Go).Set(1)
	// A counter that appears with its first value hides its first increase.
	for _, result := range []string{resultBlocked, resultProgressing, resultOutdated, resultError} {
		diagnosesTotal.WithLabelValues(result)
	}
}

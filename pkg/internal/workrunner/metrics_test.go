// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

func TestMetricsFollowTheConventions(t *testing.T) {
	g := NewWithT(t)
	initializeMetrics("lint", true)
	completionDuration.WithLabelValues("lint", resultSucceeded)
	families, err := metrics.Registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(problems).NotTo(ContainElement(HaveField("Metric", HavePrefix("nslifecycle_"))))
	var names []string
	for _, family := range families {
		names = append(names, family.GetName())
	}
	g.Expect(names).To(ContainElements("nslifecycle_function_calls_total",
		"nslifecycle_function_completion_duration_seconds", "nslifecycle_function_namespaces"))
}

func TestCallResult(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancelExpired := context.WithTimeout(t.Context(), 0)
	defer cancelExpired()
	canFail := &Reconciler{Handler: Handler{
		Fail: func(context.Context, *corev1.Namespace, *FailedError) (bool, error) { return true, nil },
	}}
	for name, test := range map[string]struct {
		reconciler *Reconciler
		ctx        context.Context
		err        error
		want       string
	}{
		"success":                    {canFail, t.Context(), nil, "Succeeded"},
		"success after cancellation": {canFail, canceled, nil, "Succeeded"},
		"failure":                    {canFail, t.Context(), fmt.Errorf("wrapped: %w", &FailedError{}), "Failed"},
		"failure of a finalizer":     {&Reconciler{}, t.Context(), &FailedError{}, "Error"},
		"not yet":                    {canFail, t.Context(), fmt.Errorf("wrapped: %w", &NotYetError{}), "Waiting"},
		"error":                      {canFail, t.Context(), errors.New("down"), "Error"},
		"panic":                      {canFail, t.Context(), &panicError{}, "Panic"},
		"panic after cancellation":   {canFail, canceled, &panicError{}, "Panic"},
		"error after cancellation":   {canFail, canceled, context.Canceled, "Canceled"},
		"error after the deadline":   {canFail, expired, context.DeadlineExceeded, "Error"},
	} {
		if got := test.reconciler.callResult(test.ctx, test.err); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

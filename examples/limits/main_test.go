// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/pkg/initializer/initializertest"
)

func TestLimits(t *testing.T) {
	c := initializertest.NewClient()
	report := initializertest.Run(t, name, limits(c), initializertest.NewNamespace("shop", name), initializertest.On(c))
	if report.Outcome != (initializertest.Finished{}) {
		t.Errorf("The outcome is %#v", report.Outcome)
	}
	if again := report.Again(t); again.Outcome != (initializertest.Finished{}) {
		t.Errorf("The outcome after a crash is %#v", again.Outcome)
	}
	var limits corev1.LimitRange
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "defaults"}, &limits); err != nil {
		t.Error(err)
	}
}

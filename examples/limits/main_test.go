// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nslifecycle/nslifecycle/pkg/initializer"
)

func TestLimits(t *testing.T) {
	c := fake.NewFakeClient()
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	// The function is called again for the same namespace if the program crashes.
	for range 2 {
		result, err := limits(c)(t.Context(), shop)
		if err != nil || result != (initializer.Result{}) {
			t.Fatalf("limits: %v, %v", result, err)
		}
	}
	var created corev1.LimitRange
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "defaults"}, &created); err != nil {
		t.Fatal(err)
	}
	if memory := created.Spec.Limits[0].Default.Memory().String(); memory != "256Mi" {
		t.Errorf("The memory limit is %s", memory)
	}
}

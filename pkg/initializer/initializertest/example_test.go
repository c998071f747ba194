// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializertest_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/pkg/initializer"
	"github.com/nslifecycle/nslifecycle/pkg/initializer/initializertest"
)

// This example tests an initializer that creates a ConfigMap. The initializer must succeed when it is
// retried after a crash.
func ExampleRun() {
	t := new(testing.T) // In a test, t is the argument of the test function.

	c := initializertest.NewClient()
	welcome := func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
		welcome := applycorev1.ConfigMap("welcome", namespace.Name).
			WithData(map[string]string{"owner": namespace.Annotations[v1alpha1.AnnotationRequestedBy]})
		return initializer.Result{}, c.Apply(ctx, welcome, client.FieldOwner("welcome.corp.example.com"), client.ForceOwnership)
	}

	namespace := initializertest.NewNamespace("shop", "welcome.corp.example.com", "quota.corp.example.com")
	report := initializertest.Run(t, "welcome.corp.example.com", welcome, namespace, initializertest.On(c))
	fmt.Printf("%T, pending: %s\n", report.Outcome, report.Namespace.Annotations[v1alpha1.AnnotationPendingInitializers])
	fmt.Printf("again: %T\n", report.Again(t).Outcome)

	var made corev1.ConfigMap
	if err := c.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "welcome"}, &made); err != nil {
		fmt.Println(err)
	}
	fmt.Println("owner:", made.Data["owner"])
	// Output:
	// initializertest.Finished, pending: quota.corp.example.com
	// again: initializertest.Finished
	// owner: alice@corp.example.com
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestStartOnce(t *testing.T) {
	g := NewWithT(t)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	g.Expect(startOnce().Start(t.Context(), queue)).To(Succeed())
	g.Expect(queue.Len()).To(Equal(1))
	request, _ := queue.Get()
	g.Expect(request.NamespacedName).To(Equal(types.NamespacedName{Name: "effective"}))
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestUntilStopped(t *testing.T) {
	failing := untilStopped(reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
		return ctrl.Result{RequeueAfter: time.Minute}, errOutage
	}))
	g := NewWithT(t)
	ctx, stop := context.WithCancel(t.Context())
	result, err := failing.Reconcile(ctx, ctrl.Request{})
	g.Expect(err).To(MatchError(errOutage))
	g.Expect(result.RequeueAfter).To(Equal(time.Minute))
	stop()
	result, err = failing.Reconcile(ctx, ctrl.Request{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(BeZero())
}

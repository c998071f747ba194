// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OccupySeat occupies a seat of a priority level of API Priority and Fairness with a dry-run deletion of the object,
// which a webhook blocks until the returned function is called. The register function registers the webhook, which
// returns the reason to deny a request, for deletions of the object.
func OccupySeat(
	ctx context.Context, as client.Client, object client.Object, register func(func(*admissionv1.AdmissionRequest) string),
) (release func()) {
	GinkgoHelper()
	const released = "the seat is released"
	received, unblock := make(chan struct{}, 1), make(chan struct{})
	register(func(request *admissionv1.AdmissionRequest) string {
		if request.DryRun == nil || !*request.DryRun {
			return ""
		}
		select {
		case received <- struct{}{}:
		default:
		}
		<-unblock
		return released
	})
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			err := as.Delete(ctx, object, client.DryRunAll)
			if err != nil && strings.Contains(err.Error(), released) {
				return
			}
			// The API server does not call the webhook yet, the request was throttled, or the webhook timed out.
		}
	})
	release = sync.OnceFunc(func() {
		close(unblock)
		group.Wait()
	})
	DeferCleanup(release)
	Eventually(received).WithContext(ctx).Should(Receive(), "a request must occupy the seat")
	return release
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	operator "github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("A write to an initializing namespace", func() {
	It("waits as soon as the namespace has the pending list", func(ctx context.Context) {
		stopManager()
		Expect(plane.InstallHold(ctx, fitting())).To(Succeed())
		options, err := controlplane.HoldOptions()
		Expect(err).NotTo(HaveOccurred())
		startManager(ctx, func(o *operator.Options) { o.Hold = options })
		DeferCleanup(func(ctx context.Context) {
			stopManager()
			Expect(admin.Delete(ctx, &admissionv1.MutatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.HoldConfiguration},
			})).To(Succeed())
			startManager(ctx)
		})
		Expect(plane.WaitForHold(ctx, options.URL)).To(Succeed())
		register(ctx, "hold", "hold.test.example.com")

		name := unique("hold")
		createInjected(ctx, name)
		written := make(chan error, 1)
		go func() { written <- ordinary.Create(ctx, wrappers.MakeConfigMap(name, "early")) }()
		Consistently(written).WithContext(ctx).WithTimeout(500 * time.Millisecond).ShouldNot(Receive())
		finish(ctx, name)
		Eventually(written).WithContext(ctx).Should(Receive(BeNil()))
	})
})

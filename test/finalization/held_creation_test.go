// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("A creation that a webhook delays", func() {
	BeforeEach(stopManager)

	It("is found although it is written long after the grace period", func(ctx context.Context) {
		startOther(ctx, managerConfig(ctx), withSettlingTime(time.Second)) // With the webhook, auto is 5 s.
		namespace := createNamespace(ctx, "slow")
		asked, letGo := make(chan struct{}, 1), make(chan struct{})
		holdCreations(ctx, namespace.Name, asked, letGo)
		first, last := hold(wrappers.MakeConfigMap(namespace.Name, "first")), hold(wrappers.MakeConfigMap(namespace.Name, "last"))
		create(ctx, first, last)
		created := make(chan error, 1)
		go func() {
			created <- admin.Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace.Name, Name: "late", Finalizers: []string{testFinalizer},
			}})
		}()
		Eventually(ctx, asked).Should(Receive(), "the webhook is asked")
		deleteObject(ctx, namespace)

		By("listing all types after the grace period")
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name)).To(HaveRemaining("configmaps. has 2"))
		}).WithContext(ctx).Should(Succeed())
		Consistently(func(g Gomega) { get(g, ctx, namespace.Name) }, 1500*time.Millisecond).WithContext(ctx).Should(Succeed())
		release(ctx, first) // a wake
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name)).To(HaveRemaining("configmaps. has 1"))
		}).WithContext(ctx).Should(Succeed())

		By("creating the object, which the API server had admitted before")
		close(letGo)
		Eventually(ctx, created).Should(Receive(BeNil()))
		release(ctx, last)
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name)).To(HaveRemaining("limitranges. has 1"))
		}).WithContext(ctx).Should(Succeed())
		release(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "late"}})
		expectGone(ctx, namespace)
		Expect(countOf(Default, ctx, corev1.SchemeGroupVersion.WithResource("limitranges"), namespace.Name)).To(BeZero())
	})
})

// holdCreations registers a webhook that answers the creation of a LimitRange in one
// namespace when it is let go, and tells when it is asked.
func holdCreations(ctx context.Context, namespace string, asked chan<- struct{}, letGo <-chan struct{}) {
	GinkgoHelper()
	limitRanges := admissionregistrationv1.Rule{
		APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"limitranges"},
	}
	startWebhook(ctx, namespace, admissionregistrationv1.Create, limitRanges,
		func(request *admissionv1.AdmissionRequest) string {
			if isDryRun(request) {
				return "the webhook is there"
			}
			asked <- struct{}{}
			<-letGo
			return ""
		})
	probe := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}}
	Eventually(func() error { return admin.Create(ctx, probe.DeepCopy(), client.DryRunAll) }).WithContext(ctx).ShouldNot(Succeed())
}

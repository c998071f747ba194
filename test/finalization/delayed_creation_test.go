// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"net/http"
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

var _ = Describe("An object whose creation is delayed by a webhook", func() {
	BeforeEach(stopManager)

	It("is found even if the API server stores it after the grace period", func(ctx context.Context) {
		startManager(ctx, managerConfig(ctx), withGracePeriod(time.Second)) // With the webhook, the default is 5 s.
		namespace := createNamespace(ctx, "slow")
		received, unblock := make(chan struct{}, 1), make(chan struct{})
		delayCreations(ctx, namespace.Name, received, unblock)
		first, last := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "first")), withFinalizer(wrappers.MakeConfigMap(namespace.Name, "last"))
		create(ctx, first, last)
		created := make(chan error, 1)
		go func() {
			created <- admin.Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace.Name, Name: "late", Finalizers: []string{testFinalizer},
			}})
		}()
		Eventually(ctx, received).Should(Receive(), "the API server must call the webhook")
		deleteObject(ctx, namespace)

		By("waiting until the manager has listed all types after the grace period")
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name)).To(HaveRemaining("configmaps. has 2"))
		}).WithContext(ctx).Should(Succeed())
		Consistently(func(g Gomega) { get(g, ctx, namespace.Name) }, 1500*time.Millisecond).WithContext(ctx).Should(Succeed())
		removeFinalizers(ctx, first) // This triggers a reconciliation.
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name)).To(HaveRemaining("configmaps. has 1"))
		}).WithContext(ctx).Should(Succeed())

		By("allowing the creation")
		close(unblock)
		Eventually(ctx, created).Should(Receive(BeNil()))
		removeFinalizers(ctx, last)
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name)).To(HaveRemaining("limitranges. has 1"))
		}).WithContext(ctx).Should(Succeed())
		removeFinalizers(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "late"}})
		expectDeleted(ctx, namespace)
		Expect(countOf(Default, ctx, corev1.SchemeGroupVersion.WithResource("limitranges"), namespace.Name)).To(BeZero())
	})
})

// delayCreations registers a webhook that delays the creation of LimitRanges in one namespace until
// unblock is closed. The webhook sends a value to received for each request.
func delayCreations(ctx context.Context, namespace string, received chan<- struct{}, unblock <-chan struct{}) {
	GinkgoHelper()
	limitRanges := admissionregistrationv1.Rule{
		APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"limitranges"},
	}
	startWebhook(ctx, namespace, admissionregistrationv1.Create, limitRanges, http.StatusForbidden,
		func(request *admissionv1.AdmissionRequest) string {
			if isDryRun(request) {
				return "dry run"
			}
			received <- struct{}{}
			<-unblock
			return ""
		})
	probe := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}}
	Eventually(func() error { return admin.Create(ctx, probe.DeepCopy(), client.DryRunAll) }).WithContext(ctx).ShouldNot(Succeed())
}

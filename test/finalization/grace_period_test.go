// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// tolerance is the maximum time between the end of the grace period and the deletion of the
// namespace.
const tolerance = 2500 * time.Millisecond

// expectDeletedAfter checks that namespaces are finalized after the grace period. At least one
// namespace must be finalized within the tolerance; if the machine is busy, other namespaces might
// take longer.
func expectDeletedAfter(ctx context.Context, gracePeriod, tolerance time.Duration) {
	GinkgoHelper()
	Eventually(func() time.Duration {
		took := timeToDelete(ctx)
		Expect(took).To(BeNumerically(">=", gracePeriod))
		return took
	}).WithContext(ctx).WithTimeout(time.Minute).Should(BeNumerically("<", gracePeriod+tolerance))
}

// timeToDelete deletes a namespace with content and returns the time from the DELETE request to the
// deletion.
func timeToDelete(ctx context.Context) time.Duration {
	GinkgoHelper()
	namespace := createNamespace(ctx, "grace-period")
	create(ctx, makeConfigMaps(namespace.Name, "a", "b")...)
	observed := framework.WatchNamespace(ctx, plane.Admin, namespace)
	begin := time.Now()
	deleteObject(ctx, namespace)
	_, removed := observed.WaitForRemoval(ctx)
	Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(BeZero())
	took := removed.Sub(begin)
	AddReportEntry("duration", took.Round(time.Millisecond).String())
	return took
}

func apiServerLease(name string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: name,
			Labels: map[string]string{finalization.APIServerLeaseLabel: finalization.APIServerLeaseValue},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(name), LeaseDurationSeconds: ptr.To(int32(3600)),
			RenewTime: &metav1.MicroTime{Time: renewed},
		},
	}
}

var _ = Describe("The grace period", func() {
	BeforeEach(stopManager)

	It("depends on the number of API servers", func(ctx context.Context) {
		var leases coordinationv1.LeaseList
		Eventually(func(g Gomega) {
			g.Expect(admin.List(ctx, &leases, client.InNamespace(metav1.NamespaceSystem),
				client.MatchingLabels{finalization.APIServerLeaseLabel: finalization.APIServerLeaseValue})).To(Succeed())
			g.Expect(leases.Items).To(HaveLen(1), "Lease of the API server")
		}).WithContext(ctx).Should(Succeed())
		self := leases.Items[0].Name
		logged := captureLog()
		startManager(ctx, managerConfig(ctx))

		expectDeletedAfter(ctx, time.Second, tolerance)
		Expect(logged).To(gbytes.Say(`Chose the grace period.*"settlingTime": "1s", "reason": "there is one API server: ` + self))

		By("adding another API server")
		second := apiServerLease("apiserver-other", time.Now())
		create(ctx, second)
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(admin.Delete(ctx, second))).To(Succeed()) })
		expectDeletedAfter(ctx, 5*time.Second, tolerance)
		Expect(logged).To(gbytes.Say(`Chose the grace period.*"settlingTime": "5s", "reason": "there are 2 API servers: apiserver-`))

		By("letting the Lease of the second API server expire")
		second.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-2 * time.Hour)}
		Expect(admin.Update(ctx, second)).To(Succeed())
		expectDeletedAfter(ctx, time.Second, tolerance)
		Expect(logged).To(gbytes.Say(`Chose the grace period.*"settlingTime": "1s", "reason": "there is one API server: ` + self))

		By("checking that the message is not repeated")
		Expect(timeToDelete(ctx)).To(BeNumerically(">=", time.Second))
		Expect(logged).NotTo(gbytes.Say("Chose the grace period"))
	}, SpecTimeout(5*time.Minute))

	It("is longer while a webhook might delay the creation of objects", func(ctx context.Context) {
		logged := captureLog()
		startManager(ctx, managerConfig(ctx))
		expectDeletedAfter(ctx, time.Second, tolerance)

		By("registering a webhook for UPDATE requests")
		everything := admissionregistrationv1.Rule{
			APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"},
		}
		allow := func(*admissionv1.AdmissionRequest) string { return "" }
		startWebhook(ctx, "none", admissionregistrationv1.Update, everything, http.StatusForbidden, allow)
		expectDeletedAfter(ctx, time.Second, tolerance)

		By("registering a webhook for CREATE requests")
		slow := startWebhook(ctx, "none", admissionregistrationv1.Create, everything, http.StatusForbidden, allow)
		Expect(timeToDelete(ctx)).To(BeNumerically(">=", 5*time.Second))
		Expect(logged).To(gbytes.Say(`Chose the grace period.*"settlingTime": "5s", "reason": "admission webhooks can delay requests: 1; ` +
			`the first is \\"webhook.test.example.com\\" in ValidatingWebhookConfiguration \\"` + slow.configuration.Name))

		By("removing the webhook")
		Expect(admin.Delete(ctx, slow.configuration)).To(Succeed())
		expectDeletedAfter(ctx, time.Second, tolerance)
	}, SpecTimeout(5*time.Minute))

	DescribeTable("is the value of --settling-time:",
		func(ctx context.Context, fixed, tolerance time.Duration) {
			create(ctx, apiServerLease("apiserver-other", time.Now()))
			DeferCleanup(func(ctx context.Context) { deleteObject(ctx, apiServerLease("apiserver-other", time.Now())) })
			logged := captureLog()
			startManager(ctx, managerConfig(ctx), withGracePeriod(fixed))
			expectDeletedAfter(ctx, fixed, tolerance)
			Expect(logged).To(gbytes.Say(
				`Chose the grace period.*"settlingTime": "` + fixed.String() + `", "reason": "set by --settling-time"`))
		},
		Entry("zero", time.Duration(0), time.Second),
		Entry("less than a second", 300*time.Millisecond, tolerance),
		Entry("more than the default with one API server", 3*time.Second, tolerance/2),
	)

	It("starts when the manager observes the deletion", func(ctx context.Context) {
		namespace := createNamespace(ctx, "grace-period-late")
		deleteObject(ctx, namespace)
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveNamespaceFinalizers(corev1.FinalizerKubernetes))
		observed := framework.WatchNamespace(ctx, plane.Admin, namespace)
		begin := time.Now()
		startManager(ctx, managerConfig(ctx), withGracePeriod(2*time.Second))
		_, removed := observed.WaitForRemoval(ctx)
		Expect(removed.Sub(begin)).To(BeNumerically(">=", 2*time.Second))
	}, SpecTimeout(5*time.Minute))
})

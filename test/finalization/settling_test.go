// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
)

// patience is the tolerance added to the grace period.
const patience = 2500 * time.Millisecond

// expectToGoAfter checks that no namespace is finalized before the grace period ends, and that
// one is soon after: not each, because the machine may be busy, but with a longer grace
// period none would be.
func expectToGoAfter(ctx context.Context, settling, patience time.Duration) {
	GinkgoHelper()
	Eventually(func() time.Duration {
		took := timeToGo(ctx)
		Expect(took).To(BeNumerically(">=", settling))
		return took
	}).WithContext(ctx).WithTimeout(time.Minute).Should(BeNumerically("<", settling+patience))
}

// timeToGo deletes a namespace with some content and returns the duration, measured
// from before the DELETE.
func timeToGo(ctx context.Context) time.Duration {
	GinkgoHelper()
	namespace := createNamespace(ctx, "settling")
	create(ctx, settings(namespace.Name, "a", "b")...)
	past := watchNamespace(context.WithoutCancel(ctx), namespace)
	begin := time.Now()
	deleteObject(ctx, namespace)
	Eventually(past.gone).WithContext(ctx).Should(BeClosed())
	Expect(countOf(Default, ctx, configMaps, namespace.Name)).To(BeZero())
	past.lock.Lock()
	defer past.lock.Unlock()
	took := past.goneAt.Sub(begin)
	AddReportEntry("took", took.Round(time.Millisecond).String())
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

	It("follows the number of API servers", func(ctx context.Context) {
		var leases coordinationv1.LeaseList
		Eventually(func(g Gomega) {
			g.Expect(admin.List(ctx, &leases, client.InNamespace(metav1.NamespaceSystem),
				client.MatchingLabels{finalization.APIServerLeaseLabel: finalization.APIServerLeaseValue})).To(Succeed())
			g.Expect(leases.Items).To(HaveLen(1), "the API server has a Lease")
		}).WithContext(ctx).Should(Succeed())
		self := leases.Items[0].Name
		logged := captureLog()
		startOther(ctx, managerConfig(ctx))

		expectToGoAfter(ctx, time.Second, patience)
		Expect(logged).To(gbytes.Say(`Chose the grace period.*"settlingTime": "1s", "reason": "there is one API server: ` + self))

		By("adding another API server")
		second := apiServerLease("apiserver-other", time.Now())
		create(ctx, second)
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(admin.Delete(ctx, second))).To(Succeed()) })
		expectToGoAfter(ctx, 5*time.Second, patience)
		Expect(logged).To(gbytes.Say(`Chose the grace period.*"settlingTime": "5s", "reason": "there are 2 API servers: apiserver-`))

		By("stopping it for longer than the duration of its Lease")
		second.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-2 * time.Hour)}
		Expect(admin.Update(ctx, second)).To(Succeed())
		expectToGoAfter(ctx, time.Second, patience)
		Expect(logged).To(gbytes.Say(`Chose the grace period.*"settlingTime": "1s", "reason": "there is one API server: ` + self))

		By("checking that the message is not repeated")
		Expect(timeToGo(ctx)).To(BeNumerically(">=", time.Second))
		Expect(logged).NotTo(gbytes.Say("Chose the grace period"))
	}, SpecTimeout(5*time.Minute))

	It("is longer while a webhook can delay the creation of objects", func(ctx context.Context) {
		logged := captureLog()
		startOther(ctx, managerConfig(ctx))
		expectToGoAfter(ctx, time.Second, patience)

		By("registering a webhook that cannot delay a CREATE")
		everything := admissionregistrationv1.Rule{
			APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"},
		}
		allow := func(*admissionv1.AdmissionRequest) string { return "" }
		startWebhook(ctx, "none", admissionregistrationv1.Update, everything, allow)
		expectToGoAfter(ctx, time.Second, patience)

		By("registering a webhook that can delay a CREATE")
		slow := startWebhook(ctx, "none", admissionregistrationv1.Create, everything, allow)
		Expect(timeToGo(ctx)).To(BeNumerically(">=", 5*time.Second))
		Expect(logged).To(gbytes.Say(`Chose the grace period.*"settlingTime": "5s", "reason": "admission webhooks can delay requests: 1, ` +
			`the first is \\"webhook.test.example.com\\" of ValidatingWebhookConfiguration \\"` + slow.configuration.Name))

		By("removing it")
		Expect(admin.Delete(ctx, slow.configuration)).To(Succeed())
		expectToGoAfter(ctx, time.Second, patience)
	}, SpecTimeout(2*time.Minute))

	DescribeTable("can be set",
		func(ctx context.Context, fixed, patience time.Duration) {
			create(ctx, apiServerLease("apiserver-other", time.Now()))
			DeferCleanup(func(ctx context.Context) { deleteObject(ctx, apiServerLease("apiserver-other", time.Now())) })
			logged := captureLog()
			startOther(ctx, managerConfig(ctx), withSettlingTime(fixed))
			expectToGoAfter(ctx, fixed, patience)
			Expect(logged).To(gbytes.Say(
				`Chose the grace period.*"settlingTime": "` + fixed.String() + `", "reason": "set by --settling-time"`))
		},
		Entry("to zero", time.Duration(0), time.Second),
		Entry("to less than a second", 300*time.Millisecond, patience),
		Entry("to more than the default with one API server", 3*time.Second, patience/2),
	)

	It("starts when the manager sees the deletion", func(ctx context.Context) {
		namespace := createNamespace(ctx, "settling-late")
		deleteObject(ctx, namespace)
		consistentlyNamespace(ctx, namespace.Name, BeTerminating(), HaveTokens(kubernetesToken))
		past := watchNamespace(context.WithoutCancel(ctx), namespace)
		begin := time.Now()
		startOther(ctx, managerConfig(ctx), withSettlingTime(2*time.Second))
		Eventually(past.gone).WithContext(ctx).Should(BeClosed())
		past.lock.Lock()
		defer past.lock.Unlock()
		Expect(past.goneAt.Sub(begin)).To(BeNumerically(">=", 2*time.Second))
	}, SpecTimeout(time.Minute))
})

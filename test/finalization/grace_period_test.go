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

	"github.com/nslifecycle/nslifecycle/internal/graceperiod"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// timeToDelete deletes a namespace with content and returns the time from the DELETE request to the
// deletion.
func timeToDelete(ctx context.Context) time.Duration {
	GinkgoHelper()
	namespace := createNamespace(ctx, "grace-period")
	admin.Creates(ctx, makeConfigMaps(namespace.Name, "a", "b")...)
	observed := framework.WatchNamespace(ctx, cluster.Admin.Config, namespace)
	begin := time.Now()
	admin.Deletes(ctx, namespace)
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
			Labels: map[string]string{graceperiod.APIServerLeaseLabel: graceperiod.APIServerLeaseValue},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(name), LeaseDurationSeconds: ptr.To(int32(3600)),
			RenewTime: &metav1.MicroTime{Time: renewed},
		},
	}
}

var _ = Describe("The grace period", func() {
	BeforeEach(func() { cluster.PauseManager() })

	It("depends on the number of API servers", func(ctx context.Context) {
		var leases coordinationv1.LeaseList
		Eventually(func(g Gomega) {
			g.Expect(admin.List(ctx, &leases, client.InNamespace(metav1.NamespaceSystem),
				client.MatchingLabels{graceperiod.APIServerLeaseLabel: graceperiod.APIServerLeaseValue})).To(Succeed())
			g.Expect(leases.Items).To(HaveLen(1), "Lease of the API server")
		}).WithContext(ctx).Should(Succeed())
		self := leases.Items[0].Name
		logged := captureLog()
		startManager(ctx, managerConfig(ctx))

		Expect(timeToDelete(ctx)).To(BeNumerically(">=", time.Second))
		Expect(logged).To(gbytes.Say(`Chose the grace period.*"gracePeriod": "1s", "reason": "there is one API server: ` + self))

		By("adding another API server")
		second := apiServerLease("apiserver-other", time.Now())
		admin.Creates(ctx, second)
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(admin.Delete(ctx, second))).To(Succeed()) })
		Expect(timeToDelete(ctx)).To(BeNumerically(">=", 5*time.Second))
		Expect(logged).To(gbytes.Say(`Chose the grace period.*"gracePeriod": "5s", "reason": "there are 2 API servers: apiserver-`))

		By("letting the Lease of the second API server expire")
		second.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-2 * time.Hour)}
		admin.Updates(ctx, second)
		Expect(timeToDelete(ctx)).To(BeNumerically(">=", time.Second))
		Expect(logged).To(gbytes.Say(`Chose the grace period.*"gracePeriod": "1s", "reason": "there is one API server: ` + self))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("An object whose creation is delayed by a webhook", func() {
	BeforeEach(func() { cluster.PauseManager() })

	It("is found even if the API server stores it after the grace period", func(ctx context.Context) {
		startManager(ctx, managerConfig(ctx), withGracePeriod(time.Second)) // With the webhook, the default is 5 s.
		namespace := createNamespace(ctx, "slow")
		received, unblock := make(chan struct{}, 1), make(chan struct{})
		delayCreations(ctx, namespace.Name, received, unblock)
		first, last := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "first")), withFinalizer(wrappers.MakeConfigMap(namespace.Name, "last"))
		admin.Creates(ctx, first, last)
		created := make(chan error, 1)
		go func() {
			created <- admin.Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace.Name, Name: "late", Finalizers: []string{testFinalizer},
			}})
		}()
		Eventually(ctx, received).Should(Receive(), "the API server must call the webhook")
		admin.Deletes(ctx, namespace)

		By("waiting until the manager has listed all types after the grace period")
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 2"))
		Consistently(func(g Gomega) { cluster.GetNamespace(g, ctx, namespace.Name) }, 1500*time.Millisecond).WithContext(ctx).Should(Succeed())
		framework.RemoveFinalizers(ctx, admin, first) // This triggers a reconciliation.
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 1"))

		By("allowing the creation")
		close(unblock)
		Eventually(ctx, created).Should(Receive(BeNil()))
		framework.RemoveFinalizers(ctx, admin, last)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("limitranges. has 1"))
		framework.RemoveFinalizers(ctx, admin, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "late"}})
		framework.ExpectDeleted(ctx, admin, namespace)
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

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
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

var _ = Describe("A creation that a webhook holds", func() {
	It("is found although it comes long after the settling time", func(ctx context.Context) {
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

		By("looking at everything once the namespace has settled")
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
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, "no AdmissionReview", http.StatusBadRequest)
			return
		}
		if review.Request.DryRun == nil || !*review.Request.DryRun {
			asked <- struct{}{}
			<-letGo
		}
		// A dry run is refused, so that one can tell that the webhook works.
		isDryRun := review.Request.DryRun != nil && *review.Request.DryRun
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: !isDryRun}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(&review)
	}))
	DeferCleanup(server.Close)
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	configuration.Name = unique("slow")
	configuration.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
		Name: "slow.test.example.com",
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL:      new(server.URL),
			CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"limitranges"}},
		}},
		NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
		TimeoutSeconds:          new(int32(30)),
	}}
	create(ctx, configuration)
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, configuration))).To(Succeed())
	})
	probe := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}}
	Eventually(func() error { return admin.Create(ctx, probe.DeepCopy(), client.DryRunAll) }).WithContext(ctx).ShouldNot(Succeed())
}

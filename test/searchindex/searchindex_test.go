// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package searchindex

import (
	"context"
	"fmt"
	"io"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/examples/search-index/controller"
	"github.com/nslifecycle/nslifecycle/examples/search-index/indexserver"
	"github.com/nslifecycle/nslifecycle/test/matchers"
)

var _ = Describe("The example search-index", Ordered, func() {
	AfterEach(func() { between.set(nothing) })

	It("creates an index before a namespace is ready, and deletes it with the namespace", func(ctx context.Context) {
		namespace := create(ctx, "search-plain")
		expectReady(ctx, namespace.Name)
		Expect(indicesOf(ctx, namespace.Name)).To(Equal([]indexserver.Owner{ownerOf(namespace)}))
		ready := get(Default, ctx, namespace.Name)
		Expect(ready.Spec.Finalizers).To(ConsistOf(corev1.FinalizerKubernetes, controller.Finalizer))
		index := controller.IndexName(ready)

		By("publishing the index in the namespace")
		Eventually(get).WithContext(ctx).WithArguments(ctx, namespace.Name).Should(matchers.HaveCondition(
			initialized, corev1.ConditionTrue, "IndexReady", "index "+index+" is ready"))
		By("recording the requester in the index")
		expectFirstDocument(ctx, ready)

		By("keeping the index while the namespace has content")
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace.Name, Name: "settings", Finalizers: []string{"example.com/hold"},
		}}
		Expect(admin.Create(ctx, settings)).To(Succeed())
		Expect(admin.Delete(ctx, ready)).To(Succeed())
		Eventually(get).WithContext(ctx).WithArguments(ctx, namespace.Name).Should(
			matchers.HaveCondition(corev1.NamespaceFinalizersRemaining, corev1.ConditionTrue, "SomeFinalizersRemain"))
		Expect(indicesOf(ctx, namespace.Name)).To(HaveLen(1))
		Expect(service.Add(ctx, index, indexserver.Document{ID: "last", Text: "the last entry"})).To(Succeed())
		held := settings.DeepCopy()
		held.Finalizers = nil
		Expect(admin.Patch(ctx, held, client.MergeFrom(settings))).To(Succeed())
		expectDeleted(ctx, namespace.Name)
		Expect(indicesOf(ctx, namespace.Name)).To(BeEmpty())
	})

	DescribeTable("keeps a namespace waiting while the service",
		func(ctx context.Context, name string, f fault, reason, text string) {
			between.set(f)
			namespace := create(ctx, "search-"+name)
			Eventually(get).WithContext(ctx).WithArguments(ctx, namespace.Name).Should(
				matchers.HaveCondition(initialized, corev1.ConditionFalse, reason, text))
			Expect(get(Default, ctx, namespace.Name).Annotations).To(
				HaveKeyWithValue(v1alpha1.AnnotationPendingInitializers, controller.InitializerName))
			between.set(nothing)
			expectReady(ctx, namespace.Name)
			Expect(indicesOf(ctx, namespace.Name)).To(Equal([]indexserver.Owner{ownerOf(namespace)}))
			expectFirstDocument(ctx, get(Default, ctx, namespace.Name))

			By("injecting the same fault during the deletion")
			between.set(f)
			Expect(admin.Delete(ctx, namespace)).To(Succeed())
			Eventually(get).WithContext(ctx).WithArguments(ctx, namespace.Name).Should(
				matchers.HaveCondition(released, corev1.ConditionFalse, reason, text))
			Expect(get(Default, ctx, namespace.Name).Spec.Finalizers).To(Equal([]corev1.FinalizerName{controller.Finalizer}))
			between.set(nothing)
			expectDeleted(ctx, namespace.Name)
			Expect(indicesOf(ctx, namespace.Name)).To(BeEmpty())
		},
		Entry("is unreachable", "down", fault(down), "Retrying", "is down: EOF"),
		Entry("is slow", "slow", fault(slow), "Retrying", "did not respond within "+requestTimeout.String()),
		Entry("returns 500", "error", returning(http.StatusInternalServerError, ""), "Retrying", "500 Internal Server Error"),
		Entry("returns Retry-After", "busy", returning(http.StatusServiceUnavailable, "1"), "ServiceBusy", "503 Service Unavailable"),
		Entry("executes requests, but the responses are lost", "lost", fault(responseLost), "Retrying", "is down: EOF"),
		Entry("is replaced by a different program", "page", returning(http.StatusOK, ""), "Retrying", "200 OK"),
		// For example, an HTTPS server responds to HTTP requests with this status. If the service itself
		// returned this status, the namespace would be deleted.
		Entry("is behind a gateway that rejects requests", "gateway", returning(http.StatusBadRequest, ""), "Retrying", "400 Bad Request"),
		Entry("rejects the credentials", "unknown", returning(http.StatusUnauthorized, ""), "Retrying", "401 Unauthorized"),
	)

	It("creates and deletes all indices even if both programs are killed", func(ctx context.Context) {
		const count = 20
		var namespaces []*corev1.Namespace
		for n := range count {
			namespaces = append(namespaces, create(ctx, fmt.Sprintf("search-kill-%02d", n)))
			switch n {
			case count / 4:
				Expect(server.Kill()).To(Succeed())
			case count / 2:
				Expect(searchController.Kill()).To(Succeed())
				startServer()
				startController()
			case 3 * count / 4:
				Expect(server.Kill()).To(Succeed())
				startServer()
			}
		}
		for _, namespace := range namespaces {
			expectReady(ctx, namespace.Name)
			Expect(indicesOf(ctx, namespace.Name)).To(Equal([]indexserver.Owner{ownerOf(namespace)}))
			expectFirstDocument(ctx, namespace)
		}
		for n, namespace := range namespaces {
			Expect(admin.Delete(ctx, namespace)).To(Succeed())
			if n == count/2 {
				Expect(searchController.Kill()).To(Succeed())
				Expect(server.Kill()).To(Succeed())
				startServer()
				startController()
			}
		}
		for _, namespace := range namespaces {
			expectDeleted(ctx, namespace.Name)
			Expect(indicesOf(ctx, namespace.Name)).To(BeEmpty())
		}
	})

	It("does not leak an index if a namespace is deleted during its initialization", func(ctx context.Context) {
		arrived, letPass, passed := make(chan struct{}, 100), make(chan struct{}), make(chan int, 100)
		between.set(onlyFor(http.MethodPut, func(_ http.ResponseWriter, r *http.Request, pass http.Handler) {
			// The original request reaches the server long after the client has timed out.
			body, _ := io.ReadAll(r.Body)
			arrived <- struct{}{}
			<-letPass
			passed <- serveLate(r, body, pass)
			panic(http.ErrAbortHandler)
		}))
		namespace := create(ctx, "search-middle")
		Eventually(ctx, arrived).Should(Receive())
		Expect(get(Default, ctx, namespace.Name).Spec.Finalizers).To(ContainElement(controller.Finalizer))
		Expect(admin.Delete(ctx, namespace)).To(Succeed())
		expectDeleted(ctx, namespace.Name)

		close(letPass)
		Eventually(ctx, passed).Should(Receive(Equal(http.StatusGone)))
		Expect(indicesOf(ctx, namespace.Name)).To(BeEmpty())
	})

	It("creates a new index for a recreated namespace", func(ctx context.Context) {
		old := create(ctx, "search-again")
		expectReady(ctx, old.Name)
		expectFirstDocument(ctx, old)
		Expect(admin.Delete(ctx, old)).To(Succeed())
		expectDeleted(ctx, old.Name)

		renewed := create(ctx, old.Name)
		expectReady(ctx, renewed.Name)
		Expect(indicesOf(ctx, renewed.Name)).To(Equal([]indexserver.Owner{ownerOf(renewed)}))
		Expect(renewed.UID).NotTo(Equal(old.UID))
		expectFirstDocument(ctx, renewed)
		found, err := service.Search(ctx, controller.IndexName(renewed), string(old.UID))
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Total).To(BeZero())
	})

	It("fails a namespace whose index the service rejects, without affecting other namespaces", func(ctx context.Context) {
		between.set(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if r.Method == http.MethodPut && nameIn(r.URL.Path) == "search-bad" {
				w.Header().Set(indexserver.SignatureHeader, indexserver.Signature)
				returning(http.StatusUnprocessableEntity, "")(w, r, pass)
				return
			}
			nothing(w, r, pass)
		})
		bad, good := create(ctx, "search-bad"), create(ctx, "search-good")
		expectDeleted(ctx, bad.Name)
		expectReady(ctx, good.Name)
		Eventually(func(g Gomega) {
			var events corev1.EventList
			g.Expect(admin.List(ctx, &events, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
			g.Expect(events.Items).To(ContainElement(SatisfyAll(
				HaveField("InvolvedObject.UID", bad.UID), HaveField("Reason", "InitializationFailed"),
				HaveField("Message", And(ContainSubstring("IndexRefused"), ContainSubstring("422"))))))
		}).WithContext(ctx).Should(Succeed())
	})

	It("complies with the restricted Pod Security Standard", func(ctx context.Context) {
		var deployments appsv1.DeploymentList
		Expect(admin.List(ctx, &deployments, client.InNamespace(exampleNamespace))).To(Succeed())
		Expect(deployments.Items).To(HaveLen(2))
		for _, deployment := range deployments.Items {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: exampleNamespace, Name: deployment.Name},
				Spec:       deployment.Spec.Template.Spec,
			}
			Expect(admin.Create(ctx, pod, client.DryRunAll)).To(Succeed())
			// The API server enforces the standard.
			pod = &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: deployment.Spec.Template.Spec}
			pod.ResourceVersion, pod.UID = "", ""
			pod.Spec.SecurityContext.RunAsNonRoot = nil
			Expect(admin.Create(ctx, pod, client.DryRunAll)).To(MatchError(ContainSubstring("runAsNonRoot")))
		}
	})
})

// expectFirstDocument waits until the index contains the document about the initialization.
func expectFirstDocument(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		found, err := service.Search(ctx, controller.IndexName(namespace), "ready")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Total).To(Equal(1))
		g.Expect(found.Hits[0].Document.Text).To(ContainSubstring("namespace %s is ready: admin created it", namespace.Name))
		g.Expect(found.Hits[0].Document.Fields).To(HaveKeyWithValue("uid", string(namespace.UID)))
	}).WithContext(ctx).Should(Succeed())
}

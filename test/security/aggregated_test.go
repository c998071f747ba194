// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// toConfigMaps returns a relative path from the objects of an aggregated type to the ConfigMaps in
// a namespace. /apis/<group>/v1/namespaces/<namespace>/<resource> has five segments before the
// resource.
func toConfigMaps(namespace string) string {
	return strings.Repeat("../", 5) + "api/v1/namespaces/" + namespace + "/configmaps"
}

var _ = Describe("A hostile aggregated API server", func() {
	var victim *corev1.ConfigMap

	BeforeEach(func(ctx context.Context) { victim = createVictim(ctx) })

	It("cannot make the operator delete other objects with a malicious resource name", func(ctx context.Context) {
		startHostileServer(ctx, toConfigMaps(victim.Namespace), "list", "delete", "deletecollection")
		framework.ExpectDeleted(ctx, cluster.Admin, terminate(ctx, "byresource"))
		expectKept(ctx, victim)
	}, SpecTimeout(specTimeout))

	It("cannot make the operator delete other objects by returning items in other namespaces", func(ctx context.Context) {
		server := startHostileServer(ctx, "configmaps", "list", "delete")
		server.serveItems(makeThing(victim.Namespace, victim.Name, victim.UID))
		namespace := terminate(ctx, "foreign")
		expectFailure(ctx, namespace, "configmaps."+server.group, "in namespace")
		expectTerminating(ctx, namespace)
		expectKept(ctx, victim)
		Expect(server.received(http.MethodDelete)).To(BeEmpty())
		server.serveItems()
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(specTimeout))

	for name, item := range map[string]metav1.PartialObjectMetadata{
		"an item without a name": makeThing("", "", "uid"),
		"an item without a UID":  makeThing("", "no-uid", ""),
	} {
		It("cannot make the operator complete finalization with "+name, func(ctx context.Context) {
			server := startHostileServer(ctx, "things", "list", "delete")
			server.serveItems(item)
			namespace := terminate(ctx, "item")
			expectTerminating(ctx, namespace)
			server.serveItems()
			framework.ExpectDeleted(ctx, cluster.Admin, namespace)
		}, SpecTimeout(specTimeout))
	}

	for name, answer := range map[string]http.HandlerFunc{
		"a successful Status": func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
		},
		"one object instead of a list": func(w http.ResponseWriter, _ *http.Request) {
			object := makeThing("", "one", "uid")
			object.APIVersion, object.Kind = "meta.k8s.io/v1", "PartialObjectMetadata"
			writeJSON(w, http.StatusOK, object)
		},
		"text": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) },
		"nothing": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
		},
		"a redirect": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", cluster.Admin.Config.Host+"/api/v1/namespaces/"+victim.Namespace+"/configmaps")
			w.WriteHeader(http.StatusFound)
		},
		"endless continue tokens and no items": func(w http.ResponseWriter, _ *http.Request) {
			writeList(w, metav1.ListMeta{Continue: "more"})
		},
		"endless continue tokens": func(w http.ResponseWriter, _ *http.Request) {
			writeList(w, metav1.ListMeta{Continue: "more"}, makeThing("", "left", "uid"))
		},
	} {
		It("cannot make the operator complete finalization by responding to a list request with "+name, func(ctx context.Context) {
			server := startHostileServer(ctx, "things", "list", "delete")
			server.set(answer, nil)
			namespace := terminate(ctx, "answer")
			expectTerminating(ctx, namespace)
			expectKept(ctx, victim)
			server.serveItems()
			framework.ExpectDeleted(ctx, cluster.Admin, namespace)
		}, SpecTimeout(specTimeout))
	}

	It("cannot keep the operator busy with watch events", func(ctx context.Context) {
		server := startHostileServer(ctx, "things", "list", "delete", "watch")
		held := makeThing("", "held", "uid")
		held.DeletionTimestamp, held.Finalizers = new(metav1.Now()), []string{"vendor.example.com/held"}
		var events atomic.Int64
		server.set(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				writeList(w, metav1.ListMeta{}, held)
				return
			}
			object := held
			object.Namespace = strings.Split(server.received(http.MethodGet)[0], "/")[5]
			object.APIVersion, object.Kind = "meta.k8s.io/v1", "PartialObjectMetadata"
			w.Header().Set("Content-Type", "application/json")
			for r.Context().Err() == nil && events.Load() < 20000 {
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": object})
				events.Add(1)
				w.(http.Flusher).Flush()
			}
		}, nil)
		namespace := terminate(ctx, "events")
		expectTerminating(ctx, namespace)
		lists := len(server.received(http.MethodGet))
		AddReportEntry("requests", lists)
		AddReportEntry("events", events.Load())
		Expect(lists).To(BeNumerically("<", 100))
		server.serveItems()
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(specTimeout))
})

// createVictim creates a ConfigMap in a namespace that exists until the spec ends.
func createVictim(ctx context.Context) *corev1.ConfigMap {
	GinkgoHelper()
	other := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("victim"))
	victim := wrappers.MakeConfigMap(other.Name, "precious")
	Expect(cluster.Admin.Create(ctx, victim)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, other)).To(Succeed()) })
	return victim
}

// expectKept checks for a few seconds that an object still exists.
func expectKept(ctx context.Context, victim *corev1.ConfigMap) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		now := &corev1.ConfigMap{}
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(victim), now)).To(Succeed())
		g.Expect(now.UID).To(Equal(victim.UID))
	}).WithContext(ctx).WithTimeout(3 * time.Second).Should(Succeed())
}

// terminate creates and deletes a namespace.
func terminate(ctx context.Context, prefix string) *corev1.Namespace {
	GinkgoHelper()
	namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique(prefix))
	Expect(cluster.Admin.Delete(ctx, namespace)).To(Succeed())
	return namespace
}

// expectTerminating checks for a few seconds that the operator does not finalize a namespace after it has searched
// for its content.
func expectTerminating(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := cluster.GetNamespace(g, ctx, namespace.Name)
		g.Expect(nscondition.Find(now, corev1.NamespaceDeletionContentFailure)).NotTo(BeNil())
	}).WithContext(ctx).Should(Succeed())
	Consistently(func(g Gomega) {
		now := cluster.GetNamespace(g, ctx, namespace.Name)
		g.Expect(now.UID).To(Equal(namespace.UID))
		g.Expect(now.Spec.Finalizers).To(ContainElement(corev1.FinalizerKubernetes))
	}).WithContext(ctx).WithTimeout(4 * time.Second).Should(Succeed())
}

// expectFailure waits until a condition of a namespace reports that the deletion of its content
// failed. The condition message must contain the given strings.
func expectFailure(ctx context.Context, namespace *corev1.Namespace, texts ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		now := cluster.GetNamespace(g, ctx, namespace.Name)
		condition := nscondition.Find(now, corev1.NamespaceDeletionContentFailure)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Reason).To(Equal(finalization.ReasonContentDeletionFailed))
		for _, text := range texts {
			g.Expect(condition.Message).To(ContainSubstring(text))
		}
	}).WithContext(ctx).Should(Succeed())
}

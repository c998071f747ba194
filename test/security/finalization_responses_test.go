// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// attack contains the responses of a hostile API server that knows an object in another namespace.
type attack struct {
	// resource is the type with hostile responses, by default things.
	resource string
	list     func(victim *corev1.ConfigMap) http.HandlerFunc
	// remove is the response to DELETE requests. By default, they succeed, but the object remains.
	remove func(victim *corev1.ConfigMap) http.HandlerFunc
	// failure is part of the reported error. If it is empty, the namespace has remaining objects.
	failure string
}

// withItems returns a list of the given items for each request.
func withItems(items ...metav1.PartialObjectMetadata) func(*corev1.ConfigMap) http.HandlerFunc {
	return withList(metav1.ListMeta{}, items...)
}

func withList(meta metav1.ListMeta, items ...metav1.PartialObjectMetadata) func(*corev1.ConfigMap) http.HandlerFunc {
	return func(*corev1.ConfigMap) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { writeList(w, meta, items...) }
	}
}

// withStatus returns a response without effect.
func withStatus(code int) func(*corev1.ConfigMap) http.HandlerFunc {
	return func(*corev1.ConfigMap) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, code, metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code),
				Reason: map[int]metav1.StatusReason{
					http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict,
				}[code],
			})
		}
	}
}

// withRedirect redirects to the victim. The operator is allowed to delete it.
func withRedirect(code int) func(*corev1.ConfigMap) http.HandlerFunc {
	return func(victim *corev1.ConfigMap) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", cluster.Admin.Config.Host+"/api/v1/namespaces/"+victim.Namespace+"/configmaps/"+victim.Name)
			w.WriteHeader(code)
		}
	}
}

// ofVictim is an item with the name and the UID of the victim, so that a DELETE request to a wrong path
// would succeed.
func ofVictim(victim *corev1.ConfigMap) http.HandlerFunc {
	return withItems(makeThing("", victim.Name, victim.UID))(victim)
}

var attacks = map[string]attack{
	"an item with the name and UID of another object":    {resource: "configmaps", list: ofVictim},
	"an item with the name and UID of another namespace": {resource: "namespaces", list: ofNamespace},
	"an item whose UID always changes": {
		list: func(*corev1.ConfigMap) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				writeList(w, metav1.ListMeta{}, makeThing("", "a", uuid.NewUUID()))
			}
		},
		remove: withStatus(http.StatusConflict),
	},
	"1000 copies of an item": {list: func(victim *corev1.ConfigMap) http.HandlerFunc {
		var items []metav1.PartialObjectMetadata
		for range 1000 {
			items = append(items, makeThing("", victim.Name, victim.UID))
		}
		return withItems(items...)(victim)
	}},
	"the name ..":          {list: withItems(makeThing("", "..", "uid")), failure: "is not valid"},
	"the name .":           {list: withItems(makeThing("", ".", "uid")), failure: "is not valid"},
	"the name a/b":         {list: withItems(makeThing("", "a/b", "uid")), failure: "is not valid"},
	"the name %2e%2e":      {list: withItems(makeThing("", "%2e%2e", "uid")), failure: "is not valid"},
	"the name ..%2f..":     {list: withItems(makeThing("", "..%2f..", "uid")), failure: "is not valid"},
	"a name with ? and #":  {list: withItems(makeThing("", "?dryRun=All#", "uid"))},
	"a name with newlines": {list: withItems(makeThing("", "a\r\nX-Remote-User: admin\r\n\r\n", "uid"))},
	"a name of 1 MiB": {
		list: withItems(makeThing("", strings.Repeat("a", 1<<20), "uid")), failure: "failed to delete things.",
	},
	"an item in another namespace on the second page": {
		list: func(victim *corev1.ConfigMap) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("continue") == "" {
					writeList(w, metav1.ListMeta{Continue: "../" + toConfigMaps(victim.Namespace)}, makeThing("", "a", "uid"))
				} else {
					writeList(w, metav1.ListMeta{}, makeThing(victim.Namespace, victim.Name, victim.UID))
				}
			}
		},
		failure: "contains an item in namespace",
	},
	"an invalid resourceVersion": {list: func(*corev1.ConfigMap) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			list := metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{makeThing("", "a", "uid")}}
			list.APIVersion, list.Kind, list.ResourceVersion = "meta.k8s.io/v1", "PartialObjectMetadataList", "-1/../x"
			writeJSON(w, http.StatusOK, &list)
		}
	}},
	"no items but remaining ones": {
		list:    withList(metav1.ListMeta{Continue: "next", RemainingItemCount: new(int64(3))}),
		failure: "repeats the continue token",
	},
	"more remaining items than possible": {
		list:    withList(metav1.ListMeta{Continue: "next", RemainingItemCount: new(int64(math.MaxInt64))}),
		failure: "invalid remainingItemCount",
	},
	"empty pages without end": {
		list: func(*corev1.ConfigMap) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				writeList(w, metav1.ListMeta{Continue: r.URL.Query().Get("continue") + "a"})
			}
		},
		failure: "empty pages",
	},
	"a DELETE that is redirected (307)": {list: ofVictim, remove: withRedirect(http.StatusTemporaryRedirect), failure: "failed to delete"},
	"a DELETE that is redirected (308)": {list: ofVictim, remove: withRedirect(http.StatusPermanentRedirect), failure: "failed to delete"},
	"a DELETE that returns another object": {list: ofVictim, remove: func(victim *corev1.ConfigMap) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, victim) }
	}},
	"a DELETE that finds no object": {list: ofVictim, remove: withStatus(http.StatusNotFound)},
	"a DELETE that fails":           {list: ofVictim, remove: withStatus(http.StatusInternalServerError), failure: "failed to delete"},
}

// ofNamespace is like ofVictim for the namespace of the victim.
func ofNamespace(victim *corev1.ConfigMap) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		namespace := cluster.GetNamespace(Default, r.Context(), victim.Namespace)
		writeList(w, metav1.ListMeta{}, makeThing("", namespace.Name, namespace.UID))
	}
}

// One server for all specs saves the time to register it.
var _ = Describe("Finalization with a hostile aggregated API server", Ordered, ContinueOnFailure, func() {
	var (
		server *hostileServer
		victim *corev1.ConfigMap
	)

	BeforeAll(func(ctx context.Context) {
		victim = createVictim(ctx)
		server = startHostileServerWith(ctx, makeDiscovered("things", "list", "delete", "deletecollection"),
			makeDiscovered("configmaps", "list", "delete"), makeDiscovered("namespaces", "list", "delete"))
	}, NodeTimeout(specTimeout))

	for name, one := range attacks {
		It("deletes nothing else, is not completed, and reports the reason: "+name, func(ctx context.Context) {
			before := listEverything(ctx)
			namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("responses"))
			server.attack(namespace, victim, one)
			Expect(cluster.Admin.Delete(ctx, namespace)).To(Succeed())

			By("finalizing another namespace, whose grace period ends later")
			framework.ExpectDeleted(ctx, cluster.Admin, terminate(ctx, "control"))
			lists := len(server.received(http.MethodGet))
			Eventually(func() int { return len(server.received(http.MethodGet)) }).WithContext(ctx).
				Should(BeNumerically(">", lists), "the operator must make another pass")
			condition, reason := corev1.NamespaceContentRemaining, "SomeResourcesRemain"
			if one.failure != "" {
				condition, reason = corev1.NamespaceDeletionContentFailure, finalization.ReasonContentDeletionFailed
			}
			Eventually(func(g Gomega) *corev1.Namespace { return cluster.GetNamespace(g, ctx, namespace.Name) }).WithContext(ctx).
				Should(HaveCondition(condition, corev1.ConditionTrue, reason, one.failure))
			now := cluster.GetNamespace(Default, ctx, namespace.Name)
			Expect(now.UID).To(Equal(namespace.UID))
			Expect(now.Spec.Finalizers).To(ContainElement(corev1.FinalizerKubernetes))
			before.expectKept(ctx)
			server.expectDeletionsIn(namespace)

			server.serveItems()
			framework.ExpectDeleted(ctx, cluster.Admin, namespace)
			before.expectKept(ctx)
		}, SpecTimeout(specTimeout))
	}

	It("deletes nothing else if the server hides its objects (a known limit: they are orphaned)", func(ctx context.Context) {
		server.serveItems()
		before := listEverything(ctx)
		namespace := terminate(ctx, "hidden")
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
		before.expectKept(ctx)
	}, SpecTimeout(specTimeout))

	It("does not send the token of the operator to the server", func() {
		Expect(server.received(http.MethodGet)).NotTo(BeEmpty())
		server.lock.Lock()
		defer server.lock.Unlock()
		Expect(server.credentials).To(BeEmpty())
	})
})

// attack makes one type hostile in one namespace. Other types and namespaces have no objects.
func (s *hostileServer) attack(namespace *corev1.Namespace, victim *corev1.ConfigMap, one attack) {
	s.lock.Lock()
	s.paths = nil
	s.lock.Unlock()
	list, remove := one.list(victim), func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	}
	if one.remove != nil {
		remove = one.remove(victim)
	}
	path := "/namespaces/" + namespace.Name + "/" + cmp.Or(one.resource, "things")
	s.set(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, path) {
			list(w, r)
		} else {
			writeList(w, metav1.ListMeta{})
		}
	}, remove)
}

// expectDeletionsIn checks that the server received no DELETE request for another namespace.
func (s *hostileServer) expectDeletionsIn(namespace *corev1.Namespace) {
	GinkgoHelper()
	for _, path := range s.received(http.MethodDelete) {
		Expect(path).To(HavePrefix("/apis/" + s.group + "/v1/namespaces/" + namespace.Name + "/"))
	}
}

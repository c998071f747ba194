// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// isForeign reports whether the operator must not delete any item.
	isForeign bool
}

// withItems returns a list of the given items for each request.
func withItems(items ...metav1.PartialObjectMetadata) func(*corev1.ConfigMap) http.HandlerFunc {
	return withList(metav1.ListMeta{}, items...)
}

func withList(meta metav1.ListMeta, items ...metav1.PartialObjectMetadata) func(*corev1.ConfigMap) http.HandlerFunc {
	return func(*corev1.ConfigMap) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { framework.WriteList(w, meta, items...) }
	}
}

// withError returns a response without effect.
func withError(err *apierrors.StatusError) func(*corev1.ConfigMap) http.HandlerFunc {
	return func(*corev1.ConfigMap) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { framework.WriteStatus(w, err) }
	}
}

// withRedirect redirects to ConfigMaps of the victim's namespace, which the operator is allowed to delete.
func withRedirect(code int, name func(*corev1.ConfigMap) string) func(*corev1.ConfigMap) http.HandlerFunc {
	return func(victim *corev1.ConfigMap) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", cluster.Admin.Config.Host+"/api/v1/namespaces/"+victim.Namespace+"/configmaps"+name(victim))
			w.WriteHeader(code)
		}
	}
}

// withText returns a response that is not a list.
func withText(text string) func(*corev1.ConfigMap) http.HandlerFunc {
	return func(*corev1.ConfigMap) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(text))
		}
	}
}

func slashName(victim *corev1.ConfigMap) string { return "/" + victim.Name }

func noName(*corev1.ConfigMap) string { return "" }

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
				framework.WriteList(w, metav1.ListMeta{}, makeThing("", "a", uuid.NewUUID()))
			}
		},
		remove: withError(apierrors.NewConflict(schema.GroupResource{}, "a", nil)),
	},
	"1000 copies of an item": {list: func(victim *corev1.ConfigMap) http.HandlerFunc {
		var items []metav1.PartialObjectMetadata
		for range 1000 {
			items = append(items, makeThing("", victim.Name, victim.UID))
		}
		return withItems(items...)(victim)
	}},
	"an item without a name": {resource: "configmaps", list: withItems(makeThing("", "", "uid")), failure: "no request was sent"},
	"an item without a UID":  {resource: "configmaps", list: withItems(makeThing("", "no-uid", "")), failure: "the object has no UID"},
	"an item in another namespace": {resource: "configmaps", list: func(victim *corev1.ConfigMap) http.HandlerFunc {
		return withItems(makeThing(victim.Namespace, victim.Name, victim.UID))(victim)
	}, failure: "contains an item in namespace", isForeign: true},
	"the path of another object": {list: func(victim *corev1.ConfigMap) http.HandlerFunc {
		return withItems(makeThing("", "../"+toConfigMaps(victim.Namespace)+"/"+victim.Name, victim.UID))(victim)
	}, failure: "is not valid"},
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
					framework.WriteList(w, metav1.ListMeta{Continue: "../" + toConfigMaps(victim.Namespace)}, makeThing("", "a", "uid"))
				} else {
					framework.WriteList(w, metav1.ListMeta{}, makeThing(victim.Namespace, victim.Name, victim.UID))
				}
			}
		},
		failure: "contains an item in namespace",
	},
	"an invalid resourceVersion": {list: withList(metav1.ListMeta{ResourceVersion: "-1/../x"}, makeThing("", "a", "uid"))},
	"no items but remaining ones": {
		list:    withList(metav1.ListMeta{Continue: "next", RemainingItemCount: new(int64(3))}),
		failure: "repeats the continue token",
	},
	"a negative number of remaining items": {
		resource: "configmaps", list: withList(metav1.ListMeta{RemainingItemCount: new(int64(-1))}, makeThing("", "left", "uid")),
	},
	"endless continue tokens and no items": {resource: "configmaps", list: withList(metav1.ListMeta{Continue: "more"}), failure: "repeats the continue token"},
	"endless continue tokens": {
		resource: "configmaps", list: withList(metav1.ListMeta{Continue: "more"}, makeThing("", "left", "uid")), failure: "repeats the continue token",
	},
	"a successful Status":          {resource: "configmaps", list: withError(nil), failure: "failed to list configmaps."},
	"one object instead of a list": {resource: "configmaps", failure: "failed to list configmaps.", list: withText(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"one","uid":"uid"}}`)},
	"text":                         {resource: "configmaps", list: withText("ok"), failure: "failed to list configmaps."},
	"nothing":                      {resource: "configmaps", list: withText(""), failure: "failed to list configmaps."},
	"a redirect":                   {resource: "configmaps", list: withRedirect(http.StatusFound, noName), failure: "failed to list configmaps."},
	"more remaining items than possible": {
		list:    withList(metav1.ListMeta{Continue: "next", RemainingItemCount: new(int64(math.MaxInt64))}),
		failure: "invalid remainingItemCount",
	},
	"empty pages without end": {
		list: func(*corev1.ConfigMap) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				framework.WriteList(w, metav1.ListMeta{Continue: r.URL.Query().Get("continue") + "a"})
			}
		},
		failure: "empty pages",
	},
	"a DELETE that is redirected (307)": {list: ofVictim, remove: withRedirect(http.StatusTemporaryRedirect, slashName), failure: "failed to delete"},
	"a DELETE that is redirected (308)": {list: ofVictim, remove: withRedirect(http.StatusPermanentRedirect, slashName), failure: "failed to delete"},
	"a DELETE that returns another object": {list: ofVictim, remove: func(victim *corev1.ConfigMap) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { framework.WriteJSON(w, http.StatusOK, victim) }
	}},
	"a DELETE that finds no object": {list: ofVictim, remove: withError(apierrors.NewNotFound(schema.GroupResource{}, "a"))},
	"a DELETE that fails":           {list: ofVictim, remove: withError(apierrors.NewInternalError(errors.New("test"))), failure: "failed to delete"},
}

// ofNamespace is like ofVictim for the namespace of the victim.
func ofNamespace(victim *corev1.ConfigMap) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		namespace := cluster.GetNamespace(Default, r.Context(), victim.Namespace)
		framework.WriteList(w, metav1.ListMeta{}, makeThing("", namespace.Name, namespace.UID))
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
		server = startHostileServer(ctx, framework.MakeType("things", "list", "delete", "deletecollection"),
			framework.MakeType("configmaps", "list", "delete"), framework.MakeType("namespaces", "list", "delete"))
	}, NodeTimeout(specTimeout))

	for name, one := range attacks {
		It("deletes nothing else, is not completed, and reports the reason: "+name, func(ctx context.Context) {
			before := listEverything(ctx)
			namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("responses"))
			server.attack(namespace, victim, one)
			cluster.Admin.Deletes(ctx, namespace)

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
			if one.isForeign {
				Expect(server.received(http.MethodDelete)).To(BeEmpty())
			}

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
	list, remove := one.list(victim), withError(nil)(victim)
	if one.remove != nil {
		remove = one.remove(victim)
	}
	path := "/namespaces/" + namespace.Name + "/" + cmp.Or(one.resource, "things")
	s.set(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, path) {
			list(w, r)
		} else {
			framework.WriteList(w, metav1.ListMeta{})
		}
	}, remove)
}

// expectDeletionsIn checks that the server received no DELETE request for another namespace.
func (s *hostileServer) expectDeletionsIn(namespace *corev1.Namespace) {
	GinkgoHelper()
	for _, path := range s.received(http.MethodDelete) {
		Expect(path).To(HavePrefix("/apis/" + s.Group + "/v1/namespaces/" + namespace.Name + "/"))
	}
}

// A hostile API server chooses the names of types. Names with a slash are subresources, which clients
// ignore. A type that cannot be part of a URL or of a ClusterRole blocks the finalization.
var _ = Describe("Finalization with hostile discovery", func() {
	parseFailure := HaveCondition(corev1.NamespaceDeletionGVParsingFailure, corev1.ConditionTrue,
		"GroupVersionParsingFailed", ".aggregated.example.com")
	verbs := []string{"list", "delete", "deletecollection"}

	DescribeTable("deletes nothing else",
		func(ctx context.Context, discovered apidiscoveryv2.APIResourceDiscovery, blocked types.GomegaMatcher) {
			expectNoneTerminating(ctx)
			victim := createVictim(ctx)
			discovered.Resource = strings.ReplaceAll(discovered.Resource, "%VICTIM%", victim.Namespace)
			server := startHostileServer(ctx, discovered, framework.MakeType("things", "list", "delete"))
			namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("discovery"))
			server.set(func(w http.ResponseWriter, r *http.Request) {
				var items []metav1.PartialObjectMetadata
				if strings.Contains(r.URL.Path, "/namespaces/"+namespace.Name+"/") {
					items = append(items, makeThing("", victim.Name, victim.UID))
				}
				framework.WriteList(w, metav1.ListMeta{}, items...)
			}, nil)
			before := listEverything(ctx)
			cluster.Admin.Deletes(ctx, namespace)
			if blocked != nil {
				Eventually(func(g Gomega) *corev1.Namespace { return cluster.GetNamespace(g, ctx, namespace.Name) }).WithContext(ctx).
					Should(blocked)
			}
			Eventually(func() []string { return server.received(http.MethodDelete) }).WithContext(ctx).ShouldNot(BeEmpty())
			before.expectKept(ctx, namespace.Name)
			server.expectDeletionsIn(namespace)
			now := cluster.GetNamespace(Default, ctx, namespace.Name)
			Expect(now.Spec.Finalizers).To(ContainElement(corev1.FinalizerKubernetes))

			server.serveItems()
			if blocked != nil {
				cluster.Admin.Deletes(ctx, server.APIService)
				delete(before, "apiservices.apiregistration.k8s.io /"+server.APIService.GetName())
			}
			framework.ExpectDeleted(ctx, cluster.Admin, namespace)
			before.expectKept(ctx, namespace.Name)
		},
		Entry("of a subresource", SpecTimeout(specTimeout), framework.MakeType("pods/exec", verbs...), nil),
		Entry("of the namespace of the content", SpecTimeout(specTimeout), framework.MakeType("namespaces", verbs...), nil),
		Entry("of a path", SpecTimeout(specTimeout), framework.MakeType(toConfigMaps("%VICTIM%"), verbs...), nil),
		Entry("of an encoded path", SpecTimeout(specTimeout),
			framework.MakeType(strings.ReplaceAll(toConfigMaps("%VICTIM%"), "/", "%2f"), verbs...), parseFailure),
		Entry("of ..", SpecTimeout(specTimeout), framework.MakeType("..", verbs...), parseFailure),
		Entry("of %2e%2e", SpecTimeout(specTimeout), framework.MakeType("%2e%2e", verbs...), parseFailure),
		Entry("of a type without a name", SpecTimeout(specTimeout), framework.MakeType("", verbs...), parseFailure),
		Entry("of a query", SpecTimeout(specTimeout), framework.MakeType("things?dryRun=All#", verbs...),
			HaveCondition(corev1.NamespaceDeletionContentFailure, corev1.ConditionTrue, "ContentDeletionFailed", "its name is invalid")),
		Entry("of a type that cannot be listed", SpecTimeout(specTimeout), framework.MakeType("configmaps", "delete", "deletecollection"), nil),
		Entry("of a type with deletecollection only", SpecTimeout(specTimeout), framework.MakeType("configmaps", "deletecollection"), nil),
		Entry("of the kind of another group", SpecTimeout(specTimeout), apidiscoveryv2.APIResourceDiscovery{
			Resource: "configmaps", SingularResource: "configmap", Scope: apidiscoveryv2.ScopeNamespace, Verbs: verbs,
			ResponseKind: &metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		}, nil),
		Entry("of a cluster-scoped type", SpecTimeout(specTimeout), apidiscoveryv2.APIResourceDiscovery{
			Resource: "namespaces", SingularResource: "namespace", Scope: apidiscoveryv2.ScopeCluster, Verbs: verbs,
		}, nil),
	)
})

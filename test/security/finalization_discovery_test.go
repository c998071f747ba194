// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

// A hostile API server chooses the names of types. Names with a slash are subresources, which clients
// ignore. A type that cannot be part of a URL or of a ClusterRole blocks the finalization.
var _ = Describe("Finalization with hostile discovery", func() {
	parseFailure := HaveCondition(corev1.NamespaceDeletionGVParsingFailure, corev1.ConditionTrue,
		"GroupVersionParsingFailed", ".vendor.example.com")
	verbs := []string{"list", "delete", "deletecollection"}

	DescribeTable("deletes nothing else",
		func(ctx context.Context, discovered apidiscoveryv2.APIResourceDiscovery, blocked types.GomegaMatcher) {
			expectNoneTerminating(ctx)
			victim := createVictim(ctx)
			discovered.Resource = strings.ReplaceAll(discovered.Resource, "%VICTIM%", victim.Namespace)
			server := startHostileServerWith(ctx, discovered, makeDiscovered("things", "list", "delete"))
			namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("discovery"))
			server.set(func(w http.ResponseWriter, r *http.Request) {
				var items []metav1.PartialObjectMetadata
				if strings.Contains(r.URL.Path, "/namespaces/"+namespace.Name+"/") {
					items = append(items, makeThing("", victim.Name, victim.UID))
				}
				writeList(w, metav1.ListMeta{}, items...)
			}, nil)
			before := listEverything(ctx)
			Expect(cluster.Admin.Delete(ctx, namespace)).To(Succeed())
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
				Expect(cluster.Admin.Delete(ctx, server.apiService)).To(Succeed())
				delete(before, "apiservices.apiregistration.k8s.io /"+server.apiService.GetName())
			}
			framework.ExpectDeleted(ctx, cluster.Admin, namespace)
			before.expectKept(ctx, namespace.Name)
		},
		Entry("of a subresource", SpecTimeout(specTimeout), makeDiscovered("pods/exec", verbs...), nil),
		Entry("of the namespace of the content", SpecTimeout(specTimeout), makeDiscovered("namespaces", verbs...), nil),
		Entry("of a path", SpecTimeout(specTimeout), makeDiscovered(toConfigMaps("%VICTIM%"), verbs...), nil),
		Entry("of an encoded path", SpecTimeout(specTimeout),
			makeDiscovered(strings.ReplaceAll(toConfigMaps("%VICTIM%"), "/", "%2f"), verbs...), parseFailure),
		Entry("of ..", SpecTimeout(specTimeout), makeDiscovered("..", verbs...), parseFailure),
		Entry("of %2e%2e", SpecTimeout(specTimeout), makeDiscovered("%2e%2e", verbs...), parseFailure),
		Entry("of a type without a name", SpecTimeout(specTimeout), makeDiscovered("", verbs...), parseFailure),
		Entry("of a query", SpecTimeout(specTimeout), makeDiscovered("things?dryRun=All#", verbs...),
			HaveCondition(corev1.NamespaceDeletionContentFailure, corev1.ConditionTrue, "ContentDeletionFailed", "its name is invalid")),
		Entry("of a type that cannot be listed", SpecTimeout(specTimeout), makeDiscovered("configmaps", "delete", "deletecollection"), nil),
		Entry("of a type with deletecollection only", SpecTimeout(specTimeout), makeDiscovered("configmaps", "deletecollection"), nil),
		Entry("of the kind of another group", SpecTimeout(specTimeout), apidiscoveryv2.APIResourceDiscovery{
			Resource: "configmaps", SingularResource: "configmap", Scope: apidiscoveryv2.ScopeNamespace, Verbs: verbs,
			ResponseKind: &metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		}, nil),
		Entry("of a cluster-scoped type", SpecTimeout(specTimeout), apidiscoveryv2.APIResourceDiscovery{
			Resource: "namespaces", SingularResource: "namespace", Scope: apidiscoveryv2.ScopeCluster, Verbs: verbs,
		}, nil),
	)
})

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// The author of a CustomResourceDefinition can delete it and create it again at any time.
var _ = Describe("A custom resource type that is redefined during a finalization", func() {
	DescribeTable("keeps the new objects with the names of the old ones while a request is in flight:",
		func(ctx context.Context, scope, method string, afterResponse bool) {
			stopManager()
			custom := createCustomType(ctx)
			namespace, other := createNamespace(ctx, "redefined"), createNamespace(ctx, "other")
			names := []string{"a", "b", namespace.Name}
			for _, name := range names {
				createCustom(ctx, custom, custom.object(namespace.Name, name))
			}
			deleteObject(ctx, namespace)
			blocked := newRequestBlocker(func(request *http.Request) bool {
				return request.Method == method && request.URL.Query().Get("watch") == "" &&
					strings.Contains(request.URL.Path, "/apis/"+custom.group+"/v1/namespaces/"+namespace.Name+"/widgets")
			})
			blocked.afterResponse = afterResponse
			startManager(ctx, blocked.wrap(managerConfig(ctx)), withGracePeriod(0))
			Eventually(blocked.arrived).WithContext(ctx).Should(BeClosed())

			By("redefining the type")
			deleteObject(ctx, custom.definition())
			expectDeleted(ctx, custom.definition())
			definition := custom.definition()
			definition.Object["spec"].(map[string]any)["scope"] = scope
			create(ctx, definition)
			in := ""
			if scope == "Namespaced" {
				in = other.Name
			}
			uids := map[string]types.UID{}
			for _, name := range names {
				Eventually(func(g Gomega) {
					created, err := newDynamic().Resource(custom.resource()).Namespace(in).
						Create(ctx, custom.object(in, name), metav1.CreateOptions{})
					g.Expect(err).NotTo(HaveOccurred())
					uids[name] = created.GetUID()
				}).WithContext(ctx).Should(Succeed())
			}

			By("unblocking the request")
			close(blocked.unblock)
			expectDeleted(ctx, namespace)
			for _, name := range names {
				now, err := newDynamic().Resource(custom.resource()).Namespace(in).Get(ctx, name, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(now.GetUID()).To(Equal(uids[name]))
				Expect(now.GetDeletionTimestamp()).To(BeNil())
			}
			deleteObject(ctx, other)
			expectDeleted(ctx, other)
		},
		// Each entry takes about 10 s: the API server delays the first objects of a CRD.
		Entry("cluster-scoped, a list, before it is sent", NodeTimeout(5*time.Minute), "Cluster", "GET", false),
		Entry("cluster-scoped, a list, after the response", NodeTimeout(5*time.Minute), "Cluster", "GET", true),
		Entry("cluster-scoped, a deletion", NodeTimeout(5*time.Minute), "Cluster", "DELETE", false),
		Entry("namespaced, a deletion", NodeTimeout(5*time.Minute), "Namespaced", "DELETE", false),
	)

	It("is orphaned if no version is served (a known limit)", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "unserved")
		createCustom(ctx, custom, custom.object(namespace.Name, "hidden"))
		custom.hide(ctx)
		deleteObject(ctx, namespace)
		expectDeleted(ctx, namespace)

		By("serving the version again")
		updateDefinition(ctx, custom.definition())
		custom.expectServed(ctx)
		resource := newDynamic().Resource(custom.resource()).Namespace(namespace.Name)
		var orphan *unstructured.Unstructured
		Eventually(func() (err error) {
			orphan, err = resource.Get(ctx, "hidden", metav1.GetOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
		Expect(orphan.GetDeletionTimestamp()).To(BeNil())

		By("recreating the namespace, which deletes the orphaned object")
		again := wrappers.MakeNamespace(namespace.Name).Obj()
		create(ctx, again)
		deleteObject(ctx, again)
		expectDeleted(ctx, again)
		expectNothingStored(ctx, custom, namespace.Name)
	}, SpecTimeout(5*time.Minute))
})

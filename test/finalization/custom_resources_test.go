// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// customType is a namespaced resource type that a CRD defines. Its first version is the storage
// version.
type customType struct {
	kind, plural, group string
	versions            []string
}

// makeCustomType returns a custom resource type in a unique group.
func makeCustomType(versions ...string) customType {
	if len(versions) == 0 {
		versions = []string{"v1"}
	}
	return customType{kind: "Widget", plural: "widgets", group: unique("g") + ".test.example.com", versions: versions}
}

// createCustomType creates a CRD, which exists until the spec ends, and waits until its type is
// served.
func createCustomType(ctx context.Context, versions ...string) customType {
	GinkgoHelper()
	result := makeCustomType(versions...)
	result.install(ctx)
	result.expectServed(ctx)
	return result
}

func (t customType) resource() schema.GroupVersionResource { return t.resourceIn(t.versions[0]) }

func (t customType) resourceIn(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: t.group, Version: version, Resource: t.plural}
}

// remaining returns the part of a condition's message that reports count remaining objects of the
// type.
func (t customType) remaining(count int) string {
	return fmt.Sprintf("%s.%s has %d resource instances", t.plural, t.group, count)
}

func (t customType) definition() *unstructured.Unstructured {
	var versions []any
	for i, version := range t.versions {
		versions = append(versions, map[string]any{
			"name": version, "served": true, "storage": i == 0,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			}},
		})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": t.plural + "." + t.group},
		"spec": map[string]any{
			"group": t.group, "scope": "Namespaced", "versions": versions,
			"names": map[string]any{"kind": t.kind, "plural": t.plural},
		},
	}}
}

// install creates the CRD and deletes it when the spec ends.
func (t customType) install(ctx context.Context) {
	GinkgoHelper()
	admin.Creates(ctx, t.definition())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, t.definition()))).To(Succeed())
	})
}

// hide stops serving the only version, and waits until the API server no longer lists the objects.
func (t customType) hide(ctx context.Context) {
	GinkgoHelper()
	hidden := t.definition()
	hidden.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["served"] = false
	updateDefinition(ctx, hidden)
	Eventually(func() error {
		_, err := metadataClient.Resource(t.resource()).List(ctx, metav1.ListOptions{})
		return err
	}).WithContext(ctx).Should(Satisfy(apierrors.IsNotFound))
}

// expectServed waits until the API server serves every version and returns it in discovery.
func (t customType) expectServed(ctx context.Context) {
	GinkgoHelper()
	discoveryClient := newDiscovery(true)
	Eventually(func(g Gomega) {
		groups, err := discoveryClient.ServerGroupsWithContext(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		for _, version := range t.versions {
			_, err := metadataClient.Resource(t.resourceIn(version)).List(ctx, metav1.ListOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(metav1.ExtractGroupVersions(groups)).To(ContainElement(t.group + "/" + version))
			list, err := discoveryClient.ServerResourcesForGroupVersionWithContext(ctx, t.group+"/"+version)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.APIResources).NotTo(BeEmpty())
		}
	}).WithContext(ctx).Should(Succeed())
}

// object returns an object of the type in its first version.
func (t customType) object(namespace, name string) *unstructured.Unstructured {
	return t.objectIn(t.versions[0], namespace, name)
}

func (t customType) objectIn(version, namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": t.group + "/" + version, "kind": t.kind,
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec":     map[string]any{"size": "small"},
	}}
}

// createCustom creates an object with a new client, because the RESTMapper of the existing client
// might not know a new type.
func createCustom(ctx context.Context, t customType, object *unstructured.Unstructured) {
	GinkgoHelper()
	gvr := t.resourceIn(object.GroupVersionKind().Version)
	_, err := newDynamic().Resource(gvr).Namespace(object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("Custom resources", func() {
	It("block finalization with their finalizers while their CRD is terminating", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "crd-held")
		held := withFinalizer(custom.object(namespace.Name, "held"))
		createCustom(ctx, custom, held)
		admin.Deletes(ctx, custom.definition())
		admin.Deletes(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, And(
			HaveRemaining(custom.remaining(1)),
			HaveFinalizersRemaining(testFinalizer+" in 1 resource instances"),
		))
		expectNamespaceFinalizerKept(ctx, namespace)
		framework.RemoveFinalizers(ctx, admin, held)
		framework.ExpectDeleted(ctx, admin, namespace)
		framework.ExpectDeleted(ctx, admin, custom.definition())
		expectNothingStored(ctx, custom, namespace.Name)
	})

	It("are found if the API server serves their version again", func(ctx context.Context) {
		custom := createCustomType(ctx, "v1")
		namespace := createNamespace(ctx, "crd-served-again")
		keeper := withFinalizer(wrappers.MakeConfigMap(namespace.Name, "keeper"))
		admin.Creates(ctx, keeper)
		createCustom(ctx, custom, custom.object(namespace.Name, "hidden"))
		By("disabling the version, which hides its stored objects")
		custom.hide(ctx)

		admin.Deletes(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 1"))
		updateDefinition(ctx, custom.definition())
		custom.expectServed(ctx)
		framework.RemoveFinalizers(ctx, admin, keeper)
		framework.ExpectDeleted(ctx, admin, namespace)
		expectNothingStored(ctx, custom, namespace.Name)
	})
})

// expectNothingStored checks that storage contains no object of a custom type in a namespace. If
// the CRD was deleted, it creates the CRD again. The type then has the same path in storage.
func expectNothingStored(ctx context.Context, custom customType, namespace string) {
	GinkgoHelper()
	Expect(client.IgnoreAlreadyExists(admin.Create(ctx, custom.definition()))).To(Succeed())
	custom.expectServed(ctx)
	Eventually(func(g Gomega) {
		// The API server can stop serving the deleted CRD after this one was created.
		names, err := namesOf(ctx, custom.resource(), sets.New(namespace))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(names).To(BeEmpty(), "orphaned in storage")
	}).WithContext(ctx).Should(Succeed())
	expectNoObjects(ctx, namespace)
}

// The author of a CustomResourceDefinition can delete it and create it again at any time.
var _ = Describe("A custom resource type that is redefined during a finalization", func() {
	DescribeTable("keeps the new objects with the names of the old ones while a request is in flight:",
		func(ctx context.Context, scope, method string) {
			cluster.PauseManager()
			custom := createCustomType(ctx)
			namespace, other := createNamespace(ctx, "redefined"), createNamespace(ctx, "other")
			names := []string{"a", "b", namespace.Name}
			for _, name := range names {
				createCustom(ctx, custom, custom.object(namespace.Name, name))
			}
			admin.Deletes(ctx, namespace)
			blocked := newRequestBlocker(func(request *http.Request) bool {
				return request.Method == method && request.URL.Query().Get("watch") == "" &&
					strings.Contains(request.URL.Path, "/apis/"+custom.group+"/v1/namespaces/"+namespace.Name+"/widgets")
			})
			startManager(ctx, blocked.wrap(managerConfig(ctx)), withGracePeriod(0))
			Eventually(blocked.arrived).WithContext(ctx).Should(BeClosed())

			By("redefining the type")
			admin.Deletes(ctx, custom.definition())
			framework.ExpectDeleted(ctx, admin, custom.definition())
			definition := custom.definition()
			definition.Object["spec"].(map[string]any)["scope"] = scope
			admin.Creates(ctx, definition)
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
			framework.ExpectDeleted(ctx, admin, namespace)
			for _, name := range names {
				now, err := newDynamic().Resource(custom.resource()).Namespace(in).Get(ctx, name, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(now.GetUID()).To(Equal(uids[name]))
				Expect(now.GetDeletionTimestamp()).To(BeNil())
			}
			admin.Deletes(ctx, other)
			framework.ExpectDeleted(ctx, admin, other)
		},
		// Each entry takes about 10 s: the API server delays the first objects of a CRD.
		Entry("cluster-scoped, a list, before it is sent", NodeTimeout(5*time.Minute), "Cluster", "GET"),
		Entry("cluster-scoped, a deletion", NodeTimeout(5*time.Minute), "Cluster", "DELETE"),
		Entry("namespaced, a deletion", NodeTimeout(5*time.Minute), "Namespaced", "DELETE"),
	)

	It("is orphaned if no version is served (a known limit)", func(ctx context.Context) {
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "unserved")
		createCustom(ctx, custom, custom.object(namespace.Name, "hidden"))
		custom.hide(ctx)
		admin.Deletes(ctx, namespace)
		framework.ExpectDeleted(ctx, admin, namespace)

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
		admin.Creates(ctx, again)
		admin.Deletes(ctx, again)
		framework.ExpectDeleted(ctx, admin, again)
		expectNothingStored(ctx, custom, namespace.Name)
	}, SpecTimeout(5*time.Minute))
})

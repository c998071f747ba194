// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
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
	create(ctx, t.definition())
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

func newClientset() kubernetes.Interface {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(controlplane.Unlimited(plane.Admin))
	Expect(err).NotTo(HaveOccurred())
	return clientset
}

// newDiscovery returns a client that requests the aggregated discovery document, as the manager
// does, or, if isLegacy is set, each group separately.
func newDiscovery(isLegacy bool) *discovery.DiscoveryClient {
	GinkgoHelper()
	result, err := discovery.NewDiscoveryClientForConfig(controlplane.Unlimited(plane.Admin))
	Expect(err).NotTo(HaveOccurred())
	result.UseLegacyDiscovery = isLegacy
	return result
}

func newDynamic() dynamic.Interface {
	GinkgoHelper()
	result, err := dynamic.NewForConfig(controlplane.Unlimited(plane.Admin))
	Expect(err).NotTo(HaveOccurred())
	return result
}

// namespacedTypes returns the namespaced resource types that support all given verbs. It uses
// legacy discovery, so that it does not depend on the manager's implementation.
func namespacedTypes(ctx context.Context, verbs ...string) map[schema.GroupVersionResource]metav1.APIResource {
	GinkgoHelper()
	var lists []*metav1.APIResourceList
	// Discovery might still return the group of a type that another spec has just deleted.
	Eventually(func() (err error) {
		lists, err = newDiscovery(true).ServerPreferredNamespacedResourcesWithContext(ctx)
		return err
	}).WithContext(ctx).Should(Succeed())
	result := map[schema.GroupVersionResource]metav1.APIResource{}
	for _, list := range lists {
		groupVersion, err := schema.ParseGroupVersion(list.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		for _, resource := range list.APIResources {
			if sets.New(resource.Verbs...).HasAll(verbs...) {
				result[groupVersion.WithResource(resource.Name)] = resource
			}
		}
	}
	return result
}

// expectNoObjects checks that storage contains no objects in namespaces that no longer exist. It
// lists each type in all namespaces.
func expectNoObjects(ctx context.Context, namespaces ...string) {
	GinkgoHelper()
	wanted := sets.New(namespaces...)
	Eventually(func(g Gomega) {
		for gvr := range namespacedTypes(ctx, "list", "delete") {
			names, err := namesOf(ctx, gvr, wanted)
			Expect(names).To(BeEmpty(), "remaining %s", gvr)
			// Another spec might have just deleted the type.
			g.Expect(err).NotTo(HaveOccurred())
		}
	}).WithContext(ctx).Should(Succeed())
}

// namesOf returns the names of the objects in the given namespaces. It uses a paginated
// cluster-wide list.
func namesOf(ctx context.Context, gvr schema.GroupVersionResource, namespaces sets.Set[string]) ([]string, error) {
	var names []string
	options := metav1.ListOptions{Limit: 1000}
	for {
		list, err := metadataClient.Resource(gvr).List(ctx, options)
		if err != nil {
			return names, err
		}
		for _, item := range list.Items {
			if namespaces.Has(item.Namespace) {
				names = append(names, item.Namespace+"/"+item.Name)
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return names, nil
		}
	}
}

// parallel calls f with the numbers from 0 to count-1, with limited concurrency, and returns the
// joined errors.
func parallel(count int, f func(int) error) error {
	GinkgoHelper()
	const workers = 20
	var group sync.WaitGroup
	errs := make([]error, workers)
	for worker := range workers {
		group.Go(func() {
			for i := worker; i < count && errs[worker] == nil; i += workers {
				errs[worker] = f(i)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// expectNamespaceFinalizerKept checks that a namespace is not finalized.
func expectNamespaceFinalizerKept(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		now := get(g, ctx, namespace.Name)
		g.Expect(now.UID).To(Equal(namespace.UID))
		g.Expect(now.Spec.Finalizers).To(ContainElement(corev1.FinalizerKubernetes))
	}).WithContext(ctx).Should(Succeed())
}

// expectEvent waits for an Event about a namespace.
func expectEvent(ctx context.Context, namespace *corev1.Namespace, eventType, reason, text string) {
	GinkgoHelper()
	clientset := newClientset()
	Eventually(func(g Gomega) {
		list, err := clientset.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + namespace.Name,
		})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(slices.ContainsFunc(list.Items, func(event corev1.Event) bool {
			return event.Type == eventType && event.Reason == reason && strings.Contains(event.Message, text) &&
				event.InvolvedObject.UID == namespace.UID
		})).To(BeTrue(), "no Event %s %s %q among %v", eventType, reason, text, list.Items)
	}).WithContext(ctx).Should(Succeed())
}

// fromJSON parses an object in JSON.
func fromJSON(text string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(json.Unmarshal([]byte(text), &object.Object)).To(Succeed(), text)
	return object
}

func keyOf(object client.Object) client.ObjectKey { return client.ObjectKeyFromObject(object) }

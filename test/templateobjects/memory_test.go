// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	// largeObjects objects with largeValue bytes each are 25 MiB, of which the manager may keep maxKept. Everything else
	// that a started manager allocates is also less than this.
	largeObjects = 100
	largeValue   = 250 << 10
	maxKept      = 15 << 20
)

// liveHeap returns the bytes that this process uses.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // Finalizers of the first run release more.
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

var _ = Describe("The memory of the manager", Serial, func() {
	// Each entry creates 25 MiB of objects.
	DescribeTable("does not grow with what users write",
		func(ctx context.Context, newObject func(index int, namespace *corev1.Namespace, value string) client.Object) {
			created := newTemplate(framework.Unique("memory"), only("config", configMap("config", "a")))
			create(ctx, created)
			namespace := selectedBy(created.Name)
			createOpen(ctx, namespace)
			value := strings.Repeat("x", largeValue)
			for i := range largeObjects {
				object := newObject(i, namespace, value)
				Expect(cluster.Admin.Create(ctx, object)).To(Succeed())
				DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, object)).To(Succeed()) })
			}
			cluster.StopManager()
			without := liveHeap()
			cluster.StartManager(ctx)
			change(ctx, created.Name, only("config", configMap("config", "b")))
			expectValue(ctx, namespace, "config", "b")
			Eventually(func() int64 { return liveHeap() - without }).WithContext(ctx).WithTimeout(time.Minute).
				Should(BeNumerically("<", maxKept))
		},
		Entry("to annotations of objects with the label of a template",
			func(index int, namespace *corev1.Namespace, value string) client.Object {
				return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace.Name, Name: fmt.Sprintf("large-%d", index),
					Labels:      map[string]string{v1alpha1.LabelTemplate: "any"},
					Annotations: map[string]string{v1alpha1.AnnotationNamespaceUID: value},
				}}
			}),
		Entry("to their managedFields",
			func(index int, namespace *corev1.Namespace, value string) client.Object {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace.Name, Name: fmt.Sprintf("large-%d", index),
					Labels: map[string]string{v1alpha1.LabelTemplate: "any"},
				}}
				for i := range 8 {
					object.ManagedFields = append(object.ManagedFields, metav1.ManagedFieldsEntry{
						Manager: template.FieldManager(fmt.Sprint(i)), Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1",
						FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:` + value[:largeValue/8] + `":{}}}`),
					})
				}
				return object
			}),
		Entry("to annotations of namespaces", func(_ int, _ *corev1.Namespace, value string) client.Object {
			return wrappers.MakeNamespace(framework.Unique("large")).Annotation("example.com/value", value).Obj()
		}),
		Entry("to labels of namespaces", func(_ int, _ *corev1.Namespace, value string) client.Object {
			wrapper := wrappers.MakeNamespace(framework.Unique("large"))
			for i := range largeValue / 300 {
				wrapper.Label(fmt.Sprintf("%s.%d/x", value[:60]+"."+value[:60]+"."+value[:60]+"."+value[:40], i), value[:63])
			}
			return wrapper.Obj()
		}),
	)
})

var _ = Describe("A namespace that is too large for the cache", func() {
	It("gets the same templates as others, and follows changes of its labels", func(ctx context.Context) {
		created := newTemplate(framework.Unique("oversized"), only("config",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"key":"${ns.labels['size']}"}}`),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ExistingNamespaces = true })
		create(ctx, created)
		namespace := selectedBy(created.Name)
		namespace.Labels["size"] = "s"
		namespace.Annotations = map[string]string{"example.com/value": strings.Repeat("x", 100<<10)}
		createOpen(ctx, namespace)
		expectValue(ctx, namespace, "config", "s")
		patchNamespace(ctx, namespace, `{"metadata":{"labels":{"size":"m"}}}`)
		expectValue(ctx, namespace, "config", "m")
		change(ctx, created.Name, only("config", configMap("config", "other")))
		expectValue(ctx, namespace, "config", "other")
		Expect(cluster.Admin.Delete(ctx, get(ctx, namespace, "config", &corev1.ConfigMap{}))).To(Succeed())
		expectValue(ctx, namespace, "config", "other")
		expectCondition(ctx, created.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
		By("the deletion of the label, after which it contains nothing of the template")
		change(ctx, created.Name, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Removal.OnUnmatch = v1alpha1.RemovalPrune })
		patchNamespace(ctx, namespace, `{"metadata":{"labels":{"kind":null}}}`)
		expectDeleted(ctx, namespace, "config")
		By("a label that arrives later")
		patchNamespace(ctx, namespace, `{"metadata":{"labels":{"kind":"`+created.Name+`"}}}`)
		expectValue(ctx, namespace, "config", "other")
	})
})

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0
package templateobjects

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// onceFor returns a function that is called in the first request that matches.
func onceFor(matches func(*http.Request) bool, call func()) func(*http.Request) fault {
	var once sync.Once
	return func(request *http.Request) fault {
		if matches(request) {
			once.Do(call)
		}
		return noFault
	}
}

func oneWithSize(spec *v1alpha1.NamespaceTemplateSpec) {
	only("config", configMap("config", "${params.size}"))(spec)
}

var _ = Describe("A namespace that is recreated while its objects are applied", func() {
	AfterEach(restoreManager)

	DescribeTable("gets only its own objects",
		func(ctx context.Context, isSelected bool) {
			template := newTemplate(framework.Unique("recreated"), oneWithSize)
			create(ctx, template)
			name := framework.Unique("ns")
			held, release := make(chan struct{}), make(chan struct{})
			restartManager(ctx, onceFor(func(request *http.Request) bool {
				return request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, name+"/configmaps/config")
			}, func() {
				close(held)
				<-release
			}))
			old := wrappers.MakeNamespace(name).Label("kind", template.Name).Obj()
			Expect(creator.Create(ctx, old)).To(Succeed())
			Eventually(held).WithContext(ctx).Should(BeClosed())
			Expect(creator.Delete(ctx, old)).To(Succeed())
			framework.ExpectDeleted(ctx, cluster.Admin, old)
			recreated := wrappers.MakeNamespace(name)
			if isSelected {
				recreated.Label("kind", template.Name).Annotation(v1alpha1.PrefixParameter+"size", "l")
			}
			namespace := recreated.Obj()
			Expect(creator.Create(ctx, namespace)).To(Succeed())
			close(release)
			expectOpen(ctx, namespace)
			if isSelected {
				object := get(ctx, namespace, "config", &corev1.ConfigMap{})
				Expect(object.Data).To(HaveKeyWithValue("key", "l"))
				Expect(object.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationNamespaceUID, string(namespace.UID)))
				return
			}
			Consistently(func() map[string]metav1.ObjectMeta { return objectsOf(ctx, namespace) }).WithContext(ctx).
				Should(BeEmpty())
		},
		Entry("if it is selected with other parameters", true),
		Entry("if it is not selected any more", false),
	)
})

var _ = Describe("A stale cache", func() {
	AfterEach(restoreManager)

	two := func(spec *v1alpha1.NamespaceTemplateSpec) {
		oneWithSize(spec)
		spec.Objects = append(spec.Objects, objectNamed("two", configMap("two", "a")))
		spec.Removal.OnUnmatch = v1alpha1.RemovalPrune
	}

	// The operator has decided to delete. Then the cause of the deletion is reverted, and the operator does
	// not get the event.
	DescribeTable("does not make the operator delete objects",
		func(ctx context.Context, confirmed, resource string, cause, revert func(ctx context.Context, template string, namespace *corev1.Namespace)) {
			template := newTemplate(framework.Unique("stale"), two)
			create(ctx, template)
			namespace := selectedBy(template.Name)
			createOpen(ctx, namespace)
			before := uidsOf(objectsOf(ctx, namespace))
			Expect(before).To(HaveLen(2))
			intercepted := restartManager(ctx, nil)
			expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
			path := confirmed + map[string]string{"namespaces": namespace.Name, "namespacetemplates": template.Name}[resource]
			reverted := make(chan struct{})
			var resume func()
			var hasDeleted atomic.Bool
			revertOnce := onceFor(func(request *http.Request) bool {
				return request.Method == http.MethodGet && request.URL.Path == path
			}, func() {
				defer GinkgoRecover()
				resume = intercepted.pause(resource)
				revert(ctx, template.Name, namespace)
				close(reverted)
			})
			intercepted.set(func(request *http.Request) fault {
				if request.Method == http.MethodDelete && strings.Contains(request.URL.Path, namespace.Name) {
					hasDeleted.Store(true)
				}
				return revertOnce(request)
			})
			cause(ctx, template.Name, namespace)
			Eventually(reverted).WithContext(ctx).Should(BeClosed())
			Consistently(hasDeleted.Load).WithContext(ctx).Should(BeFalse())
			resume()
			expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
			Expect(uidsOf(objectsOf(ctx, namespace))).To(Equal(before))
			Expect(hasDeleted.Load()).To(BeFalse())
		},
		Entry("of a namespace that is selected again", "/api/v1/namespaces/", "namespaces", relabel,
			func(ctx context.Context, template string, namespace *corev1.Namespace) {
				patchNamespace(ctx, namespace, `{"metadata":{"labels":{"kind":"`+template+`"}}}`)
			}),
		Entry("of a template that contains them again", "/apis/nslifecycle.dev/v1alpha1/namespacetemplates/",
			"namespacetemplates",
			func(ctx context.Context, template string, _ *corev1.Namespace) { change(ctx, template, oneWithSize) },
			func(ctx context.Context, template string, _ *corev1.Namespace) { change(ctx, template, two) }),
	)

	It("does not make the operator skip the rollout of a template that is changed when a namespace opens", func(ctx context.Context) {
		template := newTemplate(framework.Unique("opens"), only("config", configMap("config", "a")))
		create(ctx, template)
		namespace := selectedBy(template.Name)
		name := namespace.Name
		intercepted := restartManager(ctx, nil)
		var resume func()
		intercepted.set(onceFor(func(request *http.Request) bool {
			return strings.HasSuffix(request.URL.Path, "/namespaces/"+name+"/status") && contains(request, v1alpha1.AnnotationTemplates)
		}, func() { resume = intercepted.pause("namespaces") }))
		createOpen(ctx, namespace)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "b"))(spec)
			spec.Rollout.Paused = true
		})
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "New namespaces get")
		resume()
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "0 of 1", "New namespaces get")
		expectValue(ctx, namespace, "config", "a")
	})

	It("does not make the operator restore an object again, or report a conflict", func(ctx context.Context) {
		template := newTemplate(framework.Unique("lag"), two)
		create(ctx, template)
		namespace := selectedBy(template.Name)
		createOpen(ctx, namespace)
		intercepted := restartManager(ctx, nil)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
		resume := intercepted.pause("namespaces")
		intercepted.sent()
		overwrite := func(name string) {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"key":"theirs"}}`))
			Expect(cluster.Admin.Patch(ctx, get(ctx, namespace, name, &corev1.ConfigMap{}), patch)).To(Succeed())
		}
		overwrite("config")
		expectValue(ctx, namespace, "config", "s")
		overwrite("two")
		var requests []string
		Consistently(func(g Gomega) {
			requests = append(requests, writes(intercepted.sent())...)
			g.Expect(len(requests)).To(BeNumerically("<=", 4), "at most two objects, and the namespace twice: %v", requests)
		}).WithContext(ctx).Should(Succeed())
		resume()
		expectValue(ctx, namespace, "two", "a")
		expectCondition(ctx, template.Name, v1alpha1.ConditionConflicted, metav1.ConditionFalse)
	})
})

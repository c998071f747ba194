// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// objectsOf returns the metadata of the objects in a Namespace that have the label of a template, by kind.
func objectsOf(ctx context.Context, namespace *corev1.Namespace) map[string]metav1.ObjectMeta {
	GinkgoHelper()
	found := map[string]metav1.ObjectMeta{}
	for kind, group := range map[string]metav1.GroupVersion{
		"ConfigMap": {Version: "v1"}, "LimitRange": {Version: "v1"}, "ResourceQuota": {Version: "v1"},
		"Secret": {Version: "v1"}, "Service": {Version: "v1"},
		"NetworkPolicy": metav1.GroupVersion(networkingv1.SchemeGroupVersion),
		"RoleBinding":   metav1.GroupVersion(rbacv1.SchemeGroupVersion),
	} {
		list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{
			APIVersion: group.String(), Kind: kind + "List",
		}}
		Expect(cluster.Admin.List(ctx, list, client.InNamespace(namespace.Name),
			client.HasLabels{v1alpha1.LabelManagedByTemplate})).To(Succeed())
		for _, object := range list.Items {
			found[kind+"/"+object.Name] = object.ObjectMeta
		}
	}
	return found
}

func uidsOf(objects map[string]metav1.ObjectMeta) map[string]types.UID {
	uids := map[string]types.UID{}
	for name, object := range objects {
		uids[name] = object.UID
	}
	return uids
}

var _ = Describe("A restarted operator", func() {
	AfterEach(restoreManager)

	It("writes nothing where nothing has changed, also in full passes", func(ctx context.Context) {
		template := createTemplate(ctx, "restart")
		namespaces := make([]*corev1.Namespace, 8)
		for i := range namespaces {
			namespaces[i] = selectedBy(template.Name)
			creator.Creates(ctx, namespaces[i])
		}
		for _, namespace := range namespaces {
			expectInitialized(ctx, namespace)
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 8")
		versions := func() []string {
			current := getTemplate(Default, ctx, template.Name)
			versions := []string{current.ResourceVersion}
			for _, namespace := range namespaces {
				current := cluster.GetNamespace(Default, ctx, namespace.Name)
				versions = append(versions, current.ResourceVersion)
				objects := objectsOf(ctx, namespace)
				Expect(objects).To(HaveLen(4))
				for _, name := range []string{"LimitRange/team", "ResourceQuota/team", "NetworkPolicy/default-deny", "RoleBinding/owner"} {
					versions = append(versions, objects[name].ResourceVersion)
				}
			}
			return versions
		}
		var before []string
		Eventually(func(g Gomega) {
			last := before
			before = versions()
			g.Expect(before).To(Equal(last), "the operator has not finished its writes")
		}).WithContext(ctx).WithPolling(2 * time.Second).Should(Succeed())
		cluster.StopManager()
		intercepted := restartManager(ctx, nil, func(o *manager.Options) { o.TemplateFullPass = 500 * time.Millisecond })
		compared := 0
		Eventually(func(g Gomega) {
			requests := intercepted.sent()
			compared += countContaining(requests[:len(requests):len(requests)], "dryRun=All")
			g.Expect(compared).To(BeNumerically(">=", 3*4*len(namespaces)))
		}).WithContext(ctx).Should(Succeed())
		Expect(versions()).To(Equal(before))
		By("an unrelated label")
		for _, namespace := range namespaces {
			cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"unrelated":"x"}}}`)
		}
		intercepted.sent()
		touched := versions()
		Consistently(func() []string { return writes(intercepted.sent()) }).WithContext(ctx).Should(BeEmpty())
		Expect(versions()).To(Equal(touched))
	})

	// The operator is restarted ten times.
	It("completes a new namespace, whichever of its writes was the last one", func(ctx context.Context) {
		created := createTemplate(ctx, "kill")
		// The writes are four objects and the Namespace.
		for executed := range int32(5) {
			for _, happens := range []fault{notSent, notAnswered} {
				namespace := selectedBy(created.Name)
				name := namespace.Name // Create writes to the Namespace while the manager runs.
				killed := make(chan struct{})
				var count atomic.Int32
				restartManager(ctx, func(request *http.Request) fault {
					if !isTemplateWrite(request, name) {
						return noFault
					}
					switch number := count.Add(1); {
					case number <= executed:
						return noFault
					case number == executed+1:
						defer close(killed)
						return happens
					}
					return notSent
				})
				creator.Creates(ctx, namespace)
				Eventually(killed).WithContext(ctx).Should(BeClosed())
				restartManager(ctx, nil)
				expectInitialized(ctx, namespace)
				state, err := template.ParseRecord(namespace)
				Expect(err).NotTo(HaveOccurred())
				objects := objectsOf(ctx, namespace)
				Expect(objects).To(HaveLen(4))
				recorded := map[string]types.UID{}
				for _, object := range state[created.Name].Objects {
					Expect(object.IsAdopted).To(BeFalse())
					recorded[object.Kind.Kind+"/"+object.Name] = object.UID
				}
				Expect(uidsOf(objects)).To(Equal(recorded))
			}
		}
	})

	It("does not delete objects that existed before, if it stopped before it recorded them", func(ctx context.Context) {
		created := newTemplate(framework.Unique("adopted"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Scope = v1alpha1.ScopeAllNamespaces })
		namespace := framework.CreateAs(ctx, cluster.Admin, selectedBy(created.Name))
		existing := newConfig(namespace.Name, "config", "a")
		Expect(cluster.Admin.Create(ctx, existing, client.FieldOwner("earlier"))).To(Succeed())
		applied := make(chan struct{})
		var isApplied atomic.Bool
		restartManager(ctx, func(request *http.Request) fault {
			if !isTemplateWrite(request, namespace.Name) {
				return noFault
			}
			if isApplied.CompareAndSwap(false, true) {
				defer close(applied)
				return notAnswered
			}
			return notSent
		})
		create(ctx, created)
		Eventually(applied).WithContext(ctx).Should(BeClosed())
		restartManager(ctx, nil)
		expectCondition(ctx, created.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
		change(ctx, created.Name, only("other", configMap("other", "b")))
		expectValue(ctx, namespace, "other", "b")
		expectCondition(ctx, created.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
		Expect(getConfig(ctx, namespace, "config").UID).To(Equal(existing.UID))
	})

	It("restores an object without a conflict, however often the record of it fails", func(ctx context.Context) {
		created := createTemplate(ctx, "unrecorded", only("config", configMap("config", "a")))
		namespace := framework.CreateAs(ctx, creator, selectedBy(created.Name))
		expectInitialized(ctx, namespace)
		var failures atomic.Int32
		restartManager(ctx, func(request *http.Request) fault {
			isRecord := isTemplateWrite(request, namespace.Name) && strings.HasSuffix(request.URL.Path, "/status")
			if isRecord && failures.Add(1) <= 6 {
				return notSent
			}
			return noFault
		})
		deleted := getConfig(ctx, namespace, "config")
		cluster.Admin.Deletes(ctx, deleted)
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
			state, err := template.ParseRecord(namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(state[created.Name].Objects).To(HaveExactElements(
				HaveField("UID", objectsOf(ctx, namespace)["ConfigMap/config"].UID)))
		}).WithContext(ctx).Should(Succeed())
		Expect(failures.Load()).To(BeNumerically(">", 6))
		expectCondition(ctx, created.Name, v1alpha1.ConditionConflicted, metav1.ConditionFalse)
	})
})

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
			template := createTemplate(ctx, "recreated", oneWithSize)
			name := framework.Unique("ns")
			held, release := make(chan struct{}), make(chan struct{})
			restartManager(ctx, onceFor(func(request *http.Request) bool {
				return request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, name+"/configmaps/config")
			}, func() {
				close(held)
				<-release
			}))
			old := framework.CreateAs(ctx, creator, wrappers.MakeNamespace(name).Label("kind", template.Name).Obj())
			Eventually(held).WithContext(ctx).Should(BeClosed())
			creator.Deletes(ctx, old)
			framework.ExpectDeleted(ctx, cluster.Admin, old)
			recreated := wrappers.MakeNamespace(name)
			if isSelected {
				recreated.Label("kind", template.Name).Annotation(v1alpha1.PrefixParameter+"size", "l")
			}
			namespace := recreated.Obj()
			creator.Creates(ctx, namespace)
			close(release)
			expectInitialized(ctx, namespace)
			if isSelected {
				object := getConfig(ctx, namespace, "config")
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
		spec.ObjectRetentionPolicy.WhenDeselected = v1alpha1.RetentionDelete
	}

	// The operator has decided to delete. Then the cause of the deletion is reverted, and the operator does
	// not get the event.
	DescribeTable("does not make the operator delete objects",
		func(ctx context.Context, confirmed, resource string, cause, revert func(ctx context.Context, template string, namespace *corev1.Namespace)) {
			template, namespace := createSelecting(ctx, "stale", two)
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
				cluster.Admin.Patches(ctx, namespace.DeepCopy(), `{"metadata":{"labels":{"kind":"`+template+`"}}}`)
			}),
		Entry("of a template that contains them again", "/apis/nslifecycle.dev/v1alpha1/namespacetemplates/",
			"namespacetemplates",
			func(ctx context.Context, template string, _ *corev1.Namespace) { change(ctx, template, oneWithSize) },
			func(ctx context.Context, template string, _ *corev1.Namespace) { change(ctx, template, two) }),
	)

	It("does not make the operator skip the rollout of a template that is changed when a namespace becomes initialized", func(ctx context.Context) {
		template := createTemplate(ctx, "initialized", only("config", configMap("config", "a")))
		namespace := selectedBy(template.Name)
		name := namespace.Name
		intercepted := restartManager(ctx, nil)
		var resume func()
		intercepted.set(onceFor(func(request *http.Request) bool {
			return strings.HasSuffix(request.URL.Path, "/namespaces/"+name+"/status") && contains(request, v1alpha1.AnnotationAppliedTemplates)
		}, func() { resume = intercepted.pause("namespaces") }))
		createInitialized(ctx, namespace)
		change(ctx, template.Name, func(spec *v1alpha1.NamespaceTemplateSpec) {
			only("config", configMap("config", "b"))(spec)
			spec.Rollout.Paused = true
		})
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionUnknown, "New namespaces get")
		resume()
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionUnknown, "0 of 1", "New namespaces get")
		expectValue(ctx, namespace, "config", "a")
	})

	It("does not make the operator restore an object again, or report a conflict", func(ctx context.Context) {
		template, namespace := createSelecting(ctx, "lag", two)
		intercepted := restartManager(ctx, nil)
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 1")
		resume := intercepted.pause("namespaces")
		intercepted.sent()
		overwrite := func(name string) {
			patch := framework.MergePatch(`{"data":{"key":"theirs"}}`)
			Expect(cluster.Admin.Patch(ctx, getConfig(ctx, namespace, name), patch)).To(Succeed())
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

var _ = Describe("An object of another owner that prevents an object of a template", func() {
	AfterEach(restoreManager)

	// The delays add up to more than five seconds before they reach their limit.
	It("delays the object by at most five seconds after its deletion", func(ctx context.Context) {
		intercepted := restartManager(ctx, nil)
		template := newTemplate(framework.Unique("blocked"), only("config", configMap("config", "ours")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Scope = v1alpha1.ScopeAllNamespaces })
		namespace := framework.CreateAs(ctx, cluster.Admin, selectedBy(template.Name))
		blocking := framework.CreateAs(ctx, cluster.Admin, newConfig(namespace.Name, "config", "theirs"))
		create(ctx, template)
		attempts := 0
		Eventually(func() int {
			attempts += countContaining(intercepted.sent(), "/namespaces/"+namespace.Name+"/configmaps/config")
			return attempts
		}).WithContext(ctx).Should(BeNumerically(">=", 13))
		cluster.Admin.Deletes(ctx, blocking)
		deleted := time.Now()
		expectValue(ctx, namespace, "config", "ours")
		Expect(time.Since(deleted)).To(BeNumerically("<", 15*time.Second))
	})
})

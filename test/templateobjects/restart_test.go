// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0
package templateobjects

import (
	"context"
	"net/http"
	"strings"
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
			client.HasLabels{v1alpha1.LabelTemplate})).To(Succeed())
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

func patchNamespace(ctx context.Context, namespace *corev1.Namespace, patch string) {
	GinkgoHelper()
	Expect(cluster.Admin.Patch(ctx, namespace.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

var _ = Describe("A restarted operator", func() {
	AfterEach(restoreManager)

	It("writes nothing where nothing has changed, also in full passes", func(ctx context.Context) {
		template := newTemplate(framework.Unique("restart"))
		create(ctx, template)
		namespaces := make([]*corev1.Namespace, 20)
		for i := range namespaces {
			namespaces[i] = selectedBy(template.Name)
			Expect(creator.Create(ctx, namespaces[i])).To(Succeed())
		}
		for _, namespace := range namespaces {
			expectOpen(ctx, namespace)
		}
		expectCondition(ctx, template.Name, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "All 20")
		versions := func() []string {
			current := &v1alpha1.NamespaceTemplate{}
			Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), current)).To(Succeed())
			versions := []string{current.ResourceVersion}
			for _, namespace := range namespaces {
				current := &corev1.Namespace{}
				Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), current)).To(Succeed())
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
			patchNamespace(ctx, namespace, `{"metadata":{"labels":{"unrelated":"x"}}}`)
		}
		intercepted.sent()
		touched := versions()
		Consistently(func() []string { return writes(intercepted.sent()) }).WithContext(ctx).Should(BeEmpty())
		Expect(versions()).To(Equal(touched))
	})

	// The operator is restarted ten times.
	It("completes a new namespace, whichever of its writes was the last one", func(ctx context.Context) {
		created := newTemplate(framework.Unique("kill"))
		create(ctx, created)
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
				Expect(creator.Create(ctx, namespace)).To(Succeed())
				Eventually(killed).WithContext(ctx).Should(BeClosed())
				restartManager(ctx, nil)
				expectOpen(ctx, namespace)
				state, err := template.ParseState(namespace)
				Expect(err).NotTo(HaveOccurred())
				objects := objectsOf(ctx, namespace)
				Expect(objects).To(HaveLen(4))
				recorded := map[string]types.UID{}
				for _, object := range state[created.Name].Objects {
					Expect(object.IsAdopted).To(BeFalse())
					recorded[object.Kind+"/"+object.ObjectName] = object.UID
				}
				Expect(uidsOf(objects)).To(Equal(recorded))
			}
		}
	})

	It("does not delete objects that existed before, if it stopped before it recorded them", func(ctx context.Context) {
		created := newTemplate(framework.Unique("adopted"), only("config", configMap("config", "a")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ExistingNamespaces = true })
		namespace := selectedBy(created.Name)
		Expect(cluster.Admin.Create(ctx, namespace)).To(Succeed())
		existing := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "config"}, Data: map[string]string{"key": "a"},
		}
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
		Expect(get(ctx, namespace, "config", &corev1.ConfigMap{}).UID).To(Equal(existing.UID))
	})

	It("restores an object without a conflict, however often the record of it fails", func(ctx context.Context) {
		created := newTemplate(framework.Unique("unrecorded"), only("config", configMap("config", "a")))
		create(ctx, created)
		namespace := selectedBy(created.Name)
		Expect(creator.Create(ctx, namespace)).To(Succeed())
		expectOpen(ctx, namespace)
		var failures atomic.Int32
		restartManager(ctx, func(request *http.Request) fault {
			isRecord := isTemplateWrite(request, namespace.Name) && strings.HasSuffix(request.URL.Path, "/status")
			if isRecord && failures.Add(1) <= 6 {
				return notSent
			}
			return noFault
		})
		deleted := get(ctx, namespace, "config", &corev1.ConfigMap{})
		Expect(cluster.Admin.Delete(ctx, deleted)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
			state, err := template.ParseState(namespace)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(state[created.Name].Objects).To(HaveExactElements(
				HaveField("UID", objectsOf(ctx, namespace)["ConfigMap/config"].UID)))
		}).WithContext(ctx).Should(Succeed())
		Expect(failures.Load()).To(BeNumerically(">", 6))
		expectCondition(ctx, created.Name, v1alpha1.ConditionConflicted, metav1.ConditionFalse)
	})
})

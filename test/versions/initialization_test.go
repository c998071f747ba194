// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// The names of the initializers.
const (
	rbac  = "rbac.corp.example.com"
	quota = "quota.corp.example.com"
)

const list = rbac + "," + quota

var _ = Describe("A new namespace", func() {
	It("gets the pending list, and accepts writes only from initializers", func(ctx context.Context) {
		register(ctx, "creation", rbac, quota)
		namespace := createInjected(ctx, unique("creation"))
		Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPendingInitializers, list))
		Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationInitializers, list))
		if byOperator {
			Expect(namespace.Annotations).To(HaveKey(v1alpha1.AnnotationInjectedAt))
			Expect(namespace.Annotations).NotTo(HaveKey(v1alpha1.AnnotationRequestedBy))
		} else {
			Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, ordinaryUser))
			Expect(namespace.Annotations).NotTo(HaveKey(v1alpha1.AnnotationInjectedAt))
		}
		// The gate reads the Namespace from the API server's watch cache, which can be stale.
		Eventually(func() error {
			return ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "early"), client.DryRunAll)
		}).WithContext(ctx).Should(BeDeniedBy("gate", namespace.Name, "pending: "+rbac+", "+quota+"."))
		Expect(initializer.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "theirs"))).To(Succeed())
	})

	It("rejects writes with a message that names at most five pending initializers", func(ctx context.Context) {
		names := []string{"a", "b", "c", "d", "e", "f", "g"}
		for i := range names {
			names[i] += ".corp.example.com"
		}
		register(ctx, "many", names...)
		namespace := createInjected(ctx, unique("many"))
		Eventually(func() error {
			return ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "early"), client.DryRunAll)
		}).WithContext(ctx).Should(BeDeniedBy("gate", "e.corp.example.com and 2 more."))
	})

	It("is initialized in order, and accepts writes afterwards", func(ctx context.Context) {
		register(ctx, "order", rbac, quota)
		var lock sync.Mutex
		var order []string
		ours := unique("order")
		for _, name := range []string{quota, rbac} {
			serve(ctx, name, func(_ context.Context, _ kubernetes.Interface, namespace *corev1.Namespace) error {
				lock.Lock()
				defer lock.Unlock()
				// The initializers also initialize namespaces of earlier specs.
				if namespace.Name == ours && !slices.Contains(order, name) {
					order = append(order, name)
				}
				return nil
			})
		}
		create(ctx, ours)
		namespace := expectWritable(ctx, ours, v1alpha1.ReasonCompleted)
		Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationInitializers, list))
		lock.Lock()
		defer lock.Unlock()
		Expect(order).To(Equal([]string{rbac, quota}))
		Eventually(func(g Gomega) {
			g.Expect(eventReasons(g, ctx, ours)).To(ContainElement("Initialized"))
		}).WithContext(ctx).Should(Succeed())
		Expect(eventReasons(Default, ctx, ours)).NotTo(ContainElement("InitializationRepaired"))
	})

	It("is deleted when an initializer fails", func(ctx context.Context) {
		register(ctx, "failure", rbac)
		namespace := createInjected(ctx, unique("failure"))
		base := namespace.DeepCopy()
		namespace.Annotations[v1alpha1.AnnotationInitializationResult] =
			`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no quota left"}`
		Expect(initializer.Patch(ctx, namespace, client.MergeFrom(base))).To(Succeed())
		expectDeleted(ctx, namespace.Name)
	})

	It("is initialized again after it is recreated", func(ctx context.Context) {
		register(ctx, "again", rbac)
		name := unique("again")
		first := createInjected(ctx, name)
		finish(ctx, name)
		expectWritable(ctx, name, v1alpha1.ReasonCompleted)
		Expect(ordinary.Delete(ctx, first)).To(Succeed())
		expectDeleted(ctx, name)
		second := createInjected(ctx, name)
		Expect(second.UID).NotTo(Equal(first.UID))
	})

	It("gets the pending list if its name is generated", func(ctx context.Context) {
		register(ctx, "generated", rbac)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "generated-"}}
		Expect(ordinary.Create(ctx, namespace)).To(Succeed())
		expectPending(ctx, namespace.Name)
	})

	It("gets no pending list if no initializer is registered", func(ctx context.Context) {
		name := unique("free")
		create(ctx, name)
		namespace := expectWritable(ctx, name, v1alpha1.ReasonNotRequired)
		Expect(namespace.Annotations).NotTo(HaveKey(v1alpha1.AnnotationInitializers))
	})
})

var _ = Describe("An existing namespace", func() {
	It("is not changed by a later configuration, and neither are system namespaces", func(ctx context.Context) {
		before := unique("before")
		create(ctx, before)
		expectWritable(ctx, before, v1alpha1.ReasonNotRequired)
		register(ctx, "late", rbac)
		// When a new namespace has the list, the operator has had enough time to change existing ones.
		createInjected(ctx, unique("late"))
		for _, name := range []string{
			before, preExistingName, metav1.NamespaceDefault, metav1.NamespaceSystem, "nslifecycle-system",
		} {
			namespace := get(Default, ctx, name)
			Expect(namespace).To(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonNotRequired))
			Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		}
	})

	It("is not changed by a later configuration, even if the operator has not run since the namespace was created", func(ctx context.Context) {
		stopManager()
		DeferCleanup(func(ctx context.Context) {
			if manager == nil {
				startManager(ctx)
			}
		})
		unseen := unique("unseen")
		create(ctx, unseen)
		// Creation timestamps have a resolution of one second.
		Eventually(func() time.Time {
			probe := wrappers.MakeNamespace(unique("clock")).Obj()
			Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			return probe.CreationTimestamp.Time
		}).WithContext(ctx).Should(BeTemporally(">", get(Default, ctx, unseen).CreationTimestamp.Time))
		configuration := wrappers.MakeConfiguration("unseen").Initializers(rbac).Obj()
		Expect(admin.Create(ctx, configuration)).To(Succeed())
		DeferCleanup(deregister, configuration)
		startManager(ctx)
		expectActive(ctx, configuration.Name, metav1.ConditionTrue, v1alpha1.ReasonEnforced)
		expectWritable(ctx, unseen, v1alpha1.ReasonNotRequired)
		createInjected(ctx, unique("seen"))
	})
})

var _ = Describe("While no manager runs", func() {
	It("new namespaces get the pending list immediately, or when a manager runs again", func(ctx context.Context) {
		register(ctx, "downtime", rbac)
		finished, pending, created := unique("finished"), unique("pending"), unique("created")
		createInjected(ctx, finished)
		createInjected(ctx, pending)
		stopManager()
		DeferCleanup(func(ctx context.Context) {
			if manager == nil {
				startManager(ctx)
			}
		})
		finish(ctx, finished)
		namespace := create(ctx, created)
		if byOperator {
			// Until the operator processes these namespaces, the new one does not have the label, and
			// the finished one still has the label.
			Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
			Expect(ordinary.Create(ctx, wrappers.MakeConfigMap(created, "in-the-window"))).To(Succeed())
			Expect(get(Default, ctx, finished).Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
			Expect(ordinary.Create(ctx, wrappers.MakeConfigMap(finished, "early"))).To(BeDeniedBy("gate"))
		} else {
			Expect(namespace.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
			Expect(get(Default, ctx, finished).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		}
		startManager(ctx)
		expectPending(ctx, created)
		expectPending(ctx, pending)
		expectWritable(ctx, finished, v1alpha1.ReasonCompleted)
		finish(ctx, created)
		expectWritable(ctx, created, v1alpha1.ReasonCompleted)
	})
})

// eventReasons returns the reasons of all Events about a namespace.
func eventReasons(g Gomega, ctx context.Context, name string) []string {
	events := &eventsv1.EventList{}
	g.Expect(admin.List(ctx, events)).To(Succeed())
	var reasons []string
	for _, event := range events.Items {
		if event.Regarding.Kind == "Namespace" && event.Regarding.Name == name {
			reasons = append(reasons, event.Reason)
		}
	}
	return reasons
}

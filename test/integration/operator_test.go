// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/controller"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/initializers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const failure = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"the team has no budget"}`

var _ = Describe("The operator", func() {
	It("sets the condition of every namespace, including namespaces that are older than the operator", func(ctx context.Context) {
		cluster.ExpectInjected(ctx)
		plain := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("plain")).Name
		cluster.Register(ctx, "wait", "a.test.example.com")
		serve(ctx, cluster.Initializer.Config, "a.test.example.com", initializers.Nothing)
		initialized := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("initialized")).Name
		for name, reason := range map[string]string{
			plain: v1alpha1.ReasonNotRequired, initialized: v1alpha1.ReasonCompleted, preExistingName: v1alpha1.ReasonNotRequired,
			metav1.NamespaceDefault: v1alpha1.ReasonNotRequired, metav1.NamespaceSystem: v1alpha1.ReasonNotRequired,
		} {
			_, err := cluster.Kubectl(ctx, cluster.Ordinary.Config, "wait", "--for=condition=Initializing=False", "ns/"+name, "--timeout=30s")
			Expect(err).NotTo(HaveOccurred())
			Expect(cluster.GetNamespace(Default, ctx, name)).To(BeInitializing(corev1.ConditionFalse, reason))
		}
	}, SpecTimeout(5*time.Minute))

	It("reports the progress while initializers finish in sequence", func(ctx context.Context) {
		names := []string{"quota.corp.com", "rbac.corp.com", "net.corp.com"}
		cluster.Register(ctx, "progress", names...)
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("progress")).Name
		for done := range names {
			Eventually(func(g Gomega) {
				now := cluster.GetNamespace(g, ctx, namespace)
				g.Expect(now).To(BeInitializing(corev1.ConditionTrue, v1alpha1.ReasonPending))
				g.Expect(framework.ConditionMessage(now, v1alpha1.ConditionInitializing)).
					To(ContainSubstring("%s (%d of 3)", names[done], done+1))
				for i, name := range names {
					status, reason := corev1.ConditionFalse, v1alpha1.ReasonPending
					if i < done {
						status, reason = corev1.ConditionTrue, v1alpha1.ReasonCompleted
					}
					g.Expect(now).To(HaveCondition(corev1.NamespaceConditionType(name+"/Initialized"), status, reason))
				}
			}).WithContext(ctx).Should(Succeed())
			cluster.Finish(ctx, namespace)
		}
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace).
			Should(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonCompleted))
		expectEvent(ctx, namespace, "Initialized")
	}, SpecTimeout(5*time.Minute))

	It("does not change conditions that other controllers or initializers set", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "foreign").Name
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace).
			Should(BeInitializing(corev1.ConditionTrue, v1alpha1.ReasonPending))
		patch := `{"status":{"conditions":[
			{"type":"example.com/Billing","status":"True","reason":"Paid","message":"x"},
			{"type":"absent.test.example.com/Initialized","status":"False","reason":"Creating","message":"3 of 7 indices"}]}}`
		_, err := cluster.Kubectl(ctx, cluster.Initializer.Config, "patch", "namespace", namespace, "--subresource=status",
			"--type=strategic", "-p", patch)
		Expect(err).NotTo(HaveOccurred())
		Consistently(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace).Should(And(
			HaveCondition("example.com/Billing", corev1.ConditionTrue, "Paid"),
			HaveCondition("absent.test.example.com/Initialized", corev1.ConditionFalse, "Creating")))
		cluster.Finish(ctx, namespace)
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace).Should(And(
			BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonCompleted),
			HaveCondition("example.com/Billing", corev1.ConditionTrue, "Paid"),
			HaveCondition("absent.test.example.com/Initialized", corev1.ConditionTrue, v1alpha1.ReasonCompleted)))
	}, SpecTimeout(5*time.Minute))

	It("is not required for injection, the gate or completion, and sets the conditions after it starts", func(ctx context.Context) {
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "its webhooks inject and complete: see test/mutation")
		cluster.Register(ctx, "away", "a.test.example.com", "b.test.example.com")
		cluster.StopManager()
		DeferCleanup(func(ctx context.Context) {
			if cluster.Manager == nil {
				cluster.StartManager(ctx)
			}
		})

		done := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("away"))
		Expect(framework.PendingOf(done)).To(Equal("a.test.example.com,b.test.example.com"))
		half := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("away"))
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(done.Name, "early"))).To(BeForbiddenBy("gate"))
		cluster.Finish(ctx, half.Name)
		cluster.Finish(ctx, done.Name)
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(done.Name, "early"))).To(BeForbiddenBy("gate"))
		cluster.Finish(ctx, done.Name)
		now := cluster.GetNamespace(Default, ctx, done.Name)
		Expect(now.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		Expect(now.Annotations).NotTo(HaveKey(v1alpha1.AnnotationPendingInitializers))
		Expect(now.Status.Conditions).To(BeEmpty())
		Eventually(cluster.Ordinary.Create).WithContext(ctx).WithArguments(wrappers.MakeConfigMap(done.Name, "late")).Should(Succeed())

		cluster.StartManager(ctx)
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(done.Name).Should(And(
			BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonCompleted),
			HaveCondition("a.test.example.com/Initialized", corev1.ConditionTrue, v1alpha1.ReasonCompleted),
			HaveCondition("b.test.example.com/Initialized", corev1.ConditionTrue, v1alpha1.ReasonCompleted)))
		Eventually(func(g Gomega) {
			now := cluster.GetNamespace(g, ctx, half.Name)
			g.Expect(framework.ConditionMessage(now, v1alpha1.ConditionInitializing)).To(ContainSubstring("b.test.example.com (2 of 2)"))
			g.Expect(now).To(HaveCondition("a.test.example.com/Initialized", corev1.ConditionTrue, v1alpha1.ReasonCompleted))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("reports a failure and then deletes the namespace", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "fails")
		history := framework.WatchNamespace(ctx, cluster.Admin.Config, namespace)
		setResult(ctx, namespace.Name, failure)
		failed := HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonFailed,
			"Forbidden: the team has no budget")
		// The operator finalizes the namespace a second later, so a GET request could be too late.
		Eventually(history.States).WithContext(ctx).Should(ContainElement(And(HaveField("DeletionTimestamp", Not(BeNil())), failed)))
		expectEvent(ctx, namespace.Name, "InitializationFailed")

		By("checking that the condition was set before the deletion")
		Expect(history.States()).To(ContainElement(And(HaveField("DeletionTimestamp", BeNil()), failed)))

		By("rejecting writes to the terminating namespace")
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "early"))).To(HaveOccurred())
	}, SpecTimeout(5*time.Minute))

	DescribeTable("ignores an invalid result, reports it and records an Event",
		func(ctx context.Context, result, problem string) {
			namespace := cluster.CreateInitializing(ctx, "bad-result").Name
			setResult(ctx, namespace, result)
			Eventually(func(g Gomega) {
				g.Expect(framework.ConditionMessage(cluster.GetNamespace(g, ctx, namespace), v1alpha1.ConditionInitializing)).To(ContainSubstring(problem))
			}).WithContext(ctx).Should(Succeed())
			expectEvent(ctx, namespace, "InvalidInitializationResult")
			Expect(cluster.GetNamespace(Default, ctx, namespace).DeletionTimestamp).To(BeNil())
			cluster.Finish(ctx, namespace)
			Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace).Should(And(
				BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonCompleted),
				HaveField("Annotations", Not(HaveKey(v1alpha1.AnnotationInitializationResult)))))
		},
		Entry("a result that is not JSON", "it did not work", "metav1.Status", SpecTimeout(5*time.Minute)),
		Entry("a truncated result", `{"status":"Failure"`, "metav1.Status", SpecTimeout(5*time.Minute)),
		Entry("an escaped status, which CEL does not match", `{"status":"\u0046ailure"}`, "without escape sequences", SpecTimeout(5*time.Minute)),
		Entry("a result with status Success", `{"status":"Success"}`, `its status is "Success"`, SpecTimeout(5*time.Minute)),
		Entry("a result without a status", `{"message":"hm"}`, `its status is ""`, SpecTimeout(5*time.Minute)),
	)

	It("does not prevent the deletion of an initializing namespace", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "deleted")
		held := wrappers.MakeConfigMap(namespace.Name, "held")
		held.Finalizers = []string{"example.com/held"}
		Expect(cluster.Initializer.Create(ctx, held)).To(Succeed())
		Expect(cluster.Ordinary.Delete(ctx, namespace)).To(Succeed())

		By("rejecting new objects, but allowing a user to remove a finalizer from a terminating object")
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "new"))).To(HaveOccurred())
		Eventually(func(g Gomega) {
			g.Expect(cluster.Ordinary.Delete(ctx, held)).To(Succeed())
			held.Finalizers = nil
			held.ResourceVersion = ""
			g.Expect(cluster.Ordinary.Update(ctx, held)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())

		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(5*time.Minute))

	It("does not write to a recreated namespace with the same name", func(ctx context.Context) {
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "no namespace can be created while no manager runs")
		cluster.Register(ctx, "again", "a.test.example.com")
		old := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("again"))
		cluster.StopManager()
		DeferCleanup(func(ctx context.Context) { cluster.StartManager(ctx) })
		setResult(ctx, old.Name, failure)
		stale := cluster.GetNamespace(Default, ctx, old.Name)
		Expect(cluster.Admin.Delete(ctx, old)).To(Succeed())
		finalize(ctx, old.Name)
		Eventually(func() error {
			return cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(old.Name).Obj())
		}).WithContext(ctx).Should(Succeed())

		live, err := client.NewWithWatch(cluster.Admin.Config, client.Options{Scheme: scheme.New()})
		Expect(err).NotTo(HaveOccurred())
		reconciler := &controller.NamespaceReconciler{
			Client: interceptor.NewClient(live, interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
					stale.DeepCopyInto(object.(*corev1.Namespace))
					return nil
				},
			}),
			Live:     live,
			Recorder: events.NewFakeRecorder(10), Clock: clock.RealClock{}, SystemNamespace: controlplane.SystemNamespace,
		}
		_, _ = reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(old)})
		now := cluster.GetNamespace(Default, ctx, old.Name)
		Expect(now.UID).NotTo(Equal(stale.UID))
		Expect(now.DeletionTimestamp).To(BeNil())
		Expect(now.Status.Conditions).To(BeEmpty())

		By("checking that it does not delete the new namespace based on the state of the old one")
		now = cluster.GetNamespace(Default, ctx, old.Name)
		setResult(ctx, old.Name, failure)
		stale = cluster.GetNamespace(Default, ctx, old.Name)
		stale.Status.Conditions = nil
		stale.Status.Conditions = initialization.ComputeConditions(stale, initialization.ParseState(stale), metav1.Now())
		stale.UID = "11111111-1111-1111-1111-111111111111"
		_, err = reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(old)})
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.GetNamespace(Default, ctx, now.Name).DeletionTimestamp).To(BeNil())
	}, SpecTimeout(5*time.Minute))

	It("completes the initialization of 200 namespaces that are created concurrently", func(ctx context.Context) {
		names := []string{"a.test.example.com", "b.test.example.com", "c.test.example.com"}
		cluster.Register(ctx, "bulk", names...)
		for _, name := range names {
			serve(ctx, cluster.Initializer.Config, name, initializers.Nothing)
		}
		var created []string
		for range 200 {
			created = append(created, framework.Unique("bulk"))
		}
		var group sync.WaitGroup
		errs := make(chan error, len(created))
		for _, name := range created {
			group.Go(func() { errs <- cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(name).Obj()) })
		}
		group.Wait()
		close(errs)
		for err := range errs {
			Expect(err).NotTo(HaveOccurred())
		}
		Eventually(func(g Gomega) {
			var namespaces corev1.NamespaceList
			g.Expect(cluster.Admin.List(ctx, &namespaces)).To(Succeed())
			finished := 0
			for i := range namespaces.Items {
				if strings.HasPrefix(namespaces.Items[i].Name, "bulk-") {
					g.Expect(&namespaces.Items[i]).To(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonCompleted))
					finished++
				}
			}
			g.Expect(finished).To(Equal(len(created)))
			// This takes 1600 writes: 40 s if each of two processors runs 20 processes, and 70 s with 30.
		}).WithContext(ctx).WithTimeout(3 * time.Minute).WithPolling(200 * time.Millisecond).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("does not update a namespace whose state has not changed", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "quiet").Name
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace).
			Should(BeInitializing(corev1.ConditionTrue, v1alpha1.ReasonPending))
		version := cluster.GetNamespace(Default, ctx, namespace).ResourceVersion
		Consistently(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace).
			Should(HaveField("ResourceVersion", version))
	}, SpecTimeout(5*time.Minute))

	It("restores the set if another client changes or deletes it", func(ctx context.Context) {
		cluster.Register(ctx, "set", "a.test.example.com")
		own := v1alpha1.EffectiveInitializer{
			Name: "a.test.example.com", Configuration: "set",
			InitializerSettings: v1alpha1.InitializerSettings{Confinement: v1alpha1.ConfinementNone},
		}
		for _, edited := range [][]v1alpha1.EffectiveInitializer{nil, {{Name: "x.test.example.com"}, own}} {
			set := cluster.EffectiveSet(Default, ctx)
			set.Initializers = edited
			Expect(cluster.Admin.Update(ctx, set)).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(cluster.EffectiveSet(g, ctx).Initializers).To(ConsistOf(own))
			}).WithContext(ctx).Should(Succeed())
		}
		Expect(cluster.Admin.Delete(ctx, cluster.EffectiveSet(Default, ctx))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(cluster.EffectiveSet(g, ctx).Initializers).To(HaveLen(1))
		}).WithContext(ctx).Should(Succeed())
		cluster.ExpectInjected(ctx)
	}, SpecTimeout(5*time.Minute))
})

// newCreator adds a user who can only create and read namespaces, as in the KEP.
func newCreator(ctx context.Context, name string) *rest.Config {
	GinkgoHelper()
	return cluster.AddUserWithRules(ctx, name, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch", "create"},
	}).Config
}

// setResult sets the result of a namespace as the initializer user.
func setResult(ctx context.Context, name, result string) {
	GinkgoHelper()
	_, err := cluster.Kubectl(ctx, cluster.Initializer.Config, "annotate", "namespace", name,
		v1alpha1.AnnotationInitializationResult+"="+result)
	Expect(err).NotTo(HaveOccurred())
}

// finalize empties spec.finalizers while no manager is running.
func finalize(ctx context.Context, name string) {
	GinkgoHelper()
	namespace := cluster.GetNamespace(Default, ctx, name)
	namespace.Spec.Finalizers = nil
	namespace.ResourceVersion = ""
	_, err := framework.NewUser(cluster.Admin.Config).Clientset().CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

func expectEvent(ctx context.Context, namespace, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list eventsv1.EventList
		g.Expect(cluster.Admin.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
		g.Expect(list.Items).To(ContainElement(And(
			HaveField("Regarding.Name", namespace), HaveField("Reason", reason))))
	}).WithContext(ctx).Should(Succeed())
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/controller"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const failure = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"the team has no budget"}`

var _ = Describe("The operator", func() {
	It("sets the condition of every namespace, including namespaces that are older than the operator", func(ctx context.Context) {
		cluster.ExpectInjected(ctx)
		plain := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("plain")).Name
		cluster.Register(ctx, "wait", "a.test.example.com")
		serve(ctx, cluster.Initializer.Config, "a.test.example.com", initializers.Nothing)
		initialized := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("initialized")).Name
		for _, name := range []string{
			plain, initialized, preExistingName, metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic,
			corev1.NamespaceNodeLease, controlplane.SystemNamespace,
		} {
			_, err := cluster.Kubectl(ctx, cluster.Ordinary.Config, "wait", "--for=condition=Ready", "ns/"+name, "--timeout=2m")
			Expect(err).NotTo(HaveOccurred())
			Expect(cluster.GetNamespace(Default, ctx, name)).To(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonInitialized))
		}
		set := cluster.EffectiveSet(Default, ctx)
		Expect([]string{set.SystemNamespace, set.SourceNamespace}).To(Equal([]string{controlplane.SystemNamespace, controlplane.SourceNamespace}))
	})

	It("reports the progress while initializers finish in sequence", func(ctx context.Context) {
		names := []string{"quota.corp.com", "rbac.corp.com", "net.corp.com"}
		cluster.Register(ctx, "progress", names...)
		created := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("progress"))
		namespace, history := created.Name, framework.WatchNamespace(ctx, cluster.Admin.Config, created)
		for done := range names {
			Eventually(func(g Gomega) {
				now := cluster.GetNamespace(g, ctx, namespace)
				g.Expect(now).To(BeInitializing(corev1.ConditionTrue, v1alpha1.ReasonInitializing))
				g.Expect(framework.ConditionMessage(now, v1alpha1.ConditionInitializing)).
					To(ContainSubstring("%s (%d of 3)", names[done], done+1))
				for i, name := range names {
					status, reason := corev1.ConditionFalse, v1alpha1.ReasonPending
					if i < done {
						status, reason = corev1.ConditionTrue, v1alpha1.ReasonInitialized
					}
					g.Expect(now).To(HaveCondition(corev1.NamespaceConditionType(name+"/Initialized"), status, reason))
				}
			}).WithContext(ctx).Should(Succeed())
			cluster.Finish(ctx, namespace)
		}
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace).
			Should(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonInitialized))

		By("checking that every version has Ready if it has Initializing")
		for _, version := range history.States() {
			if initializing := nsobject.FindCondition(version, v1alpha1.ConditionInitializing); initializing != nil {
				Expect(version).To(BeInitializing(initializing.Status, initializing.Reason))
			}
			Expect(nsobject.FindCondition(version, v1alpha1.ConditionStalled)).To(BeNil())
		}
	})

	It("does not change conditions that other controllers or initializers set", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "foreign").Name
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace).
			Should(BeInitializing(corev1.ConditionTrue, v1alpha1.ReasonInitializing))
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
			BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonInitialized),
			HaveCondition("example.com/Billing", corev1.ConditionTrue, "Paid"),
			HaveCondition("absent.test.example.com/Initialized", corev1.ConditionTrue, v1alpha1.ReasonInitialized)))
	})

	It("is not required for injection, the gate or completion, and sets the conditions after it starts", func(ctx context.Context) {
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "its webhooks inject and complete: see test/webhooks")
		cluster.Register(ctx, "away", "a.test.example.com", "b.test.example.com")
		cluster.PauseManager()

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
			BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonInitialized),
			HaveCondition("a.test.example.com/Initialized", corev1.ConditionTrue, v1alpha1.ReasonInitialized),
			HaveCondition("b.test.example.com/Initialized", corev1.ConditionTrue, v1alpha1.ReasonInitialized)))
		Eventually(func(g Gomega) {
			now := cluster.GetNamespace(g, ctx, half.Name)
			g.Expect(framework.ConditionMessage(now, v1alpha1.ConditionInitializing)).To(ContainSubstring("b.test.example.com (2 of 2)"))
			g.Expect(now).To(HaveCondition("a.test.example.com/Initialized", corev1.ConditionTrue, v1alpha1.ReasonInitialized))
		}).WithContext(ctx).Should(Succeed())
	})

	It("reports a failure and then deletes the namespace", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "fails")
		history := framework.WatchNamespace(ctx, cluster.Admin.Config, namespace)
		setResult(ctx, namespace.Name, failure)
		failed := And(HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonFailed,
			"Forbidden: the team has no budget"), HaveCondition(v1alpha1.ConditionReady, corev1.ConditionFalse,
			v1alpha1.ReasonFailed, "see the condition Initializing; the namespace will be deleted"),
			HaveCondition(v1alpha1.ConditionStalled, corev1.ConditionTrue, v1alpha1.ReasonFailed))
		// The operator finalizes the namespace a second later, so a GET request could be too late.
		Eventually(history.States).WithContext(ctx).Should(ContainElement(And(HaveField("DeletionTimestamp", Not(BeNil())), failed)))
		expectEvent(ctx, namespace, "InitializationFailed")

		By("checking that the condition was set before the deletion")
		Expect(history.States()).To(ContainElement(And(HaveField("DeletionTimestamp", BeNil()), failed)))

		By("rejecting writes to the terminating namespace")
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "early"))).To(HaveOccurred())
	})

	DescribeTable("ignores an invalid result, reports it and records an Event",
		func(ctx context.Context, result, problem string) {
			created := cluster.CreateInitializing(ctx, "bad-result")
			namespace := created.Name
			setResult(ctx, namespace, result)
			Eventually(func(g Gomega) {
				g.Expect(framework.ConditionMessage(cluster.GetNamespace(g, ctx, namespace), v1alpha1.ConditionInitializing)).To(ContainSubstring(problem))
			}).WithContext(ctx).Should(Succeed())
			expectEvent(ctx, created, "InvalidInitializationResult")
			Expect(cluster.GetNamespace(Default, ctx, namespace).DeletionTimestamp).To(BeNil())
			cluster.Finish(ctx, namespace)
			Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace).Should(And(
				BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonInitialized),
				HaveField("Annotations", Not(HaveKey(v1alpha1.AnnotationInitializationResult)))))
		},
		Entry("a result that is not JSON", "it did not work", "metav1.Status"),
		Entry("an escaped status, which CEL does not match", `{"status":"\u0046ailure"}`, "without escape sequences"),
		Entry("an escaped key", `{"\u0073tatus":"Failure"}`, "is ignored because"),
		Entry("a nested status", `{"details":{"status":"Failure"}}`, "is ignored because"),
	)

	It("does not prevent the deletion of an initializing namespace", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "deleted")
		held := wrappers.MakeConfigMap(namespace.Name, "held")
		held.Finalizers = []string{"example.com/held"}
		cluster.Initializer.Creates(ctx, held)
		cluster.Ordinary.Deletes(ctx, namespace)

		By("rejecting new objects, but allowing a user to remove a finalizer from a terminating object")
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(namespace.Name, "new"))).To(HaveOccurred())
		Eventually(func(g Gomega) {
			g.Expect(cluster.Ordinary.Delete(ctx, held)).To(Succeed())
			held.Finalizers = nil
			held.ResourceVersion = ""
			g.Expect(cluster.Ordinary.Update(ctx, held)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())

		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	})

	It("does not write to a recreated namespace with the same name", func(ctx context.Context) {
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "no namespace can be created while no manager runs")
		cluster.Register(ctx, "again", "a.test.example.com")
		old := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("again"))
		cluster.PauseManager()
		setResult(ctx, old.Name, failure)
		stale := cluster.GetNamespace(Default, ctx, old.Name)
		cluster.Admin.Deletes(ctx, old)
		framework.SetNamespaceFinalizers(ctx, cluster.Admin, old.Name)
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
			Recorder: events.NewFakeRecorder(10), ServerClock: servertime.NewClock(clock.RealClock{}),
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
	})

	It("completes the initialization of 60 namespaces that are created concurrently", func(ctx context.Context) {
		names := []string{"a.test.example.com", "b.test.example.com", "c.test.example.com"}
		cluster.Register(ctx, "bulk", names...)
		for _, name := range names {
			serve(ctx, cluster.Initializer.Config, name, initializers.Nothing)
		}
		var created []string
		for range 60 {
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
					g.Expect(&namespaces.Items[i]).To(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonInitialized))
					finished++
				}
			}
			g.Expect(finished).To(Equal(len(created)))
			// This takes 480 writes.
		}).WithContext(ctx).WithTimeout(3 * time.Minute).WithPolling(200 * time.Millisecond).Should(Succeed())
	})

	It("does not update a namespace whose state has not changed", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "quiet").Name
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace).
			Should(BeInitializing(corev1.ConditionTrue, v1alpha1.ReasonInitializing))
		version := cluster.GetNamespace(Default, ctx, namespace).ResourceVersion
		Consistently(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace).
			Should(HaveField("ResourceVersion", version))
	})

	It("restores the set if another client changes or deletes it", func(ctx context.Context) {
		cluster.Register(ctx, "set", "a.test.example.com")
		own := internalv1alpha1.EffectiveInitializer{
			Name: "a.test.example.com", Configuration: "set",
			InitializerSettings: v1alpha1.DefaultInitializerSettings(),
		}
		for _, edited := range [][]internalv1alpha1.EffectiveInitializer{nil, {{Name: "x.test.example.com"}, own}} {
			// The operator can write the set between the two requests.
			Eventually(func(g Gomega) {
				set := cluster.EffectiveSet(g, ctx)
				set.Initializers = edited
				g.Expect(cluster.Admin.Update(ctx, set)).To(Succeed())
			}).WithContext(ctx).Should(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(registered(g, ctx)).To(ConsistOf(own))
			}).WithContext(ctx).Should(Succeed())
		}
		cluster.Admin.Deletes(ctx, cluster.EffectiveSet(Default, ctx))
		Eventually(func(g Gomega) {
			g.Expect(registered(g, ctx)).To(HaveLen(1))
		}).WithContext(ctx).Should(Succeed())
		cluster.ExpectInjected(ctx)
	})
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
	_, err := cluster.Kubectl(ctx, cluster.Initializer.Config, "annotate", "--overwrite", "namespace", name,
		v1alpha1.AnnotationInitializationResult+"="+result)
	Expect(err).NotTo(HaveOccurred())
}

// Until a namespace has the condition Ready, tools that implement kstatus consider it ready.
var _ = Describe("The first report about a namespace", Ordered, ContinueOnFailure, func() {
	for _, count := range []int{1, 40} {
		It(fmt.Sprintf("costs one request for each of %d namespaces that wait for an initializer", count), func(ctx context.Context) {
			cluster.Register(ctx, "first", "absent.test.example.com")
			var prefix string
			// A busy machine can delay some reports, a limit delays reports in each attempt.
			Eventually(func() time.Duration {
				prefix = framework.Unique("report") + "-"
				slowest := createAll(ctx, prefix, count)
				AddReportEntry(fmt.Sprintf("%d initializing namespaces: slowest report after %s", count, slowest))
				return slowest
			}).WithContext(ctx).Should(BeNumerically("<", 3*time.Second),
				"a report that exceeds the burst of 20 is delayed for 3 s")
			Eventually(countReports).WithContext(ctx).WithArguments(prefix).Should(Equal(count))
		})
	}
})

// createAll creates namespaces in parallel. It returns the longest time from a creation until the namespace had the
// condition Ready.
func createAll(ctx context.Context, prefix string, count int) time.Duration {
	GinkgoHelper()
	watcher, err := cluster.Admin.Clientset().CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	defer watcher.Stop()

	created, reported := make([]time.Time, count), map[string]time.Time{}
	var group sync.WaitGroup
	for i := range count {
		group.Go(func() {
			defer GinkgoRecover()
			cluster.Ordinary.Creates(ctx, wrappers.MakeNamespace(prefix+strconv.Itoa(i)).Obj())
			created[i] = time.Now()
		})
	}
	for len(reported) < count {
		var event watch.Event
		select { // Eventually would poll, and the times would be later.
		case event = <-watcher.ResultChan():
		case <-ctx.Done():
			Fail("the namespaces were not reported")
		}
		namespace, ok := event.Object.(*corev1.Namespace)
		if ok && strings.HasPrefix(namespace.Name, prefix) && reported[namespace.Name].IsZero() &&
			nsobject.FindCondition(namespace, v1alpha1.ConditionReady) != nil {
			reported[namespace.Name] = time.Now()
		}
	}
	group.Wait()
	var slowest time.Duration
	for i := range created {
		slowest = max(slowest, reported[prefix+strconv.Itoa(i)].Sub(created[i]))
	}
	return slowest.Round(time.Millisecond)
}

// countReports returns the number of PATCH requests for the namespaces whose names have a prefix, and for their status.
func countReports(prefix string) int {
	GinkgoHelper()
	reports := 0
	for _, event := range cluster.AuditLog.Read() {
		if event.Verb == "patch" && event.ObjectRef.Resource == "namespaces" && strings.HasPrefix(event.ObjectRef.Name, prefix) {
			reports++
		}
	}
	return reports
}

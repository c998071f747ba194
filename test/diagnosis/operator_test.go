// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
)

// tenant returns the configuration of a user who can read all Namespaces, and nothing else.
func tenant(ctx context.Context) *rest.Config {
	GinkgoHelper()
	return cluster.AddUserWithRules(ctx, framework.Unique("tenant"), rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"},
	}).Config
}

// startNamespaceController runs the namespace controller of kube-controller-manager until the spec
// ends.
func startNamespaceController(ctx context.Context) {
	GinkgoHelper()
	controllerManager, err := cluster.StartControllerManager(ctx, "--controllers=namespace-controller")
	if errors.Is(err, controlplane.ErrNoControllerManager) {
		Skip(err.Error())
	}
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(controllerManager.Stop()).To(Succeed()) })
	Eventually(controllerManager.Log).WithContext(ctx).Should(ContainSubstring("Starting namespace controller"))
}

func (f *fixture) diagnosisEvents(g Gomega, ctx context.Context) []string {
	return cluster.EventsAbout(g, ctx, f.namespace(g, ctx), "Diagnose")
}

// countBlockedTransitions returns the number of times that the condition for a state became True.
func countBlockedTransitions(versions []*corev1.Namespace, state diagnosis.NamespaceState) int {
	times, isBlocked := 0, false
	for _, version := range versions {
		if diagnosis.IsBlocked(version, state) && !isBlocked {
			times++
		}
		isBlocked = diagnosis.IsBlocked(version, state)
	}
	return times
}

const (
	deletionBlocked       = v1alpha1.ConditionDeletionBlocked
	initializationBlocked = v1alpha1.ConditionInitializationBlocked
)

var _ = Describe("The operator", func() {
	Describe("for a terminating namespace", func() {
		DescribeTable("reports the blocking cause and later progress,",
			func(ctx context.Context, start func(context.Context), hasReady bool) {
				start(ctx)
				// The first finalization can take longer than the deadline.
				earlier := newFixture(ctx)
				earlier.delete(ctx, earlier.manifest())
				earlier.expectDeleted(ctx)
				f := newFixture(ctx)
				f.create(ctx, makeHeld("first"))
				f.create(ctx, makeHeld("second"))
				if hasReady {
					f.eventually(ctx, matchers.HaveCondition(v1alpha1.ConditionReady, corev1.ConditionTrue, v1alpha1.ReasonInitialized))
				}
				f.delete(ctx, f.manifest())
				f.eventually(ctx, matchers.HaveCondition(deletionBlocked, corev1.ConditionTrue,
					string(diagnosis.CauseFinalizerPending), testFinalizer, "configmaps/first, configmaps/second"))
				Eventually(f.diagnosisEvents).WithContext(ctx).Should(
					ConsistOf(And(HavePrefix("Warning FinalizerPending "), ContainSubstring(testFinalizer))))

				By("checking that the cause is reported once")
				settled := f.namespace(Default, ctx)
				// It was written with the other conditions, also if it did not exist before.
				Expect(settled).To(matchers.HaveCondition(v1alpha1.ConditionReady, corev1.ConditionFalse, v1alpha1.ReasonTerminating,
					"users cannot create objects", "(FinalizerPending), see the condition "+v1alpha1.ConditionDeletionBlocked))
				Consistently(func(g Gomega) {
					g.Expect(f.diagnosisEvents(g, ctx)).To(HaveLen(1))
					g.Expect(nsobject.FindCondition(f.namespace(g, ctx), deletionBlocked)).To(
						Equal(nsobject.FindCondition(settled, deletionBlocked)))
				}).WithContext(ctx).WithTimeout(2 * progressDeadline).Should(Succeed())

				By("diagnosing the namespace as a user who can read only the Namespace")
				restricted, asTenant := newCollector(tenant(ctx)), &diagnosis.Diagnosis{}
				// On a busy machine, failing requests of the manager can change the conditions for some time.
				Eventually(func(g Gomega) diagnosis.Health {
					asTenant = f.diagnose(g, ctx, restricted)
					return asTenant.Result
				}).WithContext(ctx).Should(Equal(diagnosis.Blocked))
				Expect(asTenant.Unread).NotTo(BeEmpty())
				Expect(asTenant.Findings).To(HaveExactElements(And(
					HaveField("Cause", diagnosis.CauseFinalizerPending), HaveField("Rank", diagnosis.RankPublished),
					HaveField("Message", nsobject.FindCondition(settled, deletionBlocked).Message))))

				By("removing a finalizer")
				states := framework.WatchNamespace(ctx, cluster.Admin.Config, settled)
				removeFinalizers(ctx, f.objects(makeHeld("first"))[0])
				Eventually(states.States).WithContext(ctx).Should(ContainElement(matchers.HaveCondition(
					deletionBlocked, corev1.ConditionFalse, v1alpha1.ReasonProgressing, "deletion")))
				f.eventually(ctx, matchers.HaveCondition(deletionBlocked, corev1.ConditionTrue,
					string(diagnosis.CauseFinalizerPending), `configmaps "second"`))
				removeFinalizers(ctx, f.objects(makeHeld("second"))[0])
				f.expectDeleted(ctx)
			},
			Entry("finalized by the manager", func(ctx context.Context) {
				cluster.PauseManager(withProgressDeadline(progressDeadline))
				// On a busy machine, a shorter deadline results in the cause NamespaceControllerUnresponsive.
				startManager(ctx, withProgressDeadline(8*time.Second))
			}, true, SpecTimeout(5*time.Minute)),
			Entry("finalized by kube-controller-manager", func(ctx context.Context) {
				cluster.PauseManager(withProgressDeadline(progressDeadline))
				startNamespaceController(ctx)
				// The namespace controller starts after 5 s. A shorter deadline results in the cause
				// NamespaceControllerUnresponsive.
				startManager(ctx, withProgressDeadline(8*time.Second), func(options *manager.Options) {
					options.Controllers = manager.Controllers{manager.Diagnosis: true}
				})
			}, false, SpecTimeout(5*time.Minute)),
		)

		// Both controllers update conditions and disagree about pods: kube-controller-manager reports no
		// remaining content while it waits for pods.
		// Long: this spec observes several resync periods of both controllers.
		DescribeTable("does not repeatedly change the condition while kube-controller-manager is also running", Label("long"),
			func(ctx context.Context, held string) {
				cluster.PauseManager(withProgressDeadline(progressDeadline))
				f := newFixture(ctx)
				f.create(ctx, held)
				startNamespaceController(ctx)
				startManager(ctx)
				states := framework.WatchNamespace(ctx, cluster.Admin.Config, f.namespace(Default, ctx))
				f.delete(ctx, f.manifest())
				blocked := Satisfy(func(state *corev1.Namespace) bool {
					return diagnosis.IsBlocked(state, diagnosis.StateTerminating)
				})
				f.eventually(ctx, blocked)
				// kube-controller-manager starts after 5 s and retries every 8 s. The diagnosis
				// might treat its first update as progress.
				time.Sleep(15 * time.Second)
				before := countBlockedTransitions(states.States(), diagnosis.StateTerminating)
				Consistently(func(g Gomega) {
					g.Expect(f.namespace(g, ctx)).To(blocked)
					g.Expect(countBlockedTransitions(states.States(), diagnosis.StateTerminating)).To(Equal(before))
				}).WithContext(ctx).WithTimeout(20 * time.Second).Should(Succeed())
				Expect(before).To(BeNumerically("<=", 3))
				removeFinalizers(ctx, f.objects(held)[0])
				f.expectDeleted(ctx)
			},
			Entry("if a Pod blocks the deletion", `
apiVersion: v1
kind: Pod
metadata: {namespace: $ns, name: held, finalizers: [`+testFinalizer+`]}
spec: {containers: [{name: none, image: example.com/none}]}
`, SpecTimeout(5*time.Minute)),
		)
	})

	Describe("for an initializing namespace", func() {
		It("reports an initializer that is not running, until the pending list is empty", func(ctx context.Context) {
			f := newInitializingFixture(ctx, nothing)
			initializer := f.text("$id.init.example.com")
			f.eventually(ctx, matchers.HaveCondition(initializationBlocked, corev1.ConditionTrue,
				string(diagnosis.CauseInitializerNotRunning), initializer))
			Eventually(f.diagnosisEvents).WithContext(ctx).Should(
				ConsistOf(HavePrefix("Warning InitializerNotRunning ")))
			f.eventually(ctx, Satisfy(func(now *corev1.Namespace) bool {
				ready := nsobject.FindCondition(now, v1alpha1.ConditionReady)
				return ready != nil && ready.Reason == v1alpha1.ReasonInitializing && strings.HasSuffix(ready.Message,
					initializer+" (1 of 1); no progress (InitializerNotRunning), see the condition "+initializationBlocked)
			}))
			By("checking that the message of Ready does not count as progress")
			Consistently(f.namespace).WithContext(ctx).WithTimeout(2 * progressDeadline).
				Should(matchers.HaveCondition(initializationBlocked, corev1.ConditionTrue, string(diagnosis.CauseInitializerNotRunning)))

			patch := framework.MergePatch(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationPendingInitializers + `":""}}}`)
			Expect(admin.Patch(ctx, f.namespace(Default, ctx), patch)).To(Succeed())
			f.eventually(ctx, And(
				matchers.HaveCondition(initializationBlocked, corev1.ConditionFalse, v1alpha1.ReasonProgressing, ""),
				matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonInitialized),
				matchers.HaveCondition(v1alpha1.ConditionReady, corev1.ConditionTrue, v1alpha1.ReasonInitialized)))
		}, SpecTimeout(5*time.Minute))
	})
})

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	// policyLabel selects the initializer with a failure policy.
	policyLabel = "clocks.chaos.example.com/policy"
	// initializerTimeout is longer than a change of the leader.
	initializerTimeout = 40 * time.Second
	// failDelay is the age of the NamespaceInitializerSet at which the manager sets the failurePolicy to Fail.
	failDelay = time.Minute
	// clockTolerance is the difference between the clocks of the API server and of a manager, and the duration of a
	// request (internal/servertime).
	clockTolerance = 2 * time.Second
)

// The build and the delays take minutes.
var _ = Describe("Managers with wrong clocks", Label("long"), Ordered, ContinueOnFailure, Serial, func() {
	BeforeAll(func(ctx context.Context) {
		binaryWithOffset = filepath.Join(plane.Dir, "manager-with-offset")
		Expect(controlplane.BuildWithClockOffset(ctx, controlplane.ManagerProgram, binaryWithOffset)).To(Succeed())
	}, NodeTimeout(40*time.Minute))

	DescribeTable("do nothing early, and everything reaches its end state", func(ctx context.Context, offsets ...time.Duration) {
		registerWithTimeouts(ctx)
		s := startScenarioWithClocks(ctx, offsets, "--leader-elect")
		expectFailurePolicy(ctx)
		s.keep(ctx)
		namespaces := startTraffic(ctx, map[string]string{provisioned: "yes"})
		stopChanges := s.changeContinuously(ctx)
		var group sync.WaitGroup
		for _, policy := range []v1alpha1.FailurePolicy{v1alpha1.FailurePolicyIgnore, v1alpha1.FailurePolicyFail} {
			namespace := s.createWithTimeout(ctx, policy)
			group.Go(func() {
				defer GinkgoRecover()
				expectTimeout(ctx, namespace)
			})
		}
		for range 2 {
			s.changeLeader(ctx)
		}
		group.Wait()
		s.expectEndState(ctx, namespaces, stopChanges, time.Now())
	},
		Entry("an hour ahead", SpecTimeout(15*time.Minute), time.Hour),
		Entry("an hour behind", SpecTimeout(15*time.Minute), -time.Hour),
		Entry("two hours apart", SpecTimeout(15*time.Minute), -time.Hour, time.Hour),
	)

	DescribeTable("serve hold webhooks with a certificate that is valid an hour before its creation",
		func(ctx context.Context, offset time.Duration, want string) {
			user := cluster.AddUser(ctx, "clocks@chaos.example.com", framework.VerbsButInitialize).Clientset()
			registerHeld(ctx)
			installHold(ctx)
			// The leader would keep a certificate of another spec.
			_, err := plane.Kubectl(ctx, plane.Admin, "patch", "secret", "nslifecycle-webhook-certificate",
				"--namespace="+controlplane.SystemNamespace, "--type=merge", `--patch={"data":null}`)
			Expect(err).NotTo(HaveOccurred())
			balancer := startLoadBalancer(framework.FreeAddress())
			startReplicasWithClocks(managerConfig(ctx), []time.Duration{offset}, "--leader-elect", "--metrics-bind-address=0",
				"--webhook-bind-address="+balancer.backends[0], "--webhook-url="+balancer.url())
			Expect(plane.WaitForHold(ctx, balancer.url())).To(Succeed())
			cluster.ExpectActive(ctx, "held")
			namespace := wrappers.MakeNamespace(framework.Unique("held")).Label("held", "true").Obj()
			Expect(admin.Create(ctx, namespace)).To(Succeed())
			outcome := make(chan string, 1)
			go func() {
				_, err := user.CoreV1().ConfigMaps(namespace.Name).Create(ctx, wrappers.MakeConfigMap(namespace.Name, "a"),
					metav1.CreateOptions{})
				outcome <- outcomeOf(err)
			}()
			if want == "created" {
				Consistently(outcome).WithContext(ctx).ShouldNot(Receive())
				finishHeld(ctx, namespace.Name)
			}
			Eventually(outcome).WithContext(ctx).Should(Receive(Equal(want)))
		},
		Entry("an hour ahead", SpecTimeout(5*time.Minute), time.Hour, "created"),
		Entry("an hour behind", SpecTimeout(5*time.Minute), -time.Hour, "created"),
		Entry("two hours ahead", SpecTimeout(5*time.Minute), 2*time.Hour, string(metav1.StatusReasonForbidden)),
	)
})

// registerWithTimeouts registers an initializer for each failure policy. Neither of them is running.
func registerWithTimeouts(ctx context.Context) {
	GinkgoHelper()
	configuration := wrappers.MakeConfiguration("clocks")
	for _, policy := range []v1alpha1.FailurePolicy{v1alpha1.FailurePolicyIgnore, v1alpha1.FailurePolicyFail} {
		configuration.Initializer(initializerWith(policy), v1alpha1.InitializerSettings{
			NamespaceSelector: &v1alpha1.NamespaceSelector{
				MatchLabels: map[string]v1alpha1.LabelValue{policyLabel: v1alpha1.LabelValue(policy)},
			},
			TimeoutSeconds: ptr.To(int32(initializerTimeout.Seconds())), FailurePolicy: policy,
		})
	}
	Expect(admin.Create(ctx, configuration.Obj())).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, configuration.Obj())).To(Succeed()) })
}

func initializerWith(policy v1alpha1.FailurePolicy) string {
	return map[v1alpha1.FailurePolicy]string{
		v1alpha1.FailurePolicyIgnore: "ignore.clocks.example.com", v1alpha1.FailurePolicyFail: "fail.clocks.example.com",
	}[policy]
}

// expectFailurePolicy waits until the manager sets the failurePolicy of inject, for a new NamespaceInitializerSet.
func expectFailurePolicy(ctx context.Context) {
	GinkgoHelper()
	set := &internalv1alpha1.NamespaceInitializerSet{ObjectMeta: metav1.ObjectMeta{Name: internalv1alpha1.EffectiveSetName}}
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(set), set)).To(Succeed())
	old := set.UID
	Expect(admin.Delete(ctx, set)).To(Succeed())
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "nslifecycle-inject"}}
	Expect(admin.Patch(ctx, policy, framework.MergePatch(`{"spec":{"failurePolicy":"Ignore"}}`))).
		To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(set), set)).To(Succeed())
		g.Expect(set.UID).NotTo(Equal(old))
	}).WithContext(ctx).Should(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
		g.Expect(policy.Spec.FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
	}).WithContext(ctx).WithTimeout(3 * failDelay).Should(Succeed())
	after := time.Since(set.CreationTimestamp.Time)
	AddReportEntry("failurePolicy", fmt.Sprintf("set to Fail %.1f s after the creation of the set", after.Seconds()),
		ReportEntryVisibilityAlways)
	Expect(after).To(BeNumerically(">=", failDelay-clockTolerance), "some API servers might not recognize the type yet")
	expectInjected(ctx)
}

// createWithTimeout creates a namespace, and waits until the operator has recorded the start of the timeout.
func (s *scenario) createWithTimeout(
	ctx context.Context, policy v1alpha1.FailurePolicy,
) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(framework.Unique("timeout")).Label(policyLabel, string(policy)).Obj()
	Eventually(func(g Gomega) {
		probe := namespace.DeepCopy()
		g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(framework.PendingOf(probe)).To(ContainSubstring(initializerWith(policy)))
	}).WithContext(ctx).WithTimeout(waitTimeout).Should(Succeed())
	Expect(admin.Create(ctx, namespace)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
		g.Expect(namespace.Annotations).To(HaveKey(v1alpha1.AnnotationTurnStartedAt))
	}).WithContext(ctx).WithTimeout(waitTimeout).Should(Succeed())
	return namespace
}

// expectTimeout waits until the operator skips the initializer or fails the namespace. The test and the API server
// use the same clock.
func expectTimeout(ctx context.Context, created *corev1.Namespace) {
	GinkgoHelper()
	policy := created.Labels[policyLabel]
	namespace := &corev1.Namespace{}
	Eventually(func(g Gomega) {
		err := admin.Get(ctx, client.ObjectKeyFromObject(created), namespace)
		if apierrors.IsNotFound(err) {
			namespace.DeletionTimestamp = &metav1.Time{}
			return
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(framework.PendingOf(namespace) == "" || namespace.DeletionTimestamp != nil).To(BeTrue())
	}).WithContext(ctx).WithTimeout(waitTimeout).Should(Succeed())
	after := time.Since(created.CreationTimestamp.Time)
	AddReportEntry("timeout", fmt.Sprintf("failurePolicy %s: %.1f s after the creation, with a timeout of %s",
		policy, after.Seconds(), initializerTimeout), ReportEntryVisibilityAlways)
	Expect(namespace.DeletionTimestamp != nil).To(Equal(policy == string(v1alpha1.FailurePolicyFail)))
	Expect(after).To(BeNumerically(">=", initializerTimeout-clockTolerance), "the timeout was enforced early")
	Expect(client.IgnoreNotFound(admin.Delete(ctx, created.DeepCopy()))).To(Succeed())
	Eventually(func() error { return admin.Get(ctx, client.ObjectKeyFromObject(created), namespace) }).WithContext(ctx).
		WithTimeout(waitTimeout).Should(Satisfy(apierrors.IsNotFound))
}

// changeLeader terminates the leader, and waits for the next one.
func (s *scenario) changeLeader(ctx context.Context) {
	GinkgoHelper()
	start, before := time.Now(), s.managers.leader(ctx)
	before.Terminate()
	Eventually(before).WithContext(ctx).Should(gexec.Exit(0))
	s.managers.leader(ctx)
	AddReportEntry("leader", fmt.Sprintf("another leader after %.1f s", time.Since(start).Seconds()),
		ReportEntryVisibilityAlways)
}

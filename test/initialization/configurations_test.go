// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"context"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nslifecycle/nslifecycle/internal/manager"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("The readiness of a configuration", func() {
	It("is reported only for what the API server enforces, in columns and Events", func(ctx context.Context) {
		name := framework.Unique("ready")
		configuration := wrappers.MakeConfiguration(name).Initializers(name + ".test.example.com").Obj()
		cluster.Admin.Creates(ctx, configuration)
		DeferCleanup(func(ctx context.Context) {
			cluster.Admin.Deletes(ctx, configuration.DeepCopy())
			cluster.ExpectDeregistered(ctx, name)
		})
		Expect(configuration.Status.ObservedGeneration).To(BeEquivalentTo(-1), "in the response to the creation")
		watching, err := client.NewWithWatch(controlplane.Unlimited(cluster.Admin.Config), client.Options{Scheme: cluster.Admin.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		// expectReady waits until a client that uses kstatus reads the configuration as ready, and expects that new
		// namespaces get its initializers then.
		expectReady := func(initializers string) {
			GinkgoHelper()
			watcher, err := watching.Watch(ctx, &v1alpha1.NamespaceInitializerConfigurationList{}, &client.ListOptions{
				Raw: &metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: configuration.ResourceVersion},
			})
			Expect(err).NotTo(HaveOccurred())
			defer watcher.Stop()
			for changed := range watcher.ResultChan() {
				current, ok := changed.Object.(*v1alpha1.NamespaceInitializerConfiguration)
				Expect(ok).To(BeTrue(), "%v", changed)
				ready := meta.FindStatusCondition(current.Status.Conditions, v1alpha1.ConditionReady)
				if current.Status.ObservedGeneration == current.Generation && (ready == nil || ready.Status == metav1.ConditionTrue) {
					Expect(ready.Reason).To(Equal(v1alpha1.ReasonEnforced))
					break
				}
			}
			probe := wrappers.MakeNamespace(framework.Unique("probe")).Obj()
			Expect(cluster.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			Expect(framework.PendingOf(probe)).To(Equal(initializers))
		}
		expectReady(name + ".test.example.com")
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
			configuration.Initializers = append(configuration.Initializers, v1alpha1.NamespaceInitializer{Name: "b." + name + ".example.com"})
			g.Expect(cluster.Admin.Update(ctx, configuration)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
		expectReady(name + ".test.example.com,b." + name + ".example.com")

		By("the columns")
		for _, test := range []struct{ flag, headers, cells string }{
			{"--output=", "NAME READY REASON AGE", name + " True Enforced"},
			{"--output=wide", "NAME READY REASON ACTIVE HEALTHY MESSAGE AGE", name + " True Enforced True True every new namespace"},
		} {
			output, err := cluster.Kubectl(ctx, cluster.Admin.Config, "get", "nsinit", name, test.flag)
			Expect(err).NotTo(HaveOccurred())
			AddReportEntry("kubectl get nsinit "+test.flag, output)
			headers, cells, _ := strings.Cut(output, "\n")
			Expect(strings.Join(strings.Fields(headers), " ")).To(Equal(test.headers))
			Expect(strings.Join(strings.Fields(cells), " ")).To(HavePrefix(test.cells))
		}

		output, err := cluster.Kubectl(ctx, cluster.Admin.Config, "get", "nslifecycle")
		Expect(err).NotTo(HaveOccurred())
		Expect(output).To(And(ContainSubstring(name), Not(ContainSubstring("effective"))), "the effective set is internal")

		By("the Events")
		Eventually(func(g Gomega) {
			var events eventsv1.EventList
			g.Expect(cluster.Admin.List(ctx, &events, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
			g.Expect(events.Items).To(ContainElement(And(
				HaveField("Regarding.UID", configuration.UID), HaveField("Reason", "Enforced"), HaveField("Type", "Normal"))))
		}).WithContext(ctx).Should(Succeed())
	})
})

var _ = Describe("A configuration", func() {
	expectHealthy := func(
		ctx context.Context, configuration *v1alpha1.NamespaceInitializerConfiguration,
		status metav1.ConditionStatus, reason string, messages ...string,
	) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
			condition := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionHealthy)
			g.Expect(condition).NotTo(BeNil())
			g.Expect(condition.Reason).To(Equal(reason), condition.Message)
			g.Expect(condition.Status).To(Equal(status))
			for _, message := range messages {
				g.Expect(condition.Message).To(ContainSubstring(message))
			}
		}).WithContext(ctx).Should(Succeed())
	}
	// reconcileUntil triggers reconciliations of all configurations until the condition has a status: what the operator
	// or the API server has cached can be stale in the first one.
	reconcileUntil := func(
		ctx context.Context, configuration *v1alpha1.NamespaceInitializerConfiguration, status metav1.ConditionStatus,
	) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Create(ctx, wrappers.MakeConfiguration("touch").Obj())).To(Succeed())
			g.Expect(cluster.Admin.Delete(ctx, wrappers.MakeConfiguration("touch").Obj())).To(Succeed())
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
			condition := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionHealthy)
			g.Expect(condition).To(HaveField("Status", status))
		}).WithContext(ctx).Should(Succeed())
	}

	It("reports whether its initializer is authorized", func(ctx context.Context) {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: framework.InitializerUser}}
		cluster.Admin.Reads(ctx, binding)
		bind := sync.OnceFunc(func() {
			binding.ResourceVersion = ""
			Expect(cluster.Admin.Create(context.WithoutCancel(ctx), binding)).To(Succeed())
		})
		cluster.Admin.Deletes(ctx, binding)
		DeferCleanup(bind)
		configuration := register(ctx, initializer(slow))
		expectHealthy(ctx, configuration, metav1.ConditionFalse, v1alpha1.ReasonInitializerUnauthorized, slow, "ClusterRoleBinding")

		bind()
		reconcileUntil(ctx, configuration, metav1.ConditionTrue)
		expectHealthy(ctx, configuration, metav1.ConditionTrue, v1alpha1.ReasonHealthy)
	})

	It("reports whether its initializer is unresponsive", func(ctx context.Context) {
		passive := clocktesting.NewFakePassiveClock(time.Now())
		cluster.PauseManager()
		cluster.StartManager(ctx, func(options *manager.Options) { options.Clock = passive })
		configuration := register(ctx, initializer(slow))
		expectHealthy(ctx, configuration, metav1.ConditionTrue, v1alpha1.ReasonHealthy)
		namespace := framework.CreateAs(ctx, cluster.Ordinary, wrappers.MakeNamespace(framework.Unique("waiting")).Obj())
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionInitializing, "True", v1alpha1.ReasonInitializing))
		passive.SetTime(time.Now().Add(2 * time.Minute))
		reconcileUntil(ctx, configuration, metav1.ConditionFalse)
		expectHealthy(ctx, configuration, metav1.ConditionFalse, v1alpha1.ReasonInitializerUnresponsive, slow, `namespace "`+namespace.Name+`"`)
		cluster.Finish(ctx, namespace.Name)
		Eventually(func(g Gomega) map[string]string { return cluster.GetNamespace(g, ctx, namespace.Name).Labels }).WithContext(ctx).
			ShouldNot(HaveKey(v1alpha1.LabelInitializing))
		reconcileUntil(ctx, configuration, metav1.ConditionTrue)
	})
})

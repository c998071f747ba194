// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"context"
	"fmt"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	absent = framework.Absent
	// unused is an initializer for which no namespace waits, so it is never unhealthy.
	unused = "unused.test.example.com"
)

var _ = Describe("kstatus of a NamespaceInitializerConfiguration", func() {
	It("is InProgress until the operator has observed the object, and until it has observed a change", func(ctx context.Context) {
		cluster.PauseManager()
		configuration := createConfiguration(ctx, unused)
		expectStatus(ctx, configuration, status.InProgressStatus)
		cluster.StartManager(ctx)
		expectStatus(ctx, configuration, status.CurrentStatus)
		cluster.StopManager()
		cluster.Admin.Patches(ctx, configuration, `{"initializers":[{"name":"other.test.example.com"}]}`)
		expectStatus(ctx, configuration, status.InProgressStatus)
		cluster.StartManager(ctx)
		expectStatus(ctx, configuration, status.CurrentStatus)
	})

	It("is Current when new namespaces get its initializers, and never before", func(ctx context.Context) {
		name := framework.Unique("effective") + ".test.example.com"
		configuration := createConfiguration(ctx, name)
		Eventually(func(g Gomega) {
			g.Expect(compute(g, ctx, configuration).Status).To(Equal(status.CurrentStatus))
		}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
		probe := wrappers.MakeNamespace("probe").Obj()
		Expect(cluster.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		Expect(framework.PendingOf(probe)).To(ContainSubstring(name))
	})

	It("is Current without initializers", func(ctx context.Context) {
		expectStatus(ctx, createConfiguration(ctx), status.CurrentStatus)
	})

	// Unhealthy initializers have the same effect on Ready, without Stalled: TestConfigurationConditions.
	// An upgrade of the policies passes through this state.
	It("is InProgress while the API server does not enforce the policies", func(ctx context.Context) {
		configuration := createConfiguration(ctx, unused)
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "nslifecycle-gate"}}
		cluster.Admin.Reads(ctx, binding)
		cluster.Admin.Deletes(ctx, binding.DeepCopy())
		DeferCleanup(func(ctx context.Context) {
			binding.ResourceVersion = ""
			cluster.Admin.Creates(ctx, binding)
			cluster.ExpectActive(ctx, configuration.Name)
		})
		expectReason(ctx, configuration, v1alpha1.ConditionActive, v1alpha1.ReasonPolicyMissing)
		expectStatus(ctx, configuration, status.InProgressStatus)
	})

	It("is Failed while its initializers exceed the limit of all configurations", func(ctx context.Context) {
		var configurations []*v1alpha1.NamespaceInitializerConfiguration
		for i := range 5 {
			var names []string
			for j := range 64 {
				names = append(names, fmt.Sprintf("n%d-%d.test.example.com", i, j))
			}
			configurations = append(configurations, createConfiguration(ctx, names...))
		}
		expectStatus(ctx, configurations[4], status.FailedStatus)
		expectStatus(ctx, configurations[0], status.CurrentStatus)
		cluster.Admin.Deletes(ctx, configurations[1])
		expectStatus(ctx, configurations[4], status.CurrentStatus)
	})

	It("is Terminating while another client's finalizer exists", func(ctx context.Context) {
		configuration := createConfiguration(ctx, unused)
		expectStatus(ctx, configuration, status.CurrentStatus)
		cluster.Admin.Patches(ctx, configuration, `{"metadata":{"finalizers":["test.example.com/absent"]}}`)
		cluster.Admin.Deletes(ctx, configuration)
		expectStatus(ctx, configuration, status.TerminatingStatus)
		cluster.Admin.Patches(ctx, configuration, `{"metadata":{"finalizers":null}}`)
		framework.ExpectDeleted(ctx, cluster.Admin, configuration)
	})
})

// createConfiguration creates a configuration, which exists until the spec ends.
func createConfiguration(ctx context.Context, names ...string) *v1alpha1.NamespaceInitializerConfiguration {
	GinkgoHelper()
	configuration := wrappers.MakeConfiguration(framework.Unique("kstatus")).Initializers(names...).Obj()
	cluster.Admin.Creates(ctx, configuration)
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(cluster.Admin.Delete(ctx, configuration))).To(Succeed())
		cluster.ExpectDeregistered(ctx, configuration.Name)
	})
	return configuration
}

// expectReason waits until the condition of a configuration has a reason.
func expectReason(
	ctx context.Context, configuration *v1alpha1.NamespaceInitializerConfiguration, conditionType, reason string,
) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
		condition := meta.FindStatusCondition(configuration.Status.Conditions, conditionType)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(condition.Reason).To(Equal(reason), condition.Message)
	}).WithContext(ctx).Should(Succeed())
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// These specs modify and restore the installation.
var _ = Describe("An installation for another Kubernetes version", Ordered, func() {
	BeforeAll(func(ctx context.Context) {
		configuration := wrappers.MakeConfiguration("installation").Initializers(rbac).Obj()
		Expect(admin.Create(ctx, configuration)).To(Succeed())
		DeferCleanup(deregister, configuration)
		expectActive(ctx, "installation", metav1.ConditionTrue, v1alpha1.ReasonEnforced)
		DeferCleanup(func(ctx context.Context) {
			Expect(plane.InstallFrom(ctx, fitting())).To(Succeed())
			expectActive(ctx, "installation", metav1.ConditionTrue, v1alpha1.ReasonEnforced)
		})
	})

	It("is reported if the API server does not serve the inject policy, and can be corrected", func(ctx context.Context) {
		if !byOperator {
			Skip("this API server serves MutatingAdmissionPolicy v1")
		}
		// kubectl reports an error for each kind that is not served, and applies all other objects.
		Expect(plane.InstallFrom(ctx, configDefault)).To(MatchError(ContainSubstring("MutatingAdmissionPolicy")))
		Expect(expectActive(ctx, "installation", metav1.ConditionFalse, v1alpha1.ReasonPolicyMismatch)).
			To(HaveSuffix("run: kubectl apply -k config/compat"))
		name := unique("mismatch")
		create(ctx, name)
		Consistently(func(g Gomega) {
			g.Expect(get(g, ctx, name)).NotTo(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonNotRequired))
		}).WithContext(ctx).Should(Succeed())
		Expect(plane.InstallFrom(ctx, configCompat)).To(Succeed())
		expectActive(ctx, "installation", metav1.ConditionTrue, v1alpha1.ReasonEnforced)
		expectPending(ctx, name)
	})

	It("is reported if the operator is not allowed to inject pending lists", func(ctx context.Context) {
		if !byOperator {
			Skip("the API server injects the list at creation")
		}
		role := &metav1.PartialObjectMetadata{}
		role.APIVersion, role.Kind = "rbac.authorization.k8s.io/v1", "ClusterRoleBinding"
		role.Name = "nslifecycle-namespace-injector"
		Expect(admin.Delete(ctx, role)).To(Succeed())
		// The operator does not watch RBAC objects, so it detects the change when it starts again.
		stopManager()
		startManager(ctx)
		Expect(expectActive(ctx, "installation", metav1.ConditionFalse, v1alpha1.ReasonRefused)).
			To(ContainSubstring(`the operator does not have the verb "inject"`))
		name := unique("refused")
		create(ctx, name)
		Eventually(func(g Gomega) {
			g.Expect(eventReasons(g, ctx, name)).To(ContainElement("NotInitialized"))
		}).WithContext(ctx).Should(Succeed())
		Expect(plane.InstallFrom(ctx, configCompat)).To(Succeed())
		expectActive(ctx, "installation", metav1.ConditionTrue, v1alpha1.ReasonEnforced)
		expectPending(ctx, name)
	})

	It("waits for a missing policy", func(ctx context.Context) {
		if !byOperator {
			Skip("see test/integration")
		}
		gate := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "nslifecycle-gate"}}
		Expect(admin.Delete(ctx, gate)).To(Succeed())
		Expect(expectActive(ctx, "installation", metav1.ConditionFalse, v1alpha1.ReasonPolicyMissing)).
			To(And(ContainSubstring(`ValidatingAdmissionPolicy "gate"`), HaveSuffix("config/compat")))
		name := unique("ungated")
		create(ctx, name)
		Consistently(func(g Gomega) {
			g.Expect(get(g, ctx, name).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
		Expect(plane.InstallFrom(ctx, configCompat)).To(Succeed())
		expectPending(ctx, name)
	})

	// This spec simulates an upgrade of the API server to 1.36, and then an upgrade of the installation.
	It("keeps injecting pending lists after an upgrade of the API server, until the inject policy is installed", func(ctx context.Context) {
		if byOperator {
			Skip("this API server does not serve MutatingAdmissionPolicy v1")
		}
		for _, kind := range []client.Object{
			&admissionv1.MutatingAdmissionPolicyBinding{}, &admissionv1.MutatingAdmissionPolicy{},
		} {
			Expect(admin.DeleteAllOf(ctx, kind, client.HasLabels{v1alpha1.LabelPolicy})).To(Succeed())
		}
		Expect(plane.InstallFrom(ctx, configCompat)).To(Succeed())
		byOperator = true
		DeferCleanup(func() { byOperator = false })
		Expect(expectActive(ctx, "installation", metav1.ConditionTrue, v1alpha1.ReasonEnforced)).
			To(HaveSuffix("which closes this gap; run: kubectl apply -k config/default"))
		before, pending := unique("compat"), unique("compat")
		createInjected(ctx, before)
		Expect(createInjected(ctx, pending).Annotations).To(HaveKey(v1alpha1.AnnotationInjectedAt))
		finish(ctx, before)
		expectWritable(ctx, before, v1alpha1.ReasonCompleted)

		Expect(plane.InstallFrom(ctx, configDefault)).To(Succeed())
		byOperator = false
		Eventually(func(g Gomega) {
			probe := wrappers.MakeNamespace(unique("probe")).Obj()
			g.Expect(ordinary.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			g.Expect(probe.Labels).To(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
		Expect(expectActive(ctx, "installation", metav1.ConditionTrue, v1alpha1.ReasonEnforced)).
			NotTo(ContainSubstring("operator"))
		Expect(createInjected(ctx, unique("default")).Annotations).NotTo(HaveKey(v1alpha1.AnnotationInjectedAt))
		// A namespace whose list was injected by the operator is initialized like any other.
		finish(ctx, pending)
		Expect(get(Default, ctx, pending).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		expectWritable(ctx, pending, v1alpha1.ReasonCompleted)
	})
})

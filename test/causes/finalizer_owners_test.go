// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// heldConfigMap has a finalizer. The cluster contains no evidence of the finalizer's owner.
const heldConfigMap = `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: $ns, name: held, finalizers: [` + testFinalizer + `]}
`

var _ = Describe("A finalizer", func() {
	It("is reported as pending if its owner is running", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, definition)
		f.create(ctx, heldWidget)
		f.createOperator(ctx)
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, inferred(diagnosis.CauseFinalizerPending, f.text("widgets.$id.example.com/held")).
			withMessage(f.text("$id.example.com/cleanup"), "widget-operator"))
		removeFinalizers(ctx, f.objects(heldWidget)[0])
		f.expectDeleted(ctx)
	})

	DescribeTable("is reported to have no running owner if", func(ctx context.Context, stopOwner func(context.Context, *fixture), expected expectedFinding) {
		f := newFixture(ctx)
		f.create(ctx, definition)
		f.create(ctx, heldWidget)
		f.createOperator(ctx)
		stopOwner(ctx, f)
		f.deleteNamespace(ctx)
		expected.objects = []string{f.text("widgets.$id.example.com/held")}
		f.expectFindings(ctx, expected.withMessage(f.text("$id.example.com/cleanup")))
		removeFinalizers(ctx, f.objects(heldWidget)[0])
		f.expectDeleted(ctx)
	},
		Entry("the Deployment is scaled to zero and the Lease is expired", func(ctx context.Context, f *fixture) {
			f.scaleOperator(ctx, 0)
			f.expireLease(ctx)
		}, inferred(diagnosis.CauseFinalizerOwnerNotRunning).withEvidence("widget-operator has 0 of 0 pods ready")),
		Entry("the Deployment has no ready pods", func(ctx context.Context, f *fixture) {
			f.scaleOperator(ctx, 1)
			f.expireLease(ctx)
		}, inferred(diagnosis.CauseFinalizerOwnerNotRunning).withEvidence("widget-operator has 0 of 1 pods ready")),
		Entry("the Deployment is deleted and the Lease is expired", func(ctx context.Context, f *fixture) {
			f.delete(ctx, `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: $id-system, name: widget-operator}}`)
			f.delete(ctx, operatorPod)
			f.expireLease(ctx)
		}, inferred(diagnosis.CauseFinalizerOwnerNotFound)),
		Entry("the owner's namespace is deleted, but not its ClusterRoleBinding", func(ctx context.Context, f *fixture) {
			f.delete(ctx, `{apiVersion: v1, kind: Namespace, metadata: {name: $id-system}}`)
			(&fixture{ns: f.text("$id-system")}).expectDeleted(ctx)
		}, inferred(diagnosis.CauseFinalizerOwnerNotFound).withMessage("ServiceAccount")),
		Entry("everything except the CRD is uninstalled", func(ctx context.Context, f *fixture) {
			f.delete(ctx, `
{apiVersion: v1, kind: Namespace, metadata: {name: $id-system}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: $id-widget-operator}}
`)
			(&fixture{ns: f.text("$id-system")}).expectDeleted(ctx)
		}, inferred(diagnosis.CauseFinalizerOwnerNotFound)),
	)

	It("is reported if its owner is no longer authorized", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, definition)
		f.create(ctx, heldWidget)
		f.createOperator(ctx)
		f.delete(ctx, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $id-widget-operator}
`)
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, inferred(diagnosis.CauseFinalizerOwnerForbidden, f.text("widgets.$id.example.com/held")).
			withMessage(f.text("$id-system"), "widget-operator"))
		removeFinalizers(ctx, f.objects(heldWidget)[0])
		f.expectDeleted(ctx)
	})

	It("is reported if its owner ran in the deleted namespace", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, definition)
		f.create(ctx, heldWidget)
		f.create(ctx, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: $id-widget-operator}
rules:
- {apiGroups: [$id.example.com], resources: [widgets/finalizers], verbs: [update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $id-widget-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: $id-widget-operator}
subjects:
- {kind: ServiceAccount, namespace: $ns, name: $id-widget-operator}
`)
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, inferred(diagnosis.CauseFinalizerOwnerInNamespace, f.text("widgets.$id.example.com/held")).
			withMessage("ServiceAccount", f.ns))
		removeFinalizers(ctx, f.objects(heldWidget)[0])
		f.expectDeleted(ctx)
	})

	It("is reported if there is no evidence of its owner", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, heldConfigMap)
		f.create(ctx, `
{apiVersion: v1, kind: Secret, metadata: {namespace: $ns, name: also-held, finalizers: [`+testFinalizer+`]}}
`)
		f.deleteNamespace(ctx)
		result := f.expectFindings(ctx, inferred(diagnosis.CauseFinalizerOwnerNotFound, "configmaps/held", "secrets/also-held").
			withMessage(testFinalizer))
		Expect(result.Findings[0].Count).To(Equal(2))
		removeFinalizers(ctx, f.objects(heldConfigMap)[0])
		removeFinalizers(ctx, f.objects(`{apiVersion: v1, kind: Secret, metadata: {namespace: $ns, name: also-held}}`)[0])
		f.expectDeleted(ctx)
	})

	It("has no owner that was found if its name does not identify the owner", func(ctx context.Context) {
		f := newFixture(ctx)
		const held = `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: $ns, name: held, finalizers: [kubernetes]}
`
		f.create(ctx, held)
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, inferred(diagnosis.CauseFinalizerOwnerNotFound, "configmaps/held"))
		removeFinalizers(ctx, f.objects(held)[0])
		f.expectDeleted(ctx)
	})

	It("is reported in one finding with five names and a count if many objects have it", func(ctx context.Context) {
		f := newFixture(ctx)
		for i := range 30 {
			f.create(ctx, fmt.Sprintf(`
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: held-%02d, finalizers: [`+testFinalizer+`]}}
`, i))
		}
		f.deleteNamespace(ctx)
		// The objects are deleted one after the other, and each is reported after the progress deadline.
		Eventually(func(g Gomega) []diagnosis.Finding { return f.diagnose(g, ctx, collector).Findings }).WithContext(ctx).
			Should(HaveExactElements(HaveField("Count", 30)))
		result := f.expectFindings(ctx, inferred(diagnosis.CauseFinalizerOwnerNotFound, "configmaps/held-00", "configmaps/held-01",
			"configmaps/held-02", "configmaps/held-03", "configmaps/held-04").withMessage("30 configmaps"))
		Expect(result.Findings[0].Count).To(Equal(30))
	})
})

// scaleOperator scales the fixture's operator and leaves it without ready pods.
func (f *fixture) scaleOperator(ctx context.Context, replicas int32) {
	GinkgoHelper()
	f.delete(ctx, operatorPod)
	deployment := &appsv1.Deployment{}
	deployment.Namespace, deployment.Name = f.text("$id-system"), "widget-operator"
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		deployment.Spec.Replicas = &replicas
		g.Expect(admin.Update(ctx, deployment)).To(Succeed())
		deployment.Status = appsv1.DeploymentStatus{Replicas: replicas}
		g.Expect(admin.Status().Update(ctx, deployment)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// expireLease sets the renew time of the operator's Lease to an hour ago.
func (f *fixture) expireLease(ctx context.Context) {
	GinkgoHelper()
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = f.text("$id-system"), f.text("widgets.$id.example.com")
	Expect(admin.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Hour)}
	Expect(admin.Update(ctx, lease)).To(Succeed())
}

// publishOnNamespace publishes a condition with status False on the namespace, as packages initializer and
// finalizer do.
func (f *fixture) publishOnNamespace(ctx context.Context, conditionType, reason, message string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		namespace := f.namespace(g, ctx) // The manager might update the status concurrently.
		others := slices.DeleteFunc(namespace.Status.Conditions, func(condition corev1.NamespaceCondition) bool {
			return string(condition.Type) == conditionType
		})
		namespace.Status.Conditions = append(others, corev1.NamespaceCondition{
			Type: corev1.NamespaceConditionType(conditionType), Status: corev1.ConditionFalse,
			Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
		})
		g.Expect(admin.Status().Update(ctx, namespace)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// addNamespaceFinalizer adds an entry to spec.finalizers of the namespace.
func (f *fixture) addNamespaceFinalizer(ctx context.Context, finalizer corev1.FinalizerName) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		namespace := f.namespace(g, ctx) // The manager might update the status concurrently.
		namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, finalizer)
		g.Expect(admin.SubResource("finalize").Update(ctx, namespace)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("A Namespace", func() {
	It("is blocked by a namespace finalizer of another controller", func(ctx context.Context) {
		f := newFixture(ctx)
		f.addNamespaceFinalizer(ctx, "agent.example.org/origin")
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CauseNamespaceFinalizer, "namespaces/"+f.ns).withMessage("agent.example.org/origin"))
		setNamespaceFinalizer(ctx, f.ns, corev1.FinalizerKubernetes)
		f.expectDeleted(ctx)
	})

	It("is blocked by a namespace finalizer whose owner published why it has not removed it", func(ctx context.Context) {
		f := newFixture(ctx)
		f.addNamespaceFinalizer(ctx, "corp.example.com/backup")
		f.publishOnNamespace(ctx, "corp.example.com/backup", "Retrying", "s3: AccessDenied")
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, published(diagnosis.CauseNamespaceFinalizer, "namespaces/"+f.ns).
			withMessage("condition corp.example.com/backup=False, Retrying: s3: AccessDenied"))
		setNamespaceFinalizer(ctx, f.ns, corev1.FinalizerKubernetes)
		f.expectDeleted(ctx)
	})

	It("is blocked by the namespace finalizer of an initializer that is not running", func(ctx context.Context) {
		configuration := wrappers.MakeConfiguration("search").Initializer("index.search.example.com",
			v1alpha1.InitializerSettings{Finalizer: "search.example.com/index", NamespaceSelector: &v1alpha1.NamespaceSelector{
				MatchLabels: map[string]v1alpha1.LabelValue{"search.example.com/indexed": "true"},
			}}).Obj()
		Expect(admin.Create(ctx, configuration)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, configuration)).To(Succeed()) })
		f := newFixture(ctx)
		f.addNamespaceFinalizer(ctx, "search.example.com/index")
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CauseNamespaceFinalizer, "namespaces/"+f.ns).withMessage("search.example.com/index",
			"initializer index.search.example.com", `configuration "search"`))
		setNamespaceFinalizer(ctx, f.ns, corev1.FinalizerKubernetes)
		f.expectDeleted(ctx)
	})

	It("is blocked by an entry of metadata.finalizers without an owner", func(ctx context.Context) {
		f := newFixture(ctx)
		patch := client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":["controller.cattle.io/namespace-auth"]}}`))
		Expect(admin.Patch(ctx, f.namespace(Default, ctx), patch)).To(Succeed())
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CauseNamespaceMetadataFinalizer, "namespaces/"+f.ns).
			withMessage("controller.cattle.io/namespace-auth"))
		removeFinalizers(ctx, f.namespace(Default, ctx))
		f.expectDeleted(ctx)
	})

	It("is blocked first by remaining objects and then by namespace finalizers", func(ctx context.Context) {
		f := newFixture(ctx)
		f.addNamespaceFinalizer(ctx, "agent.example.org/origin")
		f.create(ctx, heldConfigMap)
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, inferred(diagnosis.CauseFinalizerOwnerNotFound, "configmaps/held"))
		removeFinalizers(ctx, f.objects(heldConfigMap)[0])
		f.expectResolved(ctx, diagnosis.CauseFinalizerOwnerNotFound)
		// On a busy machine, finalization can take longer than the progress deadline of this suite.
		Eventually(func(g Gomega) []corev1.FinalizerName { return f.namespace(g, ctx).Spec.Finalizers }).
			WithContext(ctx).ShouldNot(ContainElement(corev1.FinalizerKubernetes))
		f.expectFindings(ctx, proven(diagnosis.CauseNamespaceFinalizer, "namespaces/"+f.ns))
		setNamespaceFinalizer(ctx, f.ns, corev1.FinalizerKubernetes)
		f.expectDeleted(ctx)
	})
})

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// heldConfigMap has a finalizer. The cluster contains no evidence of the finalizer's owner.
var heldConfigMap = makeHeld("held")

func makeHeld(name string) string {
	return `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: ` + name + `, finalizers: [` + testFinalizer + `]}}
`
}

// certManager is the part of cert-manager that a diagnosis reads.
const certManager = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: challenges.acme.cert-manager.io
spec:
  group: acme.cert-manager.io
  scope: Namespaced
  names: {kind: Challenge, plural: challenges}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {status: {type: object, properties: {reason: {type: string}}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: cert-manager}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: cert-manager, name: cert-manager}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: cert-manager}
rules:
- {apiGroups: [acme.cert-manager.io], resources: [challenges], verbs: [list, watch, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cert-manager}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cert-manager}
subjects:
- {kind: ServiceAccount, namespace: cert-manager, name: cert-manager}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: cert-manager, name: cert-manager}
spec:
  selector: {matchLabels: &labels {app.kubernetes.io/name: cert-manager, app.kubernetes.io/component: controller}}
  template:
    metadata: {labels: *labels}
    spec:
      serviceAccountName: cert-manager
      containers: [{name: controller, image: "registry.example.com/cert-manager-controller:v1"}]
status: {replicas: 1, readyReplicas: 1, availableReplicas: 1}
`

// challenge has a finalizer of cert-manager.
const challenge = `
apiVersion: acme.cert-manager.io/v1
kind: Challenge
metadata: {namespace: $ns, name: held, finalizers: [acme.cert-manager.io/finalizer]}
`

var _ = Describe("A finalizer", func() {
	DescribeTable("of a custom resource is reported if", func(ctx context.Context, changeOwner func(context.Context, *fixture), expected expectedFinding) {
		f := newFixture(ctx)
		f.create(ctx, definition)
		f.create(ctx, heldWidget)
		f.createOperator(ctx)
		changeOwner(ctx, f)
		expected.objects = []string{"widgets.$id.example.com/held"}
		f.expectStuck(ctx, expected.withMessage("$id.example.com/cleanup"), removeFinalizersOf(heldWidget))
	},
		Entry("its owner is no longer authorized", func(ctx context.Context, f *fixture) {
			f.delete(ctx, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: $id-widget-operator}}`)
		}, inferred(diagnosis.CauseFinalizerOwnerForbidden).withEvidence("$id-system/widget-operator")),
		Entry("the Deployment is scaled to zero and the Lease is expired", func(ctx context.Context, f *fixture) {
			f.scaleOperator(ctx, 0)
			f.expireLease(ctx)
		}, inferred(diagnosis.CauseFinalizerOwnerNotRunning).withEvidence("widget-operator has 0 of 0 pods ready")),
		Entry("the owner's namespace is deleted, but not its ClusterRoleBinding", func(ctx context.Context, f *fixture) {
			f.delete(ctx, `{apiVersion: v1, kind: Namespace, metadata: {name: $id-system}}`)
			(&fixture{ns: f.text("$id-system")}).expectDeleted(ctx)
		}, inferred(diagnosis.CauseFinalizerOwnerNotFound).withEvidence("ServiceAccount")),
	)

	It("of a known controller is reported with what the controller does and publishes", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, certManager)
		f.create(ctx, challenge)
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, inferred(diagnosis.CauseFinalizerPending, "challenges.acme.cert-manager.io/held").
			withMessage("its owner seems to be running").withEvidence("cert-manager/cert-manager"))

		By("publishing why the deletion fails")
		object := f.objects(challenge)[0]
		// The field manager that added the finalizer would seem to be running for some time.
		Expect(admin.Patch(ctx, object, framework.MergePatch(
			`{"status":{"reason":"Error cleaning up challenge: AccessDenied"}}`), client.FieldOwner("manager"))).To(Succeed())
		f.expectFindings(ctx, published(diagnosis.CauseFinalizerOwnerFailing, "challenges.acme.cert-manager.io/held").
			withMessage("field status.reason: Error cleaning up challenge: AccessDenied"))

		By("scaling the controller to zero")
		deployment := &appsv1.Deployment{}
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: "cert-manager", Name: "cert-manager"}, deployment)).To(Succeed())
		deployment.Spec.Replicas = new(int32(0))
		admin.Updates(ctx, deployment)
		deployment.Status = appsv1.DeploymentStatus{}
		Expect(admin.Status().Update(ctx, deployment)).To(Succeed())
		f.expectFindings(ctx, inferred(diagnosis.CauseFinalizerOwnerNotRunning, "challenges.acme.cert-manager.io/held").
			withEvidence("cert-manager/cert-manager has 0 of 0 pods ready"))

		By("uninstalling the controller")
		admin.Deletes(ctx, deployment)
		f.expectFindings(ctx, inferred(diagnosis.CauseFinalizerOwnerNotFound, "challenges.acme.cert-manager.io/held").
			withMessage("the controller of cert-manager"))
		removeFinalizers(ctx, object)
		f.expectDeleted(ctx)
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
	admin.Reads(ctx, lease)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Hour)}
	admin.Updates(ctx, lease)
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
	It("is blocked by a namespace finalizer whose owner published why it has not removed it", func(ctx context.Context) {
		f := newFixture(ctx)
		f.addNamespaceFinalizer(ctx, "corp.example.com/backup")
		f.publishOnNamespace(ctx, "corp.example.com/backup", "Retrying", "s3: AccessDenied")
		f.expectStuck(ctx, published(diagnosis.CauseNamespaceFinalizer, "namespaces/$ns").
			withMessage("condition corp.example.com/backup=False, Retrying: s3: AccessDenied"), removeNamespaceFinalizers)
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
		f.expectFindings(ctx, proven(diagnosis.CauseNamespaceFinalizer, "namespaces/$ns"))
		framework.SetNamespaceFinalizers(ctx, admin, f.ns, corev1.FinalizerKubernetes)
		f.expectDeleted(ctx)
	})
})

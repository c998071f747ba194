// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// pod runs on the fixture's node. It does not terminate, because no kubelet is running.
const pod = `
apiVersion: v1
kind: Pod
metadata: {namespace: $ns, name: web}
spec:
  nodeName: $id-node
  terminationGracePeriodSeconds: 1
  containers: [{name: web, image: registry.example.com/web}]
status: {phase: Running}
`

// node contains a Node and the Lease of its kubelet.
const node = `
apiVersion: v1
kind: Node
metadata: {name: $id-node}
status:
  conditions:
  - {type: Ready, status: "$ready", reason: $reason, message: "$message", lastHeartbeatTime: $then, lastTransitionTime: $then}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: kube-node-lease, name: $id-node}
spec: {holderIdentity: $id-node, leaseDurationSeconds: 40, renewTime: "$renewed"}
`

func unreachableNode() string {
	return strings.NewReplacer("$ready", "Unknown", "$reason", "NodeStatusUnknown",
		"$message", "Kubelet stopped posting node status.", "$then", "2026-01-01T00:00:00Z",
		"$renewed", "2026-01-01T00:00:00.000000Z").Replace(node)
}

func readyNode() string {
	now := time.Now().UTC()
	return strings.NewReplacer("$ready", "True", "$reason", "KubeletReady",
		"$message", "kubelet is posting ready status", "$then", now.Format(time.RFC3339),
		"$renewed", now.Format("2006-01-02T15:04:05.000000Z")).Replace(node)
}

// forceDeletePod deletes the pod as a kubelet does after the containers have stopped.
func (f *fixture) forceDeletePod(ctx context.Context) {
	GinkgoHelper()
	object := f.objects(`{apiVersion: v1, kind: Pod, metadata: {namespace: $ns, name: web}}`)[0]
	Expect(admin.Delete(ctx, object, client.GracePeriodSeconds(0))).To(Succeed())
}

const claim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: $ns, name: data, finalizers: [kubernetes.io/pvc-protection]}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// stoppedControllerManager is the Lease of a kube-controller-manager that is not running.
const stoppedControllerManager = `
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: kube-system, name: kube-controller-manager}
spec: {holderIdentity: control-plane_1, leaseDurationSeconds: 15, renewTime: "2026-01-01T00:00:00.000000Z"}
`

var _ = DescribeTable("An object that blocks the deletion is reported:",
	func(ctx context.Context, content string, expected expectedFinding, release func(*fixture, context.Context)) {
		f := newFixture(ctx)
		f.create(ctx, content)
		f.expectStuck(ctx, expected, release)
	},
	Entry("a pod on an unreachable node", unreachableNode()+"---"+pod, proven(diagnosis.CausePodOnUnreachableNode, "pods/web").
		withMessage("$id-node").withEvidence("Kubelet stopped posting node status."), (*fixture).forceDeletePod),
	Entry("a volume while kube-controller-manager is not running", claim+stoppedControllerManager,
		inferred(diagnosis.CauseFinalizerOwnerNotRunning, "persistentvolumeclaims/data").
			withMessage("kubernetes.io/pvc-protection", "kube-controller-manager"), removeFinalizersOf(claim)),
)

var _ = Describe("A pod", func() {
	It("is reported if it does not terminate on a ready node", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, readyNode())
		f.create(ctx, pod)
		f.expectStuck(ctx, proven(diagnosis.CausePodNotTerminating, "pods/web").withMessage("$id-node"), (*fixture).forceDeletePod)
	})

	It("is not reported if a policy prevents the kubelet from deleting it", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, readyNode())
		f.create(ctx, pod)
		f.deleteNamespace(ctx)
		f.expectTerminating(ctx, pod)
		guard := makePolicy("DELETE", "pods", "false", "deletion is protected")
		f.create(ctx, guard)
		f.expectDenied(ctx, pod, func(object client.Object) error {
			return admin.Delete(ctx, object, client.DryRunAll, client.GracePeriodSeconds(0))
		})
		f.expectFindings(ctx, proven(diagnosis.CauseAdmissionRejected, "pods/web").withMessage("$id-guard"))
		f.delete(ctx, guard)
		Eventually(func() error {
			return admin.Delete(ctx, f.objects(pod)[0], client.GracePeriodSeconds(0))
		}).WithContext(ctx).Should(Succeed())
		f.expectDeleted(ctx)
	})
})

var _ = DescribeTable("A foreground deletion is reported",
	func(ctx context.Context, dependent string, expected expectedFinding) {
		f := newFixture(ctx)
		const owner = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: owner}}`
		uid := f.create(ctx, owner)[0].GetUID()
		f.create(ctx, strings.ReplaceAll(dependent, "$uid", string(uid)))
		// The namespace controller does not delete the owner while pods remain. A background
		// deletion would cancel the foreground deletion.
		f.create(ctx, readyNode())
		f.create(ctx, strings.Replace(pod, "GracePeriodSeconds: 1", "GracePeriodSeconds: 600", 1))
		Expect(admin.Delete(ctx, f.objects(owner)[0], client.PropagationPolicy("Foreground"))).To(Succeed())
		f.expectStuck(ctx, expected, (*fixture).forceDeletePod)
	},
	Entry("with a dependent that is not deleted", `
apiVersion: v1
kind: ConfigMap
metadata:
  namespace: $ns
  name: dependent
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: $uid, blockOwnerDeletion: true}]
`, proven(diagnosis.CauseForegroundDeletion, "configmaps/owner").withEvidence(`configmaps "dependent"`)),
)

var _ = DescribeTable("A custom resource that cannot be finalized is reported with its condition",
	func(ctx context.Context, condition string, expected expectedFinding) {
		f := newFixture(ctx)
		f.create(ctx, strings.NewReplacer("    storage: true\n", "    storage: true\n    subresources: {status: {}}\n",
			"        properties:\n",
			"        properties:\n          status: {type: object, x-kubernetes-preserve-unknown-fields: true}\n",
		).Replace(definition))
		f.createOperator(ctx)
		f.create(ctx, heldWidget+"status: {conditions: ["+condition+"]}\n")
		expected.objects = []string{"widgets.$id.example.com/held"}
		f.expectStuck(ctx, expected, removeFinalizersOf(heldWidget))
	},
	Entry("that names an object that does not exist", `{type: Ready, status: "False", reason: DeletionFailed,
     lastTransitionTime: "2026-01-01T00:00:00Z", message: 'cannot log in to the database: secrets "admin-password" not found'}`,
		published(diagnosis.CauseDependencyMissing).withMessage("admin-password").
			withEvidence(`secrets "admin-password" does not exist in the namespace`)),
)

// definition is the CRD of Widgets in the fixture's API group.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.$id.example.com
  labels: {app.kubernetes.io/instance: $id, app.kubernetes.io/part-of: widgets}
spec:
  group: $id.example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: string}}
`

// heldWidget has a finalizer in the domain of the fixture's API group.
const heldWidget = `
apiVersion: $id.example.com/v1
kind: Widget
metadata: {namespace: $ns, name: held, finalizers: [$id.example.com/cleanup]}
spec: {size: small}
`

// changeDefinition updates the fixture's CRD.
func (f *fixture) changeDefinition(ctx context.Context, change func(*apiextensionsv1.CustomResourceDefinition)) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		g.Expect(admin.Get(ctx, client.ObjectKey{Name: f.text("widgets.$id.example.com")}, crd)).To(Succeed())
		change(crd)
		g.Expect(admin.Update(ctx, crd)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("A custom resource", func() {
	It("cannot be read while its conversion webhook is missing", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, definition)
		f.create(ctx, `
apiVersion: $id.example.com/v1
kind: Widget
metadata: {namespace: $ns, name: old}
spec: {size: small}
`)
		f.changeDefinition(ctx, func(crd *apiextensionsv1.CustomResourceDefinition) {
			next := *crd.Spec.Versions[0].DeepCopy()
			next.Name = "v2"
			crd.Spec.Versions[0].Storage = false
			crd.Spec.Versions = append(crd.Spec.Versions, next)
			path := "/convert"
			crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook: &apiextensionsv1.WebhookConversion{
					ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{
						Namespace: f.text("$id-system"), Name: "converter", Path: &path,
					}},
					ConversionReviewVersions: []string{"v1"},
				},
			}
		})
		Eventually(func() error {
			_, err := runShell(ctx, f.text("kubectl get widgets.v2.$id.example.com --namespace=$ns"))
			return err
		}).WithContext(ctx).ShouldNot(Succeed())
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CauseConversionWebhookFailing,
			f.text("customresourcedefinitions.apiextensions.k8s.io/widgets.$id.example.com")).
			withMessage("$id-system", "converter"))

		By("disabling the conversion webhook")
		f.changeDefinition(ctx, func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		})
		f.expectDeleted(ctx)
	})

	It("is reported if it is no longer valid, so its finalizer cannot be removed", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, definition)
		f.create(ctx, heldWidget)
		f.createOperator(ctx)
		f.changeDefinition(ctx, func(crd *apiextensionsv1.CustomResourceDefinition) {
			schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
			schema.Properties["metadata"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
			schema.XValidations = apiextensionsv1.ValidationRules{{
				Rule: "self.spec.size == 'large'", Message: "only large widgets are allowed",
			}}
		})
		f.expectDenied(ctx, heldWidget, dryRunRemoveFinalizers(ctx))
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CauseFinalizerRemovalInvalid, "widgets.$id.example.com/held").
			withMessage("$id.example.com/cleanup").withEvidence("only large widgets are allowed"))

		By("correcting the object")
		patch := framework.MergePatch(`{"metadata":{"finalizers":null},"spec":{"size":"large"}}`)
		Expect(admin.Patch(ctx, f.objects(heldWidget)[0], patch)).To(Succeed())
		f.expectDeleted(ctx)
	})
})

// operator contains the objects of a controller for the fixture's API group. The manifest sets
// their status, because no pods run.
const operator = `
apiVersion: v1
kind: Namespace
metadata: {name: $id-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: $id-system, name: widget-operator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: $id-widget-operator}
rules:
- {apiGroups: [$id.example.com], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $id-widget-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: $id-widget-operator}
subjects:
- {kind: ServiceAccount, namespace: $id-system, name: widget-operator}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  namespace: $id-system
  name: widget-operator
  labels: {app.kubernetes.io/instance: $id, app.kubernetes.io/part-of: widgets}
spec:
  selector: {matchLabels: {app: widget-operator}}
  template:
    metadata: {labels: {app: widget-operator}}
    spec:
      serviceAccountName: widget-operator
      containers:
      - {name: manager, image: registry.example.com/$id/widget-operator}
status: {replicas: 1, readyReplicas: 1, availableReplicas: 1, updatedReplicas: 1}
---
apiVersion: v1
kind: Pod
metadata: {namespace: $id-system, name: widget-operator-7d4, labels: {app: widget-operator}}
spec:
  serviceAccountName: widget-operator
  nodeName: some-node
  terminationGracePeriodSeconds: 0
  containers: [{name: manager, image: registry.example.com/$id/widget-operator}]
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: $id-system, name: widgets.$id.example.com}
spec: {holderIdentity: widget-operator-7d4_1, leaseDurationSeconds: 15, renewTime: "$now"}
`

const operatorPod = `{apiVersion: v1, kind: Pod, metadata: {namespace: $id-system, name: widget-operator-7d4}}`

// createOperator creates the objects of a controller that appears to be running.
func (f *fixture) createOperator(ctx context.Context) {
	GinkgoHelper()
	f.create(ctx, strings.ReplaceAll(operator, "$now", time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")))
}

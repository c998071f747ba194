// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
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
			withMessage(f.text("$id-system"), "converter"))

		By("disabling the conversion webhook")
		f.changeDefinition(ctx, func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		})
		f.expectDeleted(ctx)
	})

	It("is blocked by its own finalizer while its CRD is terminating", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, definition)
		f.create(ctx, heldWidget)
		f.delete(ctx, definition)
		f.deleteNamespace(ctx)
		// The CRD waits for the object, so it is evidence and not a finding.
		f.expectFindings(ctx, inferred(diagnosis.CauseFinalizerOwnerNotFound, f.text("widgets.$id.example.com/held")).
			withEvidence(f.text(`CustomResourceDefinition "widgets.$id.example.com" has deletionTimestamp`), "InstanceDeletion"))
		removeFinalizers(ctx, f.objects(heldWidget)[0])
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
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CauseFinalizerRemovalInvalid, f.text("widgets.$id.example.com/held")).
			withMessage(f.text("$id.example.com/cleanup")).withEvidence("only large widgets are allowed"))

		By("correcting the object")
		patch := client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":null},"spec":{"size":"large"}}`))
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

// preserveStatus makes the API server preserve unknown status fields of Widgets.
func preserveStatus(crd *apiextensionsv1.CustomResourceDefinition) {
	isPreserved := true
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"] = apiextensionsv1.JSONSchemaProps{
		Type: "object", XPreserveUnknownFields: &isPreserved,
	}
}

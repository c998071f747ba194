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

// definition is a CRD whose group nobody else has: Widgets with a size.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.$id.example.com}
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

// heldWidget has a finalizer of its own group.
const heldWidget = `
apiVersion: $id.example.com/v1
kind: Widget
metadata: {namespace: $ns, name: held, finalizers: [$id.example.com/cleanup]}
spec: {size: small}
`

// changeDefinition changes the CRD of the scene.
func (s *scene) changeDefinition(ctx context.Context, change func(*apiextensionsv1.CustomResourceDefinition)) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		g.Expect(admin.Get(ctx, client.ObjectKey{Name: s.text("widgets.$id.example.com")}, crd)).To(Succeed())
		change(crd)
		g.Expect(admin.Update(ctx, crd)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

var _ = Describe("A custom resource", func() {
	It("whose conversion webhook is gone cannot be read", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, definition)
		s.create(ctx, `
apiVersion: $id.example.com/v1
kind: Widget
metadata: {namespace: $ns, name: old}
spec: {size: small}
`)
		s.changeDefinition(ctx, func(crd *apiextensionsv1.CustomResourceDefinition) {
			next := *crd.Spec.Versions[0].DeepCopy()
			next.Name = "v2"
			crd.Spec.Versions[0].Storage = false
			crd.Spec.Versions = append(crd.Spec.Versions, next)
			path := "/convert"
			crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook: &apiextensionsv1.WebhookConversion{
					ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{
						Namespace: s.text("$id-system"), Name: "converter", Path: &path,
					}},
					ConversionReviewVersions: []string{"v1"},
				},
			}
		})
		Eventually(func() error {
			_, err := runShell(ctx, s.text("kubectl get widgets.v2.$id.example.com --namespace=$ns"))
			return err
		}).WithContext(ctx).ShouldNot(Succeed())
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CauseConversionWebhookFailing,
			s.text("customresourcedefinitions.apiextensions.k8s.io/widgets.$id.example.com")).
			saying(s.text("$id-system"), "converter"))

		By("converting without a webhook")
		s.changeDefinition(ctx, func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		})
		s.expectGone(ctx)
	})

	It("whose CRD is being deleted is held by its own finalizer", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, definition)
		s.create(ctx, heldWidget)
		s.delete(ctx, definition)
		s.end(ctx)
		// The CRD waits for the object, and not the other way round.
		s.expectBlamed(ctx, likely(diagnosis.CauseFinalizerOwnerGone, s.text("widgets.$id.example.com/held")).
			since(s.text(`CustomResourceDefinition "widgets.$id.example.com" has deletionTimestamp`), "InstanceDeletion"))
		release(ctx, s.objects(heldWidget)[0])
		s.expectGone(ctx)
	})

	It("that does not pass validation any more keeps its finalizer", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, definition)
		s.create(ctx, heldWidget)
		s.createOperator(ctx)
		s.changeDefinition(ctx, func(crd *apiextensionsv1.CustomResourceDefinition) {
			schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
			schema.Properties["metadata"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
			schema.XValidations = apiextensionsv1.ValidationRules{{
				Rule: "self.spec.size == 'large'", Message: "only large widgets are allowed",
			}}
		})
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CauseFinalizerRemovalInvalid, s.text("widgets.$id.example.com/held")).
			saying(s.text("$id.example.com/cleanup")).since("only large widgets are allowed"))

		By("correcting the object")
		patch := client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":null},"spec":{"size":"large"}}`))
		Expect(admin.Patch(ctx, s.objects(heldWidget)[0], patch)).To(Succeed())
		s.expectGone(ctx)
	})
})

// operator is a controller of the group of the scene: what it leaves in a cluster. That its
// pods are ready is said by nobody but the test.
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
  labels: {app.kubernetes.io/name: $id-widget-operator, app.kubernetes.io/part-of: widgets.$id.example.com}
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

// createOperator makes a controller that seems to be alive.
func (s *scene) createOperator(ctx context.Context) {
	GinkgoHelper()
	s.create(ctx, strings.ReplaceAll(operator, "$now", time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")))
}

// preserveStatus makes the API server keep whatever a Widget has as its status.
func preserveStatus(crd *apiextensionsv1.CustomResourceDefinition) {
	isPreserved := true
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"] = apiextensionsv1.JSONSchemaProps{
		Type: "object", XPreserveUnknownFields: &isPreserved,
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// makeWebhook returns a webhook for requests to delete or update ConfigMaps in the fixture's namespace. The kind is
// Validating or Mutating. A request fails if the webhook does not respond within the timeout.
func makeWebhook(kind, clientConfig string, timeoutSeconds int) string {
	return strings.NewReplacer("$kind", kind, "$client", clientConfig, "$timeout", strconv.Itoa(timeoutSeconds)).Replace(`
apiVersion: admissionregistration.k8s.io/v1
kind: $kindWebhookConfiguration
metadata: {name: $id-guard}
webhooks:
- name: guard.$id.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: $timeout
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}
  rules:
  - {operations: [DELETE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps], scope: Namespaced}
  clientConfig: $client
`)
}

// makePolicy returns a policy that denies requests in the fixture's namespace unless the expression is true.
func makePolicy(operations, resources, expression, message string) string {
	return strings.NewReplacer("$operations", operations, "$resources", resources, "$expression", expression, "$message", message).Replace(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: $id-guard}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}
    resourceRules:
    - {operations: [$operations], apiGroups: [""], apiVersions: [v1], resources: [$resources]}
  validations:
  - {expression: "$expression", message: "$message"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: $id-guard}
spec: {policyName: $id-guard, validationActions: [Deny]}
`)
}

const twoConfigMaps = `
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: one}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: two}}
`

// serveWebhook serves a webhook until the spec ends and returns its clientConfig. denialReason
// returns the reason to deny a request with the given code, or "" to allow the request.
func serveWebhook(code int32, denialReason func(*admissionv1.AdmissionRequest) string) string {
	_, clientConfig := framework.ServeWebhook(code, denialReason)
	config, err := json.Marshal(clientConfig)
	Expect(err).NotTo(HaveOccurred())
	return string(config)
}

// denyDeletions serves a webhook that denies every deletion with the given code.
func denyDeletions(code int32) string {
	return serveWebhook(code, func(request *admissionv1.AdmissionRequest) string {
		if request.Operation == admissionv1.Delete {
			return "deletion is protected"
		}
		return ""
	})
}

// denyFinalizerRemovals serves a webhook that denies the removal of finalizers.
func denyFinalizerRemovals() string {
	return serveWebhook(http.StatusForbidden, func(request *admissionv1.AdmissionRequest) string {
		var object metav1.PartialObjectMetadata
		if request.Operation == admissionv1.Update && json.Unmarshal(request.Object.Raw, &object) == nil &&
			len(object.Finalizers) == 0 {
			return "the finalizer is protected"
		}
		return ""
	})
}

// webhookInService is the clientConfig of a webhook behind a Service of the fixture.
const webhookInService = `{service: {namespace: $id-system, name: guard, path: /validate}}`

// expectDenied waits until the API server denies a change to the objects of a manifest.
func (f *fixture) expectDenied(ctx context.Context, text string, change func(client.Object) error) {
	GinkgoHelper()
	for _, object := range f.objects(text) {
		Eventually(func() error { return change(object) }).WithContext(ctx).ShouldNot(Succeed())
	}
}

func dryRunDelete(ctx context.Context) func(client.Object) error {
	return func(object client.Object) error { return admin.Delete(ctx, object, client.DryRunAll) }
}

func dryRunRemoveFinalizers(ctx context.Context) func(client.Object) error {
	return func(object client.Object) error {
		patch := framework.MergePatch(`{"metadata":{"finalizers":null}}`)
		return admin.Patch(ctx, object, patch, client.DryRunAll)
	}
}

func dryRunPatchStatus(ctx context.Context, user client.Client) func(client.Object) error {
	return func(namespace client.Object) error {
		status := framework.MergePatch(`{"status":{"phase":"Active"}}`)
		return user.Status().Patch(ctx, namespace, status, client.DryRunAll)
	}
}

var _ = Describe("Admission control", func() {
	failing := func(kind, text string) expectedFinding {
		return proven(diagnosis.CauseAdmissionWebhookFailing).withMessage("guard.$id.example.com").withEvidence("failed calling webhook", text,
			strings.ToLower(kind)+`webhookconfigurations.admissionregistration.k8s.io "$id-guard"`)
	}
	rejected := func(name string) expectedFinding {
		return proven(diagnosis.CauseAdmissionRejected).withMessage(name).withEvidence("deletion is protected")
	}

	DescribeTable("blocks deletions, and is reported with the reason:",
		func(ctx context.Context, makeGuard func(context.Context, *fixture) string, expected expectedFinding) {
			f := newFixture(ctx)
			f.create(ctx, twoConfigMaps)
			guard := makeGuard(ctx, f)
			f.create(ctx, guard)
			f.expectDenied(ctx, twoConfigMaps, dryRunDelete(ctx))
			expected.objects = []string{"configmaps/one", "configmaps/two"}
			f.expectStuck(ctx, expected, func(f *fixture, ctx context.Context) {
				for _, object := range f.objects(twoConfigMaps) {
					Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed(), "the diagnosis uses dry runs")
					Expect(object.GetDeletionTimestamp()).To(BeNil())
				}
				f.delete(ctx, guard)
			})
		},
		Entry("the Service of a mutating webhook is missing", func(context.Context, *fixture) string {
			return makeWebhook("Mutating", webhookInService, 10)
		}, failing("Mutating", `service "guard" not found`)),
		Entry("the Service of a webhook has no endpoints", func(ctx context.Context, f *fixture) string {
			f.create(ctx, `
{apiVersion: v1, kind: Namespace, metadata: {name: $id-system}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: $id-system, name: guard}, spec: {ports: [{port: 443}]}}
`)
			return makeWebhook("Validating", webhookInService, 2)
		}, failing("Validating", "has no ready endpoint")),
		Entry("a webhook denies them as Forbidden", func(context.Context, *fixture) string {
			return makeWebhook("Validating", denyDeletions(http.StatusForbidden), 10)
		}, rejected("guard.$id.example.com")),
		Entry("a policy denies them", func(context.Context, *fixture) string {
			return makePolicy("DELETE", "configmaps", "false", "deletion is protected")
		}, rejected("$id-guard")),
	)

	DescribeTable("blocks the removal of finalizers:", func(ctx context.Context, objects func() string, expected expectedFinding) {
		f := newFixture(ctx)
		f.create(ctx, heldConfigMap)
		guard := objects()
		f.create(ctx, guard)
		f.expectDenied(ctx, heldConfigMap, dryRunRemoveFinalizers(ctx))
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, expected)
		f.delete(ctx, guard)
		Eventually(dryRunRemoveFinalizers(ctx)).WithArguments(f.objects(heldConfigMap)[0]).WithContext(ctx).Should(Succeed())
		removeFinalizers(ctx, f.objects(heldConfigMap)[0])
		f.expectDeleted(ctx)
	},
		Entry("a policy denies the update", func() string {
			return makePolicy("UPDATE", "configmaps", "has(object.metadata.finalizers)", "deletion is protected")
		}, proven(diagnosis.CauseAdmissionRejected, "configmaps/held").withMessage("$id-guard", testFinalizer)),
		Entry("a webhook denies the update", func() string {
			return makeWebhook("Validating", denyFinalizerRemovals(), 10)
		}, inferred(diagnosis.CauseAdmissionRejected, "configmaps/held").withMessage("guard.$id.example.com", testFinalizer)),
	)
})

func makeNamespacePolicy(resources, expression string) string {
	return makePolicy("UPDATE", resources, expression, "the namespace is protected")
}

// makeNamespaceWebhook returns a webhook for updates of the fixture's Namespace.
func makeNamespaceWebhook(clientConfig string) string {
	return strings.NewReplacer("[DELETE, UPDATE]", "[UPDATE]", "[configmaps], scope: Namespaced",
		"[namespaces/status, namespaces/finalize]").Replace(makeWebhook("Validating", clientConfig, 2))
}

var _ = Describe("Admission control of the Namespace", func() {
	DescribeTable("is reported, and not the namespace controller, if it prevents writes that the deletion needs:",
		func(ctx context.Context, content string, objects func() string, expected expectedFinding) {
			f := newFixture(ctx)
			f.create(ctx, content)
			guard := objects()
			f.create(ctx, guard)
			f.expectDenied(ctx, f.manifest(), dryRunPatchStatus(ctx, admin))
			f.delete(ctx, f.manifest())
			expected.objects = []string{"namespaces/" + f.ns}
			f.expectFindings(ctx, expected)
			f.delete(ctx, guard)
			f.expectDeleted(ctx)
		},
		Entry("a policy, and the namespace had content", twoConfigMaps, func() string {
			return makeNamespacePolicy(`"*/*"`, "request.subResource == ''")
		}, proven(diagnosis.CauseAdmissionRejected).withMessage("$id-guard", "finalizer kubernetes")),
		Entry("a webhook that denies", "", func() string {
			return makeNamespaceWebhook(serveWebhook(http.StatusForbidden, func(*admissionv1.AdmissionRequest) string {
				return "the namespace is protected"
			}))
		}, proven(diagnosis.CauseAdmissionRejected).withMessage("guard.$id.example.com").
			withEvidence("the namespace is protected", "Event WriteRejected")),
	)

	It("is reported as the operator published it for a user who cannot write the Namespace", func(ctx context.Context) {
		f := newFixture(ctx)
		guard := makeNamespacePolicy("namespaces/status, namespaces/finalize", "false")
		f.create(ctx, guard)
		f.create(ctx, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: $id-reader}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $id-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: $id-reader}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: $id}
`)
		reader, err := cluster.User(f.id)
		Expect(err).NotTo(HaveOccurred())
		f.expectDenied(ctx, f.manifest(), dryRunPatchStatus(ctx, admin))
		f.delete(ctx, f.manifest())
		restricted := newCollector(reader)
		Eventually(func(g Gomega) {
			result := f.diagnose(g, ctx, restricted)
			g.Expect(result.Result).To(Equal(diagnosis.Blocked))
			g.Expect(result.Unread).To(ContainElement(ContainSubstring("namespaces/finalize")))
			g.Expect(result.Findings).To(ConsistOf(HaveField("Cause", diagnosis.CauseAdmissionRejected)), format(result))
			g.Expect(objectsOf(result.Findings[0])).To(ConsistOf("namespaces/" + f.ns))
			published(diagnosis.CauseAdmissionRejected).withMessage(f.id+"-guard").
				withEvidence("Event WriteRejected", "the namespace is protected").expectIn(result.Findings[0])
		}).WithContext(ctx).Should(Succeed())
	})

	It("leaves the Namespace unchanged", func(ctx context.Context) {
		cluster.PauseManager(withProgressDeadline(progressDeadline))
		f := newFixture(ctx)
		f.delete(ctx, f.manifest())
		before := f.namespace(Default, ctx)
		f.expectFindings(ctx, inferred(diagnosis.CauseNamespaceControllerUnresponsive, "namespaces/$ns").
			withEvidence("the dry runs of writes to the Namespace succeed"))
		Consistently(func(g Gomega) {
			g.Expect(f.namespace(g, ctx)).To(Equal(before))
		}).WithContext(ctx).WithTimeout(time.Second).Should(Succeed())
	})
})

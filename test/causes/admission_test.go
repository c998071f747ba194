// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/webhooks"
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

// policy denies the deletion and update of ConfigMaps in the fixture's namespace unless
// $expression is true.
const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: $id-guard}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}
    resourceRules:
    - {operations: [DELETE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}
  validations:
  - {expression: "$expression", message: "deletion is protected"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: $id-guard}
spec: {policyName: $id-guard, validationActions: [Deny]}
`

const twoConfigMaps = `
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: one}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: two}}
`

// serveWebhook serves a webhook until the spec ends and returns its clientConfig. denialReason
// returns the reason to deny a request with the given code, or "" to allow the request.
func serveWebhook(code int32, denialReason func(*admissionv1.AdmissionRequest) string) string {
	server, clientConfig := webhooks.Serve(code, denialReason)
	DeferCleanup(server.Close)
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

// serveFailingWebhook returns the clientConfig of a webhook that returns an internal error.
func serveFailingWebhook() string {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "internal failure", http.StatusInternalServerError)
	}))
	DeferCleanup(server.Close)
	config, err := json.Marshal(admissionregistrationv1.WebhookClientConfig{
		URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	})
	Expect(err).NotTo(HaveOccurred())
	return string(config)
}

// webhookInService returns the clientConfig of a webhook behind a Service of the fixture.
func webhookInService(context.Context, *fixture) string {
	return `{service: {namespace: $id-system, name: guard, path: /validate}}`
}

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
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		return admin.Patch(ctx, object, patch, client.DryRunAll)
	}
}

var _ = Describe("Admission control", func() {
	DescribeTable("blocks deletions while a webhook fails:",
		func(ctx context.Context, kind string, timeoutSeconds int, setUp func(context.Context, *fixture) string, text string) {
			f := newFixture(ctx)
			f.create(ctx, twoConfigMaps)
			objects := makeWebhook(kind, setUp(ctx, f), timeoutSeconds)
			f.create(ctx, objects)
			f.expectDenied(ctx, twoConfigMaps, dryRunDelete(ctx))
			f.deleteNamespace(ctx)
			configuration := strings.ToLower(kind) + `webhookconfigurations.admissionregistration.k8s.io "$id-guard"`
			f.expectFindings(ctx, proven(diagnosis.CauseAdmissionWebhookFailing, "configmaps/one", "configmaps/two").
				withMessage(f.text("guard.$id.example.com")).withEvidence("failed calling webhook", text, f.text(configuration)))
			f.delete(ctx, objects)
			f.expectDeleted(ctx)
		},
		Entry("the Service is missing", "Validating", 10, webhookInService, `service "guard" not found`),
		Entry("the Service of a mutating webhook is missing", "Mutating", 10, webhookInService, `service "guard" not found`),
		Entry("the Service has no endpoints", "Validating", 2, func(ctx context.Context, f *fixture) string {
			f.create(ctx, `
{apiVersion: v1, kind: Namespace, metadata: {name: $id-system}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: $id-system, name: guard}, spec: {ports: [{port: 443}]}}
`)
			return webhookInService(ctx, f)
		}, "has no ready endpoint"),
		Entry("the connection is refused", "Validating", 10, func(context.Context, *fixture) string {
			return `{url: "https://127.0.0.1:1/validate"}`
		}, "connection refused"),
		Entry("the webhook returns an error", "Validating", 10, func(context.Context, *fixture) string {
			return serveFailingWebhook()
		}, "internal failure"),
	)

	DescribeTable("results in a finding with the reason if a webhook denies deletions:", func(ctx context.Context, code int) {
		f := newFixture(ctx)
		f.create(ctx, twoConfigMaps)
		objects := makeWebhook("Validating", denyDeletions(int32(code)), 10)
		f.create(ctx, objects)
		f.expectDenied(ctx, twoConfigMaps, dryRunDelete(ctx))
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CauseAdmissionRefused, "configmaps/one", "configmaps/two").
			withMessage(f.text("guard.$id.example.com")).withEvidence("deletion is protected"))
		f.delete(ctx, objects)
		f.expectDeleted(ctx)
	},
		Entry("Forbidden", http.StatusForbidden),
		Entry("NotFound", http.StatusNotFound),
		Entry("Conflict", http.StatusConflict),
	)

	It("results in a finding with the reason if a policy denies deletions", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, twoConfigMaps)
		objects := strings.ReplaceAll(policy, "$expression", "request.operation != 'DELETE'")
		f.create(ctx, objects)
		f.expectDenied(ctx, twoConfigMaps, dryRunDelete(ctx))
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CauseAdmissionRefused, "configmaps/one", "configmaps/two").
			withMessage(f.text("$id-guard")).withEvidence("deletion is protected"))
		f.delete(ctx, objects)
		f.expectDeleted(ctx)
	})

	DescribeTable("blocks the removal of finalizers:", func(ctx context.Context, objects func() string, expected expectedFinding) {
		f := newFixture(ctx)
		f.create(ctx, heldConfigMap)
		guard := objects()
		f.create(ctx, guard)
		f.expectDenied(ctx, heldConfigMap, dryRunRemoveFinalizers(ctx))
		f.deleteNamespace(ctx)
		for i := range expected.objects {
			expected.objects[i] = f.text(expected.objects[i])
		}
		for i := range expected.texts {
			expected.texts[i] = f.text(expected.texts[i])
		}
		f.expectFindings(ctx, expected)
		f.delete(ctx, guard)
		Eventually(dryRunRemoveFinalizers(ctx)).WithArguments(f.objects(heldConfigMap)[0]).WithContext(ctx).Should(Succeed())
		removeFinalizers(ctx, f.objects(heldConfigMap)[0])
		f.expectDeleted(ctx)
	},
		Entry("a policy denies the update", func() string {
			return strings.ReplaceAll(policy, "$expression",
				"request.operation != 'UPDATE' || has(object.metadata.finalizers)")
		}, proven(diagnosis.CauseAdmissionRefused, "configmaps/held").withMessage("$id-guard", testFinalizer)),
		Entry("a webhook denies the update", func() string {
			return makeWebhook("Validating", denyFinalizerRemovals(), 10)
		}, inferred(diagnosis.CauseAdmissionRefused, "configmaps/held").withMessage("guard.$id.example.com", testFinalizer)),
		Entry("the Service of a webhook is missing", func() string {
			return strings.ReplaceAll(makeWebhook("Mutating", "{service: {namespace: $id-system, name: guard}}", 2),
				"[DELETE, UPDATE]", "[UPDATE]")
		}, proven(diagnosis.CauseAdmissionWebhookFailing, "configmaps/held").withMessage("guard.$id.example.com")),
	)
})

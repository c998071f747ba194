// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
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

// webhook is a webhook that the API server has to ask before anything of the scene's
// namespace is deleted or updated; $kind is Validating or Mutating.
const webhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: $kindWebhookConfiguration
metadata: {name: $id-guard}
webhooks:
- name: guard.$id.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 2
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}
  rules:
  - {operations: [DELETE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps], scope: Namespaced}
  clientConfig: $client
`

// policy refuses what its expression does not allow in the scene's namespace.
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
  - {expression: "$expression", message: "it is precious"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: $id-guard}
spec: {policyName: $id-guard, validationActions: [Deny]}
`

// settings are two ConfigMaps.
const settings = `
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: one}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: two}}
`

// answering returns the clientConfig of a webhook that is answered until the end of the
// spec; why returns why a request is refused, or nothing.
func answering(why func(*admissionv1.AdmissionRequest) string) string {
	server, clientConfig := webhooks.Serve(why)
	DeferCleanup(server.Close)
	config, err := json.Marshal(clientConfig)
	Expect(err).NotTo(HaveOccurred())
	return string(config)
}

// refusingDeletions refuses every deletion.
func refusingDeletions() string {
	return answering(func(request *admissionv1.AdmissionRequest) string {
		if request.Operation == admissionv1.Delete {
			return "it is precious"
		}
		return ""
	})
}

// refusingReleases refuses to have finalizers taken off.
func refusingReleases() string {
	return answering(func(request *admissionv1.AdmissionRequest) string {
		var object metav1.PartialObjectMetadata
		if request.Operation == admissionv1.Update && json.Unmarshal(request.Object.Raw, &object) == nil &&
			len(object.Finalizers) == 0 {
			return "it keeps its finalizer"
		}
		return ""
	})
}

// broken returns the clientConfig of a webhook that answers with an error of its own.
func broken() string {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "out of order", http.StatusInternalServerError)
	}))
	DeferCleanup(server.Close)
	config, err := json.Marshal(admissionregistrationv1.WebhookClientConfig{
		URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	})
	Expect(err).NotTo(HaveOccurred())
	return string(config)
}

// inService returns the clientConfig of a webhook behind a Service of the scene.
func inService(*scene) string {
	return `{service: {namespace: $id-system, name: guard, path: /validate}}`
}

// expectRefused waits until the API server refuses to change an object of the scene.
func (s *scene) expectRefused(ctx context.Context, text string, change func(client.Object) error) {
	GinkgoHelper()
	for _, object := range s.objects(text) {
		Eventually(func() error { return change(object) }).WithContext(ctx).ShouldNot(Succeed())
	}
}

func dryDelete(ctx context.Context) func(client.Object) error {
	return func(object client.Object) error { return admin.Delete(ctx, object, client.DryRunAll) }
}

func dryRelease(ctx context.Context) func(client.Object) error {
	return func(object client.Object) error {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		return admin.Patch(ctx, object, patch, client.DryRunAll)
	}
}

var _ = Describe("Admission", func() {
	DescribeTable("by a webhook that does not answer holds what is to be deleted:",
		func(ctx context.Context, kind string, setUp func(context.Context, *scene) string, text string) {
			s := newScene(ctx)
			s.create(ctx, settings)
			config := setUp(ctx, s)
			objects := strings.NewReplacer("$kind", kind, "$client", config).Replace(webhook)
			s.create(ctx, objects)
			s.expectRefused(ctx, settings, dryDelete(ctx))
			s.end(ctx)
			configuration := strings.ToLower(kind) + `webhookconfigurations.admissionregistration.k8s.io "$id-guard"`
			s.expectBlamed(ctx, confirmed(diagnosis.CauseAdmissionWebhookFailing, "configmaps/one", "configmaps/two").
				saying(s.text("guard.$id.example.com")).since("failed calling webhook", text, s.text(configuration)))
			s.delete(ctx, objects)
			s.expectGone(ctx)
		},
		Entry("its Service is missing", "Validating", func(_ context.Context, s *scene) string {
			return inService(s)
		}, `service "guard" not found`),
		Entry("its Service is missing, and it mutates", "Mutating", func(_ context.Context, s *scene) string {
			return inService(s)
		}, `service "guard" not found`),
		Entry("its Service has no endpoints", "Validating", func(ctx context.Context, s *scene) string {
			s.create(ctx, `
{apiVersion: v1, kind: Namespace, metadata: {name: $id-system}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: $id-system, name: guard}, spec: {ports: [{port: 443}]}}
`)
			return inService(s)
		}, "has no ready endpoint"),
		Entry("nothing listens", "Validating", func(context.Context, *scene) string {
			return `{url: "https://127.0.0.1:1/validate"}`
		}, "connection refused"),
		Entry("it answers with an error", "Validating", func(context.Context, *scene) string {
			return broken()
		}, "out of order"),
	)

	It("by a webhook that refuses deletions is named with its reason", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, settings)
		objects := strings.NewReplacer("$kind", "Validating", "$client", refusingDeletions()).Replace(webhook)
		s.create(ctx, objects)
		s.expectRefused(ctx, settings, dryDelete(ctx))
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CauseAdmissionRefused, "configmaps/one", "configmaps/two").
			saying(s.text("guard.$id.example.com")).since("it is precious"))
		s.delete(ctx, objects)
		s.expectGone(ctx)
	})

	It("by a policy that refuses deletions is named with its reason", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, settings)
		objects := strings.ReplaceAll(policy, "$expression", "request.operation != 'DELETE'")
		s.create(ctx, objects)
		s.expectRefused(ctx, settings, dryDelete(ctx))
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CauseAdmissionRefused, "configmaps/one", "configmaps/two").
			saying(s.text("$id-guard")).since("it is precious"))
		s.delete(ctx, objects)
		s.expectGone(ctx)
	})

	DescribeTable("holds what cannot be released:", func(ctx context.Context, objects func() string, b blame) {
		s := newScene(ctx)
		s.create(ctx, heldSettings)
		guard := objects()
		s.create(ctx, guard)
		s.expectRefused(ctx, heldSettings, dryRelease(ctx))
		s.end(ctx)
		for i := range b.objects {
			b.objects[i] = s.text(b.objects[i])
		}
		for i := range b.texts {
			b.texts[i] = s.text(b.texts[i])
		}
		s.expectBlamed(ctx, b)
		s.delete(ctx, guard)
		Eventually(dryRelease(ctx)).WithArguments(s.objects(heldSettings)[0]).WithContext(ctx).Should(Succeed())
		release(ctx, s.objects(heldSettings)[0])
		s.expectGone(ctx)
	},
		Entry("a policy refuses", func() string {
			return strings.ReplaceAll(policy, "$expression",
				"request.operation != 'UPDATE' || has(object.metadata.finalizers)")
		}, confirmed(diagnosis.CauseAdmissionRefused, "configmaps/held").saying("$id-guard", testFinalizer)),
		Entry("a webhook refuses", func() string {
			return strings.NewReplacer("$kind", "Validating", "$client", refusingReleases()).Replace(webhook)
		}, likely(diagnosis.CauseAdmissionRefused, "configmaps/held").saying("guard.$id.example.com", testFinalizer)),
		Entry("a webhook is gone", func() string {
			return strings.NewReplacer("$kind", "Mutating", "$client",
				"{service: {namespace: $id-system, name: guard}}", "[DELETE, UPDATE]", "[UPDATE]").Replace(webhook)
		}, confirmed(diagnosis.CauseAdmissionWebhookFailing, "configmaps/held").saying("guard.$id.example.com")),
	)
})

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// namespacePolicy denies updates of $resources of the fixture's Namespace unless $expression is true.
const namespacePolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: $id-guard}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}
    resourceRules:
    - {operations: [UPDATE], apiGroups: [""], apiVersions: [v1], resources: [$resources]}
  validations:
  - {expression: "$expression", message: "the namespace is protected"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: $id-guard}
spec: {policyName: $id-guard, validationActions: [Deny]}
`

func makeNamespacePolicy(resources, expression string) string {
	return strings.NewReplacer("$resources", resources, "$expression", expression).Replace(namespacePolicy)
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
			f.expectDenied(ctx, f.manifest(), func(namespace client.Object) error {
				status := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Active"}}`))
				return admin.Status().Patch(ctx, namespace, status, client.DryRunAll)
			})
			f.delete(ctx, f.manifest())
			expected.objects = []string{"namespaces/" + f.ns}
			for i := range expected.texts {
				expected.texts[i] = f.text(expected.texts[i])
			}
			f.expectFindings(ctx, expected)
			f.delete(ctx, guard)
			f.expectDeleted(ctx)
		},
		Entry("a policy, and the namespace is empty", "", func() string {
			return makeNamespacePolicy("namespaces/status, namespaces/finalize", "false")
		}, proven(diagnosis.CauseAdmissionRefused).withMessage("$id-guard", "finalizer kubernetes").withEvidence("the namespace is protected")),
		Entry("a policy, and the namespace had content", twoConfigMaps, func() string {
			return makeNamespacePolicy(`"*/*"`, "request.subResource == ''")
		}, proven(diagnosis.CauseAdmissionRefused).withMessage("$id-guard", "finalizer kubernetes")),
		Entry("a webhook that denies", "", func() string {
			return makeNamespaceWebhook(serveWebhook(http.StatusForbidden, func(*admissionv1.AdmissionRequest) string {
				return "the namespace is protected"
			}))
		}, inferred(diagnosis.CauseAdmissionRefused).withMessage("guard.$id.example.com").withEvidence("the namespace is protected")),
		Entry("a webhook whose Service is missing", "", func() string {
			return makeNamespaceWebhook(`{service: {namespace: $id-system, name: guard}}`)
		}, proven(diagnosis.CauseAdmissionWebhookFailing).withMessage("guard.$id.example.com")),
	)

	It("is reported if it prevents the removal of a finalizer of the Namespace", func(ctx context.Context) {
		f := makeFixture()
		held := strings.ReplaceAll(f.manifest(), "name: $ns", "name: $ns, finalizers: ["+testFinalizer+"]")
		f.create(ctx, held)
		guard := makeNamespacePolicy("namespaces", "size(object.metadata.?finalizers.orValue([])) > 0")
		f.create(ctx, guard)
		f.expectDenied(ctx, held, dryRunRemoveFinalizers(ctx))
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CauseAdmissionRefused, "namespaces/"+f.ns).
			withMessage(f.text("$id-guard"), testFinalizer))
		f.delete(ctx, guard)
		Eventually(tryRemoveFinalizers).WithArguments(f.objects(held)[0]).WithContext(ctx).Should(Succeed())
		f.expectDeleted(ctx)
	})

	It("is not ruled out for a user who cannot write the Namespace", func(ctx context.Context) {
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
		reader, err := plane.User(f.id)
		Expect(err).NotTo(HaveOccurred())
		f.delete(ctx, f.manifest())
		restricted := newCollector(reader)
		Eventually(func(g Gomega) {
			result := f.diagnose(g, ctx, restricted)
			g.Expect(result.State).To(Equal(diagnosis.Unknown))
			g.Expect(result.Unread).To(ContainElement(ContainSubstring("namespaces/finalize")))
			g.Expect(result.Findings).To(ConsistOf(HaveField("Cause", diagnosis.CauseUnknown)))
		}).WithContext(ctx).Should(Succeed())
	})

	It("is reported as a possibility if it can deny the writes only to the namespace controller", func(ctx context.Context) {
		f := newFixture(ctx)
		guard := makeNamespacePolicy("namespaces/status, namespaces/finalize", "'system:masters' in request.userInfo.groups")
		f.create(ctx, guard)
		manager, err := plane.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		f.expectDenied(ctx, f.manifest(), func(namespace client.Object) error {
			status := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Active"}}`))
			return framework.NewClient(manager).Status().Patch(ctx, namespace, status, client.DryRunAll)
		})
		f.delete(ctx, f.manifest())
		f.expectFindings(ctx, inferred(diagnosis.CauseNamespaceControllerUnresponsive, "namespaces/"+f.ns).
			withMessage("or its writes are denied", f.text(`ValidatingAdmissionPolicy "$id-guard"`)))
		f.delete(ctx, guard)
		f.expectDeleted(ctx)
	})

	It("leaves the Namespace unchanged", func(ctx context.Context) {
		stopManager()
		f := newFixture(ctx)
		f.delete(ctx, f.manifest())
		before := f.namespace(Default, ctx)
		f.expectFindings(ctx, inferred(diagnosis.CauseNamespaceControllerUnresponsive, "namespaces/"+f.ns).
			withEvidence("the dry runs of writes to the Namespace succeed"))
		Consistently(func(g Gomega) {
			g.Expect(f.namespace(g, ctx)).To(Equal(before))
		}).WithContext(ctx).WithTimeout(time.Second).Should(Succeed())
	})
})

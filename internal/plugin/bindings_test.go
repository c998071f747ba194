// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestManagerOf(t *testing.T) {
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	written := func(manager string, operation metav1.ManagedFieldsOperationType) metav1.ObjectMeta {
		return metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: manager, Operation: operation}}}
	}
	for want, object := range map[string]metav1.ObjectMeta{
		"": {Labels: map[string]string{"app.kubernetes.io/managed-by": "kustomize"}, ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Operation: apply}, {Manager: "kubectl-edit", Operation: update},
		}},
		`Argo CD "platform"`:               {Annotations: map[string]string{"argocd.argoproj.io/tracking-id": "platform:x/y:z/gate"}},
		`Flux (HelmRelease) "nslifecycle"`: {Labels: map[string]string{"helm.toolkit.fluxcd.io/name": "nslifecycle"}},
		`Helm "nslifecycle"`:               {Annotations: map[string]string{"meta.helm.sh/release-name": "nslifecycle"}},
		"Helm":                             {Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}},
		"Argo CD":                          written("argocd-controller", update),
		`field manager "Terraform"`:        written("Terraform", apply),
	} {
		t.Run(want, func(t *testing.T) { NewWithT(t).Expect(managerOf(&object)).To(Equal(want)) })
	}
}

func TestTransferActions(t *testing.T) {
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	const spec, audit = `"f:policyName":{}`, `"f:validationActions":{"v:\"Audit\"":{}}`
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(
			`{"f:spec":{` + fields + `}}`,
		)}
	}
	for name, test := range map[string]struct{ entries, want []metav1.ManagedFieldsEntry }{
		"to the manager that applies": {
			[]metav1.ManagedFieldsEntry{entry("a", update, spec), entry("helm", apply, spec), entry("edit", update, audit)},
			[]metav1.ManagedFieldsEntry{entry("a", update, spec), entry("helm", apply, spec+","+audit), entry("edit", update, "")},
		},
		"to the manager that has created the object": {
			[]metav1.ManagedFieldsEntry{entry("edit", update, audit), entry("a", update, spec)},
			[]metav1.ManagedFieldsEntry{entry("edit", update, ""), entry("a", update, spec+","+audit)},
		},
		"to the last manager that applies": {
			[]metav1.ManagedFieldsEntry{entry("a", apply, spec+","+audit), entry("b", apply, spec)},
			[]metav1.ManagedFieldsEntry{entry("a", apply, spec), entry("b", apply, spec+","+audit)},
		},
		"to none": {entries: []metav1.ManagedFieldsEntry{entry("edit", update, audit), {Manager: "empty"}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := transferActions(test.entries)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(test.want))
		})
	}
	_, err := transferActions([]metav1.ManagedFieldsEntry{{Manager: "x", FieldsV1: metav1.NewFieldsV1("{")}})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring(`"x"`)))
}

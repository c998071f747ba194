// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// actionsOf are the validationActions of the bindings of the gate, sorted, by mode.
var actionsOf = map[string][]admissionregistrationv1.ValidationAction{
	modeAudit:   {admissionregistrationv1.Audit, admissionregistrationv1.Warn},
	modeEnforce: {admissionregistrationv1.Deny},
}

// gateBindings returns the bindings that determine the mode.
func gateBindings(
	ctx context.Context, reader client.Reader,
) ([]admissionregistrationv1.ValidatingAdmissionPolicyBinding, error) {
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	gate := client.MatchingLabels{internalv1alpha1.LabelPolicy: internalv1alpha1.PolicyGate}
	if err := reader.List(ctx, &bindings, gate); err != nil {
		return nil, fmt.Errorf("failed to list the bindings of the gate: %w", err)
	}
	if len(bindings.Items) == 0 {
		return nil, errors.New("the cluster has no ValidatingAdmissionPolicyBinding of nslifecycle, so writes before a " +
			"namespace is initialized are not rejected")
	}
	return bindings.Items, nil
}

func isDenying(binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
	return slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny)
}

// modeOf returns the mode that bindings have together.
func modeOf(bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding) string {
	denying := 0
	for i := range bindings {
		if isDenying(&bindings[i]) {
			denying++
		}
	}
	switch denying {
	case 0:
		return modeAudit
	case len(bindings):
		return modeEnforce
	}
	return modeMixed
}

// managersOf returns the tools that manage bindings, sorted.
func managersOf(bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding) []string {
	managers := map[string]bool{}
	for i := range bindings {
		if manager := managerOf(&bindings[i]); manager != "" {
			managers[manager] = true
		}
	}
	return slices.Sorted(maps.Keys(managers))
}

// argoManager is the field manager of Argo CD, which can be configured to set neither of its marks.
const argoManager = "argocd-controller"

// managerOf returns the tool that keeps an object as in its source, or "". A user who runs kubectl is no such tool.
func managerOf(object metav1.Object) string {
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	for _, tool := range []struct {
		marks map[string]string
		key   string
		name  string
	}{
		{annotations, "argocd.argoproj.io/tracking-id", "Argo CD"},
		{labels, "argocd.argoproj.io/instance", "Argo CD"},
		{labels, "kustomize.toolkit.fluxcd.io/name", "Flux (Kustomization)"},
		{labels, "helm.toolkit.fluxcd.io/name", "Flux (HelmRelease)"},
		{annotations, "meta.helm.sh/release-name", "Helm"},
	} {
		if value := tool.marks[tool.key]; value != "" {
			name, _, _ := strings.Cut(value, ":") // Argo CD adds the object to the name of the application.
			return fmt.Sprintf("%s %q", tool.name, name)
		}
	}
	if labels["app.kubernetes.io/managed-by"] == "Helm" {
		return "Helm"
	}
	for _, entry := range object.GetManagedFields() {
		switch {
		case entry.Manager == argoManager:
			return "Argo CD"
		case entry.Operation == metav1.ManagedFieldsOperationApply && entry.Manager != "kubectl":
			return fmt.Sprintf("field manager %q", entry.Manager)
		}
	}
	return ""
}

// setActions sets the validationActions of a binding. They are a set, whose elements have different owners: if the
// plugin owned its own, the manager of the binding would add its element when it applies the binding again, and the API
// server rejects Deny together with Warn. So the manager becomes the owner.
func setActions(
	ctx context.Context, writer client.Client, binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding,
	actions []admissionregistrationv1.ValidationAction,
) error {
	before := binding.DeepCopy()
	binding.Spec.ValidationActions = actions
	if err := writer.Patch(ctx, binding, client.MergeFrom(before), client.FieldOwner(commandName)); err != nil {
		return fmt.Errorf("failed to change ValidatingAdmissionPolicyBinding %q: %w", binding.Name, err)
	}
	fields, err := transferActions(binding.ManagedFields)
	if err != nil || fields == nil {
		return err
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": binding.ResourceVersion},
		{"op": "replace", "path": "/metadata/managedFields", "value": fields},
	})
	if err != nil {
		return err
	}
	err = writer.Patch(ctx, binding, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(commandName))
	if err != nil {
		return fmt.Errorf("failed to change the managed fields of ValidatingAdmissionPolicyBinding %q: %w", binding.Name, err)
	}
	return nil
}

// actionsPath is the field spec.validationActions in managed fields.
var actionsPath = []string{"f:spec", "f:validationActions"}

// transferActions returns managed fields in which the manager of a binding owns all validationActions: the last that
// applies the other fields of the spec, or else has created them. The result is nil if there is none.
func transferActions(entries []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, error) {
	const apply = metav1.ManagedFieldsOperationApply
	contents, err := decodeFields(entries)
	if err != nil {
		return nil, err
	}
	actions, owner := map[string]any{}, -1
	for i := range entries {
		owned, _, _ := unstructured.NestedMap(contents[i], actionsPath...)
		maps.Copy(actions, owned)
		unstructured.RemoveNestedField(contents[i], actionsPath...)
		_, isOwner, _ := unstructured.NestedMap(contents[i], "f:spec", "f:policyName")
		isApplied := entries[i].Operation == apply
		if isOwner && (isApplied || owner < 0) {
			owner = i
		}
	}
	if owner < 0 {
		return nil, nil
	}
	if err := unstructured.SetNestedMap(contents[owner], actions, actionsPath...); err != nil {
		return nil, err
	}
	result := slices.Clone(entries)
	for i := range result {
		raw, err := json.Marshal(contents[i])
		if err != nil {
			return nil, err
		}
		result[i].FieldsV1 = metav1.NewFieldsV1(string(raw))
	}
	return result, nil
}

// decodeFields returns the content of managed fields.
func decodeFields(entries []metav1.ManagedFieldsEntry) ([]map[string]any, error) {
	contents := make([]map[string]any, len(entries))
	for i := range entries {
		contents[i] = map[string]any{}
		if entries[i].FieldsV1 == nil {
			continue
		}
		if err := json.Unmarshal(entries[i].FieldsV1.GetRawBytes(), &contents[i]); err != nil {
			return nil, fmt.Errorf("failed to decode the managed fields of %q: %w", entries[i].Manager, err)
		}
	}
	return contents, nil
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/confinement"
	"github.com/nslifecycle/nslifecycle/internal/guardrails"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// Server-side apply requires create for a new object, and names it in the request.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=nslifecycle-confined-initializers,verbs=create;patch;delete

// ensureConfinement applies the policy confined-initializers for the confined subjects in the set, and deletes it if
// there are none: then, the API server evaluates nothing for other users. It returns the part of a message that
// describes a missing permission. It applies nothing while another policy is missing, because then an administrator
// might be removing the policies.
func (v *Verifier) ensureConfinement(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, found installed,
) (string, error) {
	subjects := confinement.Compute(set.Initializers, set.SystemNamespace)
	policy, binding := subjects.Render()
	var err error
	switch {
	case len(subjects) == 0:
		err = v.deleteConfinement(ctx, binding, policy)
	case len(found.missing(protecting())) == 0:
		err = v.applyConfinement(ctx, policy, binding, found.gate())
	}
	if apierrors.IsForbidden(err) {
		return msgNotConfined(len(subjects)), nil
	}
	return "", err
}

// applyConfinement applies the policy and its binding if they differ. With the gate policy as their owner, they are
// removed together with the other policies, which the manifests contain.
func (v *Verifier) applyConfinement(
	ctx context.Context, policy *admissionv1.ValidatingAdmissionPolicy,
	binding *admissionv1.ValidatingAdmissionPolicyBinding, gate client.Object,
) error {
	owner := ownedBy(gate)
	policy.SetOwnerReferences(owner)
	binding.SetOwnerReferences(owner)
	live, liveBinding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	return errors.Join(
		v.applyObject(ctx, policy, live, policy.Spec, func() any { return live.Spec }),
		v.applyObject(ctx, binding, liveBinding, binding.Spec, func() any { return liveBinding.Spec }))
}

// applyObject creates an object, or replaces its spec: server-side apply would keep match conditions that other clients
// have added.
func (v *Verifier) applyObject(
	ctx context.Context, desired, live client.Object, desiredSpec any, liveSpec func() any,
) error {
	err := v.Get(ctx, client.ObjectKeyFromObject(desired), live)
	owner := desired.GetOwnerReferences()
	switch {
	case apierrors.IsNotFound(err):
		content, convertErr := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
		utilruntime.Must(convertErr) // These types can be converted.
		unstructured.RemoveNestedField(content, "status")
		err = v.Apply(ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content}),
			client.FieldOwner(nsobject.FieldOwner), client.ForceOwnership)
	case err != nil:
		return fmt.Errorf("failed to get the policy %q: %w", desired.GetName(), err)
	case apiequality.Semantic.DeepEqual(desiredSpec, liveSpec()) &&
		apiequality.Semantic.DeepEqual(owner, live.GetOwnerReferences()):
		return nil
	default:
		patch, encodeErr := json.Marshal([]map[string]any{
			{"op": "test", "path": "/metadata/uid", "value": live.GetUID()},
			{"op": "add", "path": "/metadata/ownerReferences", "value": owner},
			{"op": "replace", "path": "/spec", "value": desiredSpec},
		})
		utilruntime.Must(encodeErr) // These types can be encoded.
		err = v.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(nsobject.FieldOwner))
	}
	if err != nil {
		return fmt.Errorf("failed to apply the policy %q: %w", desired.GetName(), err)
	}
	log.FromContext(ctx).Info("Applied the policy for confined initializers",
		"kind", desired.GetObjectKind().GroupVersionKind().Kind)
	return nil
}

// ownedBy returns the owner references of the objects that the operator applies.
func ownedBy(policy client.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: validatingKind,
		Name: policy.GetName(), UID: policy.GetUID(),
	}}
}

// deleteConfinement deletes those of the objects that exist.
func (v *Verifier) deleteConfinement(ctx context.Context, objects ...client.Object) error {
	for _, object := range objects {
		key := client.ObjectKeyFromObject(object)
		err := v.Get(ctx, key, object)
		if err == nil {
			err = v.Delete(ctx, object, client.Preconditions{UID: new(object.GetUID())})
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("failed to delete the policy %q: %w", key.Name, err)
		}
	}
	return nil
}

// probePrefix is the prefix of the names of Namespaces that are created as dry runs.
const probePrefix = "nslifecycle-probe-"

// dryRun creates a Namespace as a dry run. It returns the Namespace that the API server would
// create, or the refusal if admission rejects the request.
func dryRun(
	ctx context.Context, c client.Client, generateName string, labels map[string]string,
) (namespace *corev1.Namespace, refusal, err error) {
	namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: generateName, Labels: maps.Clone(labels)}}
	switch err := c.Create(ctx, namespace, client.DryRunAll, client.FieldOwner(nsobject.FieldOwner)); {
	case IsRefusal(err):
		return nil, err, nil
	case err != nil:
		return nil, nil, fmt.Errorf("failed to create a namespace as a dry run: %w", err)
	}
	return namespace, nil, nil
}

// IsRefusal reports whether an error means that admission rejected a request. This includes
// internal errors, which the API server returns if a webhook does not respond.
func IsRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsInternalError(err)
}

// IsExpiryEnforced reports whether the expiry policy denies unauthorized changes in all namespaces.
func IsExpiryEnforced(ctx context.Context, reader client.Reader) (bool, error) {
	policies, bindings, err := listOptional(ctx, reader)
	return guardrails.IsEnforced(internalv1alpha1.PolicyExpiry, policies, bindings), err
}

// OptionalConditions returns the conditions of the effective set about the optional policies.
func OptionalConditions(ctx context.Context, reader client.Reader) ([]metav1.Condition, error) {
	policies, bindings, err := listOptional(ctx, reader)
	if err != nil {
		return nil, err
	}
	conditions := []metav1.Condition{{
		Type: internalv1alpha1.ConditionDeletionProtectionEnforced, Message: msgProtectionNotEnforced,
	}, {
		Type: internalv1alpha1.ConditionExpiryEnforced, Message: MsgExpiryNotEnforced,
	}}
	for i, label := range []string{internalv1alpha1.PolicyProtection, internalv1alpha1.PolicyExpiry} {
		conditions[i].Status, conditions[i].Reason = metav1.ConditionFalse, v1alpha1.ReasonPolicyMissing
		if guardrails.IsEnforced(label, policies, bindings) {
			conditions[i].Status, conditions[i].Reason = metav1.ConditionTrue, v1alpha1.ReasonEnforced
			conditions[i].Message = fmt.Sprintf(msgOptionalEnforced, label)
		}
	}
	return conditions, nil
}

func listOptional(ctx context.Context, reader client.Reader) (
	[]admissionv1.ValidatingAdmissionPolicy, []admissionv1.ValidatingAdmissionPolicyBinding, error,
) {
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	err := listPolicies(ctx, reader, client.HasLabels{internalv1alpha1.LabelPolicy}, &policies, &bindings)
	return policies.Items, bindings.Items, err
}

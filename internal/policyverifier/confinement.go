// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"context"
	"fmt"
	"maps"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/confinement"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/policyapply"
	"github.com/nslifecycle/nslifecycle/internal/protection"
)

// Server-side apply requires create for a new object, and names it in the request.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=nslifecycle-confined-initializers,verbs=create;patch;delete

// ensureConfinement applies the policy confined-initializers for the confined subjects in the set, and deletes it if
// there are none: then, the API server evaluates nothing for other users. It returns the part of a message that
// describes a missing permission. It applies nothing while another policy is missing, because then an administrator
// might be removing the policies. With the gate policy as their owner, the policy and its binding are removed together
// with the policies in the manifests.
func (v *Verifier) ensureConfinement(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, found installed,
) (string, error) {
	subjects := confinement.Compute(set.Initializers, set.SystemNamespace)
	policy, binding := subjects.Render()
	var result policyapply.Result
	var err error
	switch {
	case len(subjects) == 0:
		err = v.deleteConfinement(ctx, binding, policy)
	case len(found.missing(protecting())) == 0:
		result, err = policyapply.Apply(ctx, v.Client, v.Live, found.gate(), policyapply.Objects(policy, binding))
	}
	if result.IsForbidden || apierrors.IsForbidden(err) {
		return msgNotConfined(len(subjects)), nil
	}
	return "", err
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
	case isRefusal(err):
		return nil, err, nil
	case err != nil:
		return nil, nil, fmt.Errorf("failed to create a namespace as a dry run: %w", err)
	}
	return namespace, nil, nil
}

// ProtectionCondition returns the condition of the effective set about the optional policy for deletion protection.
func ProtectionCondition(ctx context.Context, reader client.Reader) (metav1.Condition, error) {
	condition := metav1.Condition{
		Type: internalv1alpha1.ConditionDeletionProtectionEnforced, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonPolicyMissing, Message: msgProtectionNotEnforced,
	}
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	err := listPolicies(ctx, reader, client.HasLabels{internalv1alpha1.LabelPolicy}, &policies, &bindings)
	if protection.IsEnforced(policies.Items, bindings.Items) {
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonEnforced
		condition.Message = msgProtectionEnforced
	}
	return condition, err
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// Installed describes which policies of this project are installed, and what replaces the mutating ones. A policy of
// another kind with the same label is not a policy of this project.
type Installed struct {
	// ServesMutating reports whether the API server serves MutatingAdmissionPolicy v1.
	ServesMutating bool
	// Webhooks is the UID of the configuration of the webhooks that replace the mutating policies; "" if they select no
	// requests.
	Webhooks types.UID

	policies    []Object
	bindings    []binding
	isProtected bool
}

// Object is an installed policy, which the caller must not change.
type Object struct {
	client.Object
	// Fails reports whether it has failurePolicy Fail.
	Fails bool
	kind  string
}

// binding is a binding of a policy.
type binding struct {
	kind, policy, name string
	uid                types.UID
	// isAudited reports whether the API server admits the requests that the policy does not allow.
	isAudited bool
}

// Read returns the validating policies and their bindings.
func Read(ctx context.Context, reader client.Reader) (Installed, error) {
	var installed Installed
	var listed admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	if err := list(ctx, reader, &listed, &bindings); err != nil {
		return installed, err
	}
	for i := range listed.Items {
		installed.add(policies.ValidatingKind, &listed.Items[i], listed.Items[i].Spec.FailurePolicy)
	}
	for _, bound := range bindings.Items {
		isAudited := !slices.Contains(bound.Spec.ValidationActions, admissionv1.Deny)
		installed.bindings = append(installed.bindings,
			binding{policies.ValidatingKind, bound.Spec.PolicyName, bound.Name, bound.UID, isAudited})
	}
	installed.isProtected = policies.IsProtectionEnforced(listed.Items, bindings.Items)
	return installed, nil
}

// ReadMutating adds the mutating policies and their bindings.
func (i *Installed) ReadMutating(ctx context.Context, reader client.Reader) error {
	var listed admissionv1.MutatingAdmissionPolicyList
	var bindings admissionv1.MutatingAdmissionPolicyBindingList
	err := list(ctx, reader, &listed, &bindings)
	for k := range listed.Items {
		i.add(policies.MutatingKind, &listed.Items[k], listed.Items[k].Spec.FailurePolicy)
	}
	for _, bound := range bindings.Items {
		i.bindings = append(i.bindings, binding{policies.MutatingKind, bound.Spec.PolicyName, bound.Name, bound.UID, false})
	}
	return err
}

// list lists the policies and bindings of this project.
func list(ctx context.Context, reader client.Reader, lists ...client.ObjectList) error {
	for _, list := range lists {
		err := reader.List(ctx, list, client.HasLabels{internalv1alpha1.LabelPolicy}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return fmt.Errorf("failed to list admission policies: %w", err)
		}
	}
	return nil
}

func (i *Installed) add(kind string, object client.Object, failurePolicy *admissionv1.FailurePolicyType) {
	fails := failurePolicy != nil && *failurePolicy == admissionv1.Fail
	i.policies = append(i.policies, Object{object, fails, kind})
}

// Of returns the installed policies with a kind and label.
func (i *Installed) Of(policy policies.Policy) []Object {
	return slices.DeleteFunc(slices.Clone(i.policies), func(object Object) bool {
		return object.kind != policy.Kind || object.GetLabels()[internalv1alpha1.LabelPolicy] != policy.Label
	})
}

// boundTo returns the bindings of a policy.
func (i *Installed) boundTo(policy Object) []binding {
	return slices.DeleteFunc(slices.Clone(i.bindings), func(bound binding) bool {
		return bound.kind != policy.kind || bound.policy != policy.GetName()
	})
}

// Gate returns the gate policy. The caller has verified that it exists.
func (i *Installed) Gate() client.Object {
	return i.Of(policies.Named(internalv1alpha1.PolicyGate))[0].Object
}

// Audited returns the names of the bindings of the gate that admit early writes, sorted, and whether no binding denies
// them.
func (i *Installed) Audited() (names []string, areAll bool) {
	areAll = true
	for _, gate := range i.Of(policies.Named(internalv1alpha1.PolicyGate)) {
		for _, bound := range i.boundTo(gate) {
			areAll = areAll && bound.isAudited
			if bound.isAudited {
				names = append(names, bound.name)
			}
		}
	}
	slices.Sort(names)
	return names, areAll && len(names) > 0
}

// Missing describes the policies and bindings that are not installed.
func (i *Installed) Missing(required []policies.Policy) []string {
	var missing []string
	_, isAudited := i.Audited()
	for _, policy := range required {
		found, bindings, isUnbound := i.Of(policy), 0, false
		for _, object := range found {
			bound := i.boundTo(object)
			bindings += len(bound)
			isUnbound = isUnbound || len(bound) == 0
			for _, binding := range bound {
				if binding.isAudited && !policy.MayBeAudited && (!policy.FollowsGate || !isAudited) {
					missing = append(missing, fmt.Sprintf("validationActions Deny in %sBinding %q", policy.Kind, binding.name))
				}
			}
		}
		switch {
		case len(found) == 0:
			missing = append(missing, fmt.Sprintf("%s %q", policy.Kind, policy.Label))
		case isUnbound || policy.HasSecondBinding && bindings < 2:
			missing = append(missing, fmt.Sprintf("a %sBinding for %q", policy.Kind, policy.Label))
		}
	}
	return missing
}

// MissingLimits describes what the API server lacks of the policy that limits the operator itself.
func (i *Installed) MissingLimits() string {
	if missing := i.Missing(policies.For(policies.ForOperator)); len(missing) > 0 {
		return messageUnlimited(missing)
	}
	return ""
}

// ProtectionCondition returns the condition of the effective set about the optional policy for deletion protection.
func (i *Installed) ProtectionCondition() metav1.Condition {
	condition := metav1.Condition{
		Type: internalv1alpha1.ConditionDeletionProtectionEnforced, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonPolicyMissing, Message: messageProtectionNotEnforced,
	}
	if i.isProtected {
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonEnforced
		condition.Message = messageProtectionEnforced
	}
	return condition
}

// ServesMutating reports whether the API server serves MutatingAdmissionPolicy v1. It does not use the version of the
// API server, because a type can be disabled.
func ServesMutating(ctx context.Context, api discovery.DiscoveryInterfaceWithContext) (bool, error) {
	missing, err := MissingResources(ctx, api, admissionv1.SchemeGroupVersion,
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
	return len(missing) == 0, err
}

// MissingResources returns the resources that the API server does not serve.
func MissingResources(
	ctx context.Context, api discovery.DiscoveryInterfaceWithContext, groupVersion schema.GroupVersion,
	resources ...string,
) ([]string, error) {
	list, err := api.ServerResourcesForGroupVersionWithContext(ctx, groupVersion.String())
	if apierrors.IsNotFound(err) {
		return resources, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to discover the resources of %s: %w", groupVersion, err)
	}
	return slices.DeleteFunc(resources, func(resource string) bool {
		return slices.ContainsFunc(list.APIResources, func(served metav1.APIResource) bool { return served.Name == resource })
	}), nil
}

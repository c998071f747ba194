// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
)

// Verifier verifies the policies in config/compat if the operator injects the pending list.
// Otherwise, it delegates to policyverifier.Verifier.
type Verifier struct {
	client.Client
	Clock clock.PassiveClock
	// Server describes the API server.
	Server Server

	policies policyverifier.Verifier
	// confirmed identifies the set and the guard policy that dry runs have confirmed.
	confirmed string
}

// NewVerifier returns a Verifier for an API server.
func NewVerifier(c client.Client, passive clock.PassiveClock, server Server) *Verifier {
	return &Verifier{
		Client: c, Clock: passive, Server: server,
		policies: policyverifier.Verifier{Client: c, Clock: passive},
	}
}

// list returns the installed policies of the types that the API server serves.
func (v *Verifier) list(ctx context.Context) (policyverifier.Installed, error) {
	if v.Server.LacksMutatingPolicies {
		return policyverifier.ListValidating(ctx, v.Client)
	}
	return policyverifier.List(ctx, v.Client)
}

// operatorInjects reports whether the operator adds the pending list to new Namespaces. The
// operator adds it if the API server cannot, or if only config/compat is installed, for example
// after an upgrade of the API server.
func (v *Verifier) operatorInjects(installed policyverifier.Installed) bool {
	return v.Server.LacksMutatingPolicies || installed.HasCompatGuard && !installed.HasMutating()
}

// checkInstalled returns why the operator must not inject the pending list, or "" if it may. The
// list has no effect without the policies.
func checkInstalled(installed policyverifier.Installed) (reason, message string) {
	if missing := installed.Missing(policyverifier.Protecting()); len(missing) > 0 {
		return v1alpha1.ReasonPolicyMissing, msgMissing(missing)
	}
	if !installed.HasCompatGuard {
		return v1alpha1.ReasonPolicyMismatch, msgMismatch
	}
	return "", ""
}

// CheckInstalled reports whether the operator injects the pending list. It returns an error if the
// policies that this API server requires are not installed.
func (v *Verifier) CheckInstalled(ctx context.Context) (operatorInjects bool, err error) {
	installed, err := v.list(ctx)
	if err != nil {
		return false, err
	}
	if !v.operatorInjects(installed) {
		return false, v.policies.CheckInstalled(ctx)
	}
	if _, message := checkInstalled(installed); message != "" {
		return true, errors.New(message)
	}
	return true, installed.CheckForTemplates(InstallCommand)
}

// Verify reports whether every new Namespace gets the initializers that select it. If this cannot
// be determined, Verify returns an empty status and an error.
func (v *Verifier) Verify(
	ctx context.Context, set *v1alpha1.NamespaceInitializerSet,
) (policyverifier.PolicyStatus, error) {
	installed, err := v.list(ctx)
	if err != nil {
		return policyverifier.PolicyStatus{}, err
	}
	if !v.operatorInjects(installed) {
		v.confirmed = ""
		return v.policies.Verify(ctx, set)
	}
	if reason, message := checkInstalled(installed); reason != "" {
		v.confirmed = ""
		status := policyverifier.PolicyStatus{Reason: reason, Message: msgNotInitialized + message}
		log.FromContext(ctx).Info("The admission policies do not match", "reason", status.Reason, "message", status.Message)
		return status, nil
	}
	status := policyverifier.PolicyStatus{
		Reason: v1alpha1.ReasonEnforced, Message: msgEnforced + installed.TemplateWarning(set),
	}
	if !v.Server.LacksMutatingPolicies {
		status.Message += msgUpgrade
	}
	identity := fmt.Sprintf("%s/%s %s", set.UID, set.ResourceVersion, installed.Guard.UID)
	if v.confirmed != identity {
		status, err = v.confirm(ctx, set, installed, status)
		if err != nil || status.Reason != v1alpha1.ReasonEnforced {
			return status, err
		}
		if status.RetryAfter == 0 {
			v.confirmed = identity
		}
	}
	return v.policies.EnsureFail(ctx, set, installed, status)
}

// confirm returns the given status if the operator is authorized to inject the pending list and the
// API server enforces the guard policy.
func (v *Verifier) confirm(
	ctx context.Context, set *v1alpha1.NamespaceInitializerSet, installed policyverifier.Installed,
	enforced policyverifier.PolicyStatus,
) (policyverifier.PolicyStatus, error) {
	if authorized, err := v.isAuthorized(ctx); err != nil {
		return policyverifier.PolicyStatus{}, err
	} else if !authorized {
		return policyverifier.PolicyStatus{
			Reason: v1alpha1.ReasonRefused, Message: msgUnauthorized, RetryAfter: policyverifier.RetryInterval,
		}, nil
	}
	now, refusal, err := v.serverTime(ctx)
	switch {
	case err != nil:
		return policyverifier.PolicyStatus{}, err
	case refusal != nil && installed.Denied(refusal):
		return policyverifier.Refused(refusal), nil
	case refusal != nil:
		return policyverifier.Unconfirmed(enforced, refusal), nil
	}
	if left := latestEnforcement(set.Initializers).Sub(now); left > 0 {
		return policyverifier.PolicyStatus{
			Reason: v1alpha1.ReasonEnforcementPending, Message: msgNextSecond, RetryAfter: left,
		}, nil
	}
	// The guard policy denies new Namespaces with this label to all users, including the operator.
	_, refusal, err = policyverifier.DryRun(ctx, v.Client, map[string]string{v1alpha1.LabelInitializing: "true"})
	switch {
	case err != nil:
		return policyverifier.PolicyStatus{}, err
	case refusal == nil:
		return policyverifier.PolicyStatus{
			Reason: v1alpha1.ReasonEnforcementPending, Message: msgGuardPending, RetryAfter: policyverifier.RetryInterval,
		}, nil
	case !installed.Denied(refusal):
		return policyverifier.Unconfirmed(enforced, refusal), nil
	}
	return enforced, nil
}

// isAuthorized reports whether the operator has the "inject" verb.
func (v *Verifier) isAuthorized(ctx context.Context) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: v1alpha1.VerbInject, Resource: "namespaces"},
	}}
	if err := v.Create(ctx, review); err != nil {
		return false, fmt.Errorf("failed to check the permission for the verb %q on namespaces: %w", v1alpha1.VerbInject, err)
	}
	return review.Status.Allowed, nil
}

var errNoCreationTimestamp = errors.New("the API server returned a new namespace without creationTimestamp")

// serverTime returns the time of the API server in whole seconds. It is the creation timestamp of a
// Namespace that is created as a dry run.
func (v *Verifier) serverTime(ctx context.Context) (now time.Time, refusal, err error) {
	namespace, refusal, err := policyverifier.DryRun(ctx, v.Client, nil)
	switch {
	case refusal != nil || err != nil:
		return time.Time{}, refusal, err
	case namespace.CreationTimestamp.IsZero():
		return time.Time{}, nil, errNoCreationTimestamp
	}
	return namespace.CreationTimestamp.Time, nil, nil
}

// Stamp sets the time since which each entry of the set has been enforced, if the operator injects
// the pending list. For a new entry, this is the next second of the API server's clock. Creation
// timestamps have a precision of one second, so a Namespace whose timestamp is the current second
// may have been created before the entry.
func (v *Verifier) Stamp(
	ctx context.Context, wanted, have []v1alpha1.EffectiveInitializer,
) ([]v1alpha1.EffectiveInitializer, error) {
	installed, err := v.list(ctx)
	switch {
	case err != nil:
		return nil, err
	case !v.operatorInjects(installed):
		return wanted, nil
	case !needsStamp(wanted, have):
		return stamp(wanted, have, metav1.Time{}), nil
	}
	now, refusal, err := v.serverTime(ctx)
	if err != nil {
		return nil, err
	}
	if refusal != nil { // For example, another project's webhook denied the dry run.
		now = v.Clock.Now().UTC().Truncate(time.Second)
	}
	return stamp(wanted, have, metav1.NewTime(now.Add(time.Second))), nil
}

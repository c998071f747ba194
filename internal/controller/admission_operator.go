// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

// inForceByOperator is the message of a configuration that is in force where the operator
// injects.
const inForceByOperator = "every new namespace gets these initializers from the operator, shortly after it was " +
	"created; until then it is open"

// observeOperator is Observe where the operator itself gives new Namespaces their list. The
// API server's part in that is to let the operator do so, and nobody else.
func (a *Admission) observeOperator(
	ctx context.Context, set *v1alpha1.NamespaceInitializerSet, installed installedPolicies,
) (Verdict, error) {
	if why := a.whyNotInject(installed); why != "" {
		a.proven = ""
		reason := v1alpha1.ReasonPolicyMismatch
		if len(installed.missing(validatingPolicies())) > 0 {
			reason = v1alpha1.ReasonPolicyMissing
		}
		message := "new namespaces are not initialized: " + why
		log.FromContext(ctx).Info("The admission policies do not fit", "message", message)
		return Verdict{Reason: reason, Message: message}, nil
	}
	verdict := Verdict{Reason: v1alpha1.ReasonEnforced, Message: inForceByOperator}
	if !a.Server.LacksMutatingPolicies {
		verdict.Message += "; this API server can do better: run: " + installCommand
	}
	identity := fmt.Sprintf("%s/%s %s", set.UID, set.ResourceVersion, installed.guard.UID)
	if a.proven == identity {
		return verdict, nil
	}
	if mayInject, err := a.mayInject(ctx); err != nil {
		return Verdict{}, err
	} else if !mayInject {
		return Verdict{
			Reason: v1alpha1.ReasonRefused,
			Message: fmt.Sprintf("new namespaces are not initialized: the operator does not hold verb %q on namespaces; run: %s",
				v1alpha1.VerbInject, compatCommand),
			RetryAfter: settleRetry,
		}, nil
	}
	now, refusal, err := a.probe(ctx, nil)
	switch {
	case err != nil:
		return Verdict{}, err
	case refusal != nil && installed.isOurs(refusal):
		return refusedByUs(refusal), nil
	case refusal != nil:
		return unconfirmed(verdict, refusal), nil
	}
	if left := initialization.InForceFrom(set.Initializers).Sub(now); left > 0 {
		return Verdict{
			Reason:     v1alpha1.ReasonEnforcementPending,
			Message:    "the operator gives these initializers to namespaces that are created from the next second on",
			RetryAfter: left,
		}, nil
	}
	// Nobody may choose their own initializers, the operator neither. The answer tells that
	// guard is at work.
	_, refusal, err = a.probe(ctx, map[string]string{v1alpha1.LabelInitializing: "true"})
	switch {
	case err != nil:
		return Verdict{}, err
	case refusal == nil:
		return Verdict{
			Reason:     v1alpha1.ReasonEnforcementPending,
			Message:    "the API server does not act on policy guard yet; this takes some seconds after an installation",
			RetryAfter: settleRetry,
		}, nil
	case !installed.isOurs(refusal):
		return unconfirmed(verdict, refusal), nil
	}
	a.proven = identity
	return verdict, nil
}

// mayInject tells whether the API server lets the operator give Namespaces their list.
func (a *Admission) mayInject(ctx context.Context) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: v1alpha1.VerbInject, Resource: "namespaces"},
	}}
	if err := a.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking the API server whether the operator may %s: %w", v1alpha1.VerbInject, err)
	}
	return review.Status.Allowed, nil
}

// probe creates a Namespace as a dry run and returns when the API server says that it was
// created, in whole seconds, or why the API server refuses it.
func (a *Admission) probe(
	ctx context.Context, labels map[string]string,
) (created time.Time, refusal, err error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: probePrefix, Labels: labels}}
	err = a.Create(ctx, namespace, client.DryRunAll, client.FieldOwner(nswrite.FieldOwner))
	switch {
	case isRefusal(err):
		return time.Time{}, err, nil
	case err != nil:
		return time.Time{}, nil, fmt.Errorf("creating a namespace as a dry run: %w", err)
	case namespace.CreationTimestamp.IsZero():
		return time.Time{}, nil, errNoTime
	}
	return namespace.CreationTimestamp.Time, nil, nil
}

// OperatorInjects tells whether it is the operator that gives new Namespaces their list.
func (a *Admission) OperatorInjects(ctx context.Context) (bool, error) {
	installed, err := a.policies(ctx)
	return a.operatorInjects(installed), err
}

// CheckInstalled returns an error where the policies are not those that this API server
// needs, or not all of them, and who gives new Namespaces their list: the operator, or the
// API server.
func (a *Admission) CheckInstalled(ctx context.Context) (operatorInjects bool, err error) {
	installed, err := a.policies(ctx)
	if err != nil {
		return false, err
	}
	if a.operatorInjects(installed) {
		if why := a.whyNotInject(installed); why != "" {
			err = errors.New(why)
		}
		return true, err
	}
	if verdict, isInstalled := installed.judge(); !isInstalled {
		err = errors.New(verdict.Message)
	}
	return false, err
}

// Stamp returns the entries of a new set with the time from which each is in force: the next
// whole second of the API server's clock, where it is new. The times of Namespaces have no
// fractions, so this second cannot be told from what was before.
func (a *Admission) Stamp(
	ctx context.Context, wanted, have []v1alpha1.EffectiveInitializer,
) ([]v1alpha1.EffectiveInitializer, error) {
	if !initialization.NeedsStamp(wanted, have) {
		return initialization.Stamp(wanted, have, metav1.Time{}), nil
	}
	now, refusal, err := a.probe(ctx, nil)
	if err != nil {
		return nil, err
	}
	if refusal != nil {
		// Somebody else's webhook, for one. The own clock is the next best.
		now = a.Clock.Now().UTC().Truncate(time.Second)
	}
	return initialization.Stamp(wanted, have, metav1.NewTime(now.Add(time.Second))), nil
}

func refusedByUs(refusal error) Verdict {
	return Verdict{
		Reason: v1alpha1.ReasonRefused,
		Message: fmt.Sprintf("the API server refuses new namespaces by a policy of this project, "+
			"as a dry run has shown: %v", refusal),
		RetryAfter: settleRetry,
	}
}

func unconfirmed(verdict Verdict, refusal error) Verdict {
	verdict.Message += fmt.Sprintf("; a dry run could not confirm it: %v", refusal)
	verdict.RetryAfter = maxRetryDelay
	return verdict
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

const (
	// failAfter is the age of the set from which on every API server is taken to
	// know its type. An API server's admission looks up parameter kinds in a
	// discovery cache that it renews every 30 s (k8s.io/apiserver,
	// pkg/server/options/admission.go).
	failAfter = 60 * time.Second

	// How long one reconciliation waits for the API server to act on a new set, and
	// how long it is before the next one looks again.
	settleTimeout  = time.Second
	settleInterval = 20 * time.Millisecond
	settleRetry    = 2 * time.Second

	// probePrefix starts the name of the Namespace that is created as a dry run.
	probePrefix = "nslifecycle-probe-"
)

// Admission finds out whether the API server acts on the effective set, by the
// admission policies it has and by creating a Namespace as a dry run.
type Admission struct {
	client.Client
	Clock clock.PassiveClock
	// Server is what the API server can do.
	Server Server

	// proven identifies the set and the policy that a dry run has shown at work.
	proven string
}

// Verdict is what Admission has found out.
type Verdict struct {
	// Reason is v1alpha1.ReasonEnforced or why the set is not in force.
	Reason string
	// Message says more, as a sentence.
	Message string
	// RetryAfter is when to look again; 0 means that a watch event will tell.
	RetryAfter time.Duration
}

// The policies are the API server's half of this project: the operator watches that
// they are there. It changes one field of one of them, see ensureFail.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings;validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=get;list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies,resourceNames=nslifecycle-inject,verbs=patch
// Creating a namespace is used for dry runs only.
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=create

// Observe returns whether the API server acts on the set. Where that could not be found
// out, the verdict is empty and the error says why; an error next to a verdict takes
// nothing away from it.
func (a *Admission) Observe(ctx context.Context, set *v1alpha1.NamespaceInitializerSet) (Verdict, error) {
	installed, err := a.policies(ctx)
	if err != nil {
		return Verdict{}, err
	}
	if a.operatorInjects(installed) {
		return a.observeOperator(ctx, set, installed)
	}
	if verdict, isInstalled := installed.judge(); !isInstalled {
		a.proven = ""
		log.FromContext(ctx).Info("The admission policies do not fit", "message", verdict.Message)
		return verdict, nil
	}

	verdict := Verdict{Reason: v1alpha1.ReasonEnforced, Message: "every new namespace gets these initializers"}
	identity := fmt.Sprintf("%s/%s %s/%s", set.UID, set.ResourceVersion, installed.inject.UID, installed.injectBinding.UID)
	if a.proven != identity {
		seen, err := a.waitUntilInjected(ctx, set)
		switch {
		case err != nil:
			return Verdict{}, err
		case seen.refusal != nil && installed.isOurs(seen.refusal):
			return refusedByUs(seen.refusal), nil
		case seen.refusal != nil:
			verdict = unconfirmed(verdict, seen.refusal)
		case !seen.acts:
			return Verdict{
				Reason:     v1alpha1.ReasonEnforcementPending,
				Message:    "the API server does not act on the set yet; this takes up to 30 s after an installation",
				RetryAfter: settleRetry,
			}, nil
		default:
			a.proven = identity
		}
	}
	left, err := a.ensureFail(ctx, installed.inject, set)
	if apierrors.IsForbidden(err) {
		verdict.Message += fmt.Sprintf("; an API server that has just been restarted may let a namespace through without "+
			"them, because the operator may not set failurePolicy of MutatingAdmissionPolicy %q to Fail: set it yourself",
			installed.inject.Name)
		left, err = maxRetryDelay, nil
	}
	if left > 0 && (verdict.RetryAfter == 0 || left < verdict.RetryAfter) {
		verdict.RetryAfter = left
	}
	return verdict, err
}

// judge tells whether the policies are those of config/default, and what it means if they
// are not.
func (p installedPolicies) judge() (Verdict, bool) {
	switch missing := p.missing(allPolicies()); {
	case len(missing) > 0:
		return Verdict{
			Reason: v1alpha1.ReasonPolicyMissing,
			Message: fmt.Sprintf("the API server lacks %s, so new namespaces are not initialized as configured; run: %s",
				strings.Join(missing, ", "), installCommand),
		}, false
	case p.isForOperator:
		return Verdict{
			Reason: v1alpha1.ReasonPolicyMismatch,
			Message: "policy guard is the one of config/compat, which refuses what policy inject gives to new namespaces; " +
				"run: " + installCommand,
		}, false
	}
	return Verdict{}, true
}

// injection is what a Namespace that was created as a dry run has shown.
type injection struct {
	// acts tells whether the Namespace got those of the set's initializers that select it.
	acts bool
	// refusal is why the API server refused the Namespace, which says nothing about
	// the set: somebody else's policy, for one.
	refusal error
}

// waitUntilInjected creates Namespaces as dry runs until they get the set's
// initializers, for a moment at most. Which ones a Namespace gets can depend on its
// labels, so there may be several.
func (a *Admission) waitUntilInjected(
	ctx context.Context, set *v1alpha1.NamespaceInitializerSet,
) (injection, error) {
	probes := initialization.ProbeLabels(set.Initializers)
	var seen injection
	// The time-out ends the polling, and not a request that is under way.
	err := wait.PollUntilContextTimeout(ctx, settleInterval, settleTimeout, true, func(context.Context) (bool, error) {
		for _, labels := range probes {
			probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: probePrefix, Labels: maps.Clone(labels)}}
			err := a.Create(ctx, probe, client.DryRunAll, client.FieldOwner(nswrite.FieldOwner))
			if isRefusal(err) {
				seen = injection{refusal: err}
				return true, nil
			}
			seen = injection{acts: err == nil && isInjected(probe, set.Initializers, labels)}
			if !seen.acts {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil && !wait.Interrupted(err) {
		return injection{}, fmt.Errorf("creating a namespace as a dry run: %w", err)
	}
	return seen, ctx.Err()
}

// isInjected tells whether a new Namespace that was sent with these labels has got those of the
// initializers that select it and no others, and their tokens.
//
// Other policies may have put labels on or taken them off, before inject or after it. Where that
// decides whether an initializer selects the Namespace, either is right: otherwise such a policy
// would keep the set from ever being in force.
func isInjected(
	namespace *corev1.Namespace, initializers []v1alpha1.EffectiveInitializer, sent map[string]string,
) bool {
	list := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
	got := initialization.SplitNames(list)
	returned := maps.Clone(namespace.Labels)
	if _, isSent := sent[corev1.LabelMetadataName]; !isSent {
		delete(returned, corev1.LabelMetadataName) // The API server adds it after admission.
	}
	var expected []v1alpha1.EffectiveInitializer
	for _, initializer := range initializers {
		atFirst := initialization.Selects(initializer.NamespaceSelector, sent)
		atLast := initialization.Selects(initializer.NamespaceSelector, returned)
		if atFirst && atLast || atFirst != atLast && slices.Contains(got, initializer.Name) {
			expected = append(expected, initializer)
		}
	}
	return list == strings.Join(initialization.Names(expected), ",") &&
		len(initialization.MissingFinalizers(namespace, expected)) == 0
}

// isRefusal tells whether an error is an answer of the admission chain. A webhook that
// does not answer makes it an internal error.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsInternalError(err)
}

// ensureFail makes the inject policy refuse namespaces rather than let them through
// when the API server cannot read the set, as in the first moments after a restart.
// The manifest cannot say so from the start: as long as an API server has not heard
// of the set's type, nobody could create a namespace at all. It returns how long it
// is until that can be done, or 0.
func (a *Admission) ensureFail(
	ctx context.Context, inject *admissionv1.MutatingAdmissionPolicy, set *v1alpha1.NamespaceInitializerSet,
) (time.Duration, error) {
	if policy := inject.Spec.FailurePolicy; policy != nil && *policy == admissionv1.Fail {
		return 0, nil
	}
	if left := failAfter - a.Clock.Since(set.CreationTimestamp.Time); left > 0 {
		return left, nil
	}
	hardened := inject.DeepCopy()
	fail := admissionv1.Fail
	hardened.Spec.FailurePolicy = &fail
	patch := client.MergeFromWithOptions(inject, client.MergeFromWithOptimisticLock{})
	if err := a.Patch(ctx, hardened, patch, client.FieldOwner(nswrite.FieldOwner)); err != nil {
		return 0, fmt.Errorf("setting failurePolicy of MutatingAdmissionPolicy %q to Fail: %w", inject.Name, err)
	}
	log.FromContext(ctx).Info("Set failurePolicy of the inject policy to Fail", "policy", inject.Name)
	return 0, nil
}

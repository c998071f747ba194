// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

const (
	// probeTimeout is how long Verify waits for the API server to enforce a new set. It repeats the
	// dry runs every probeInterval.
	probeTimeout  = time.Second
	probeInterval = 20 * time.Millisecond

	// retryInterval is the time until the next call of Verify if the policies are not enforced yet.
	retryInterval = 2 * time.Second
	// UnconfirmedRetryInterval is used instead if policies of other projects prevent dry runs, or a permission is missing.
	UnconfirmedRetryInterval = time.Minute
	// serverInterval is the time until the next verification of what the API server serves.
	serverInterval = time.Minute
)

// Verifier reports whether API servers inject the initializers of the effective set into new Namespaces.
type Verifier struct {
	Namespaces Creator

	// confirmed identifies the set and what injects it that dry runs have confirmed.
	confirmed string
}

// Status is the result of a verification.
type Status struct {
	// Reason is v1alpha1.ReasonEnforced, or why the set is not enforced. It is empty if this could not be determined.
	Reason string
	// Message describes the reason for users.
	Message string
	// IsAudited reports whether no binding of the gate denies early writes.
	IsAudited bool
	// RetryAfter is the time until the next verification; 0 if no retry is needed before the next
	// watch event.
	RetryAfter time.Duration
	// MayFail reports whether API servers may reject what the installed policies for the set cannot evaluate, and
	// WebhooksMayFail what the webhooks that replace the mutating policies do not answer.
	MayFail, WebhooksMayFail bool
}

// The admission controller verifies the set that the initialization controllers write, and publishes the result.
// The API server requires get of those who write a policy with the set as its parameter.
// +kubebuilder:rbac:groups=internal.nslifecycle.dev,resources=namespaceinitializersets,verbs=get;list;watch
// +kubebuilder:rbac:groups=internal.nslifecycle.dev,resources=namespaceinitializersets/status,verbs=patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings,verbs=get;list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=get;list;watch
// The operator creates Namespaces only as dry runs.
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=create

// Verify reports whether the API server enforces the set with what is installed. If this cannot be determined, it
// returns an empty status and an error. If it returns both, it could not determine whether the webhooks answer.
func (v *Verifier) Verify(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, installed *Installed,
) (Status, error) {
	status, err := v.verify(ctx, set, installed)
	status.addAudited(installed)
	return status, err
}

// NotInstalled returns the status if what injects could not be installed. It is empty unless the API server refused the
// change.
func NotInstalled(installed *Installed, err error) Status {
	if !isRefusal(err) {
		return Status{}
	}
	status := Status{Reason: v1alpha1.ReasonEnforcementPending, Message: messageNotInjecting(err)}
	status.addAudited(installed)
	return status
}

// addAudited adds whether API servers admit early writes.
func (s *Status) addAudited(installed *Installed) {
	var audited []string
	audited, s.IsAudited = installed.Audited()
	if len(audited) > 0 && s.Reason == v1alpha1.ReasonEnforced {
		s.Reason, s.Message = v1alpha1.ReasonAuditMode, s.Message+messageAudited(audited)
	}
}

// RetryWithin ensures that the next verification is not later than in the given time.
func (s *Status) RetryWithin(left time.Duration) {
	if s.RetryAfter == 0 || left < s.RetryAfter {
		s.RetryAfter = left
	}
}

func (v *Verifier) verify(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, installed *Installed,
) (Status, error) {
	if missing := installed.missingForState(); len(missing) > 0 {
		v.confirmed = ""
		status := Status{Reason: v1alpha1.ReasonPolicyMissing, Message: messageMissing(missing), RetryAfter: serverInterval}
		log.FromContext(ctx).Info("The admission policies are incomplete", "reason", status.Reason, "message", status.Message)
		return status, nil
	}
	status, err := v.verifyInjection(ctx, set, installed)
	if err != nil || status.Reason != v1alpha1.ReasonEnforced {
		return status, err
	}
	status.RetryWithin(serverInterval)
	// Without initializers, the webhook does not select the dry runs. With policies, the dry runs do not show whether it
	// answers.
	if len(set.Initializers) > 0 && !installed.ServesMutating {
		status.WebhooksMayFail = v.confirmed != ""
		if !status.WebhooksMayFail { // Another rule refused the dry runs.
			if status.WebhooksMayFail, err = v.isServed(ctx); err != nil {
				return status, err
			}
		}
	}
	status.MayFail = true
	return status, nil
}

// missingForState describes the missing policies, and the webhooks if the API server requires them.
func (i *Installed) missingForState() []string {
	required := policies.Protecting()
	if i.ServesMutating {
		required = policies.For(policies.ForState)
	}
	missing := i.Missing(required)
	if len(missing) == 0 && !i.ServesMutating && i.Webhooks == "" {
		missing = append(missing, messageNoWebhook)
	}
	return missing
}

// warning returns the end of a message about missing policies for the templates and the confined subjects in the set,
// and for the operator, or "" if there are none.
func (i *Installed) warning(set *internalv1alpha1.NamespaceInitializerSet) string {
	warning := ""
	if missing := i.Missing(policies.For(policies.ForTemplates)); len(set.Templates) > 0 && len(missing) > 0 {
		warning += messageTemplatesUnprotected(missing)
	}
	isConfining := len(policies.ComputeConfined(set.Initializers, set.SystemNamespace)) > 0
	if missing := i.Missing(policies.For(policies.ForConfinement)); isConfining && len(missing) > 0 {
		warning += messageConfinementUnprotected(missing)
	}
	if missing := i.MissingLimits(); missing != "" {
		warning += "; " + missing
	}
	return warning
}

// identity identifies the set and what injects it. It does not contain the resourceVersion, which changes with the
// status of the set.
func (i *Installed) identity(set *internalv1alpha1.NamespaceInitializerSet) string {
	identity := fmt.Sprintf("%s/%d %s", set.UID, set.Generation, i.Webhooks)
	for _, inject := range i.Of(policies.Named(internalv1alpha1.PolicyInject)) {
		identity += fmt.Sprintf(" %s %v", inject.GetUID(), i.boundTo(inject))
	}
	return identity
}

// verifyInjection confirms by dry runs that new Namespaces get the initializers. It repeats the dry
// runs only if the set has changed, or if the policy or its binding was recreated.
func (v *Verifier) verifyInjection(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, installed *Installed,
) (Status, error) {
	status := Status{Reason: v1alpha1.ReasonEnforced, Message: messageEnforced + installed.warning(set)}
	identity := installed.identity(set)
	if v.confirmed == identity {
		return status, nil
	}
	v.confirmed = ""
	isInjected, refusal, err := v.waitForInjection(ctx, set)
	switch {
	case err != nil:
		return Status{}, err
	case refusal != nil && installed.disproves(refusal):
		return Status{Reason: v1alpha1.ReasonRejected, Message: messageRefused(refusal), RetryAfter: retryInterval}, nil
	case refusal != nil: // By another rule, which the message contains.
		status.Message += messageUnconfirmed(refusal)
		status.RetryAfter = UnconfirmedRetryInterval
		return status, nil
	case !isInjected:
		return Status{
			Reason: v1alpha1.ReasonEnforcementPending, Message: messagePending(installed.ServesMutating),
			RetryAfter: retryInterval,
		}, nil
	}
	v.confirmed = identity
	return status, nil
}

// waitForInjection creates Namespaces as dry runs until they get the initializers in the set, or
// until probeTimeout expires. One dry run is not sufficient if initializers have selectors.
func (v *Verifier) waitForInjection(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet,
) (injected bool, refusal, err error) {
	probes := initialization.ProbeLabels(set)
	// The timeout does not cancel requests. Otherwise, no dry run would ever succeed on a slow API
	// server.
	err = wait.PollUntilContextTimeout(ctx, probeInterval, probeTimeout, true, func(context.Context) (bool, error) {
		for _, labels := range probes {
			namespace, denied, err := dryRun(ctx, v.Namespaces, probePrefix, labels)
			if denied != nil {
				injected, refusal = false, denied
				return true, nil
			}
			injected = err == nil && hasInitializers(namespace, set, labels)
			if !injected {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil && !wait.Interrupted(err) {
		return false, nil, err
	}
	return injected, refusal, ctx.Err()
}

// hasInitializers reports whether a Namespace that was created with these labels and a generateName has exactly the
// initializers that select it, and their finalizers.
//
// Policies of other projects can add or remove labels before or after the inject policy. If an
// initializer selects only the labels before or only the labels after such a change, it
// accepts the Namespace with and without the initializer. Otherwise, the set would never be
// reported as enforced.
func hasInitializers(
	namespace *corev1.Namespace, set *internalv1alpha1.NamespaceInitializerSet, sent map[string]string,
) bool {
	list := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
	got := initialization.SplitNames(list)
	before, after := initialization.Names(initialization.Selected(set, initialization.SelectorLabels("", sent))),
		initialization.Names(initialization.Selected(set, namespace.Labels))
	var expected []internalv1alpha1.EffectiveInitializer
	for _, initializer := range set.Initializers {
		before, after := slices.Contains(before, initializer.Name), slices.Contains(after, initializer.Name)
		if before && after || before != after && slices.Contains(got, initializer.Name) {
			expected = append(expected, initializer)
		}
	}
	return list == strings.Join(initialization.Names(expected), ",") &&
		len(initialization.MissingFinalizers(namespace, expected)) == 0
}

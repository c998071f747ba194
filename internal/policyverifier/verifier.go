// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/config/validating"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/mutation"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/policyapply"
)

const (
	// probeTimeout is how long Verify waits for the API server to enforce a new set. It repeats the
	// dry runs every probeInterval.
	probeTimeout  = time.Second
	probeInterval = 20 * time.Millisecond

	// retryInterval is the time until the next call of Verify if the policies are not enforced yet.
	retryInterval = 2 * time.Second
	// unconfirmedRetryInterval is used instead if policies of other projects prevent dry runs.
	unconfirmedRetryInterval = time.Minute
	// serverInterval is the time until Verify discovers again what the API server serves.
	serverInterval = time.Minute
)

// Verifier makes API servers inject the initializers of the effective set into new Namespaces, and verifies it.
type Verifier struct {
	// Client reads the validating policies from its cache, and writes.
	client.Client
	Clock clock.PassiveClock
	// Live reads the mutating policies, and those that Verify applies, from the API server: a policy that is missing in
	// the cache can exist without its label, and with failurePolicy Fail.
	Live     client.Reader
	Mutation Mutation

	// confirmed identifies the set and what injects it that dry runs have confirmed.
	confirmed string
}

// Mutation makes API servers inject. It is implemented by mutation.Installer.
type Mutation interface {
	Ensure(
		ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, owner client.Object,
	) (mutation.State, error)
	EnsureFail(ctx context.Context) error
}

// PolicyStatus is the result of a verification.
type PolicyStatus struct {
	// Reason is v1alpha1.ReasonEnforced, or why the set is not enforced. It is empty if this could not be determined.
	Reason string
	// Message describes the reason for users.
	Message string
	// IsAudited reports whether no binding of the gate denies early writes.
	IsAudited bool
	// RetryAfter is the time until the next verification; 0 if no retry is needed before the next
	// watch event.
	RetryAfter time.Duration
}

// The admission controller verifies the set that the initialization controllers write, and publishes the result.
// The API server requires get of those who write a policy with the set as its parameter.
// +kubebuilder:rbac:groups=internal.nslifecycle.dev,resources=namespaceinitializersets,verbs=get;list;watch
// +kubebuilder:rbac:groups=internal.nslifecycle.dev,resources=namespaceinitializersets/status,verbs=patch
// The operator applies the policies in config/validating and the binding of inject. The permissions for config/mutating
// are in config/webhook.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings,verbs=get;list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=get;list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicybindings,resourceNames=nslifecycle-inject,verbs=create;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=nslifecycle-templates;nslifecycle-waiting-subjects;nslifecycle-waiting-subjects-resources-named-namespaces;nslifecycle-initializer-subjects,verbs=create;patch
// The operator creates Namespaces only as dry runs.
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=create

// Verify makes the API server enforce the set, and reports whether it does. If this cannot be determined, it returns
// an empty status and an error. If it returns both a status and an error, the API server refuses a change of what
// injects, or the error concerns only the policies that the operator applies, their failure policy, or confined
// initializers.
func (v *Verifier) Verify(ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet) (PolicyStatus, error) {
	found, err := list(ctx, v.Client)
	if err != nil {
		return PolicyStatus{}, err
	}
	found, isForbidden, applyErr := v.applyPolicies(ctx, found)
	state, err := v.ensureInjection(ctx, set, &found)
	if err != nil {
		var status PolicyStatus
		if isRefusal(err) {
			status = PolicyStatus{Reason: v1alpha1.ReasonEnforcementPending, Message: msgNotInjecting(err)}
			status.addAudited(found)
		}
		return status, errors.Join(err, applyErr)
	}
	// Independent of the injection, which a policy of another project can prevent.
	unauthorized, confinementErr := v.ensureConfinement(ctx, set, found)
	status, err := v.verify(ctx, set, state, found)
	status.addAudited(found)
	if isForbidden {
		unauthorized += msgNotApplied
	}
	if status.Reason != "" && unauthorized != "" {
		status.Message += unauthorized
		status.retryAfter(unconfirmedRetryInterval)
	}
	return status, errors.Join(applyErr, err, confinementErr)
}

// addAudited adds whether API servers admit early writes.
func (s *PolicyStatus) addAudited(found installed) {
	var audited []string
	audited, s.IsAudited = found.audited()
	if len(audited) > 0 && s.Reason == v1alpha1.ReasonEnforced {
		s.Reason, s.Message = v1alpha1.ReasonAuditMode, s.Message+msgAudited(audited)
	}
}

// verify verifies the installed policies.
func (v *Verifier) verify(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, state mutation.State, found installed,
) (PolicyStatus, error) {
	if missing := found.missingWith(state); len(missing) > 0 {
		v.confirmed = ""
		status := PolicyStatus{
			Reason: v1alpha1.ReasonPolicyMissing, Message: msgMissing(missing), RetryAfter: serverInterval,
		}
		log.FromContext(ctx).Info("The admission policies are incomplete", "reason", status.Reason, "message", status.Message)
		return status, nil
	}
	status, err := v.verifyInjection(ctx, set, state, found)
	if err != nil || status.Reason != v1alpha1.ReasonEnforced {
		return status, err
	}
	status.retryAfter(serverInterval)
	// Only if the webhook answers: without initializers, it does not select the dry runs, and with policies, the dry runs
	// do not show whether it answers.
	if len(set.Initializers) > 0 && !state.ServesPolicies {
		doesAnswer, err := v.confirmed != "", error(nil)
		if !doesAnswer { // Another rule refused the dry runs.
			doesAnswer, err = v.isServed(ctx)
		}
		if err == nil && doesAnswer {
			err = v.Mutation.EnsureFail(ctx)
		}
		if err != nil {
			return status, err
		}
	}
	return v.ensureFail(ctx, set, found, status)
}

// ensureInjection makes API servers inject, unless nothing protects the state, and adds the policies that do to found.
func (v *Verifier) ensureInjection(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, found *installed,
) (mutation.State, error) {
	var owner client.Object
	if len(found.missing(protecting())) == 0 {
		owner = found.gate()
	}
	state, err := v.Mutation.Ensure(ctx, set, owner)
	if err == nil && state.ServesPolicies {
		err = found.addMutating(ctx, v.Live)
	}
	return state, err
}

// Policies returns the policies in config/validating with their bindings. The policy waiting-subjects only warns if the
// gate does.
func Policies(isAudited bool) []*unstructured.Unstructured {
	policies := policyapply.Decode(validating.WaitingSubjects, validating.InitializerSubjects, validating.Templates)
	for _, object := range policies {
		isBinding, label := object.GetKind() == validatingKind+"Binding", object.GetLabels()[internalv1alpha1.LabelPolicy]
		if isAudited && isBinding && label == internalv1alpha1.PolicyWaitingSubjects {
			actions := []string{string(admissionv1.Warn), string(admissionv1.Audit)}
			utilruntime.Must(unstructured.SetNestedStringSlice(object.Object, actions, "spec", "validationActions"))
		}
	}
	return policies
}

// applyPolicies applies the policies in config/validating, and returns the installed policies, and whether a permission
// to apply them is missing. With the gate policy as their owner, they are removed together with the policies in the
// manifests.
func (v *Verifier) applyPolicies(ctx context.Context, found installed) (installed, bool, error) {
	if len(found.missing(installedFirst())) > 0 {
		return found, false, nil
	}
	_, isAudited := found.audited()
	result, err := policyapply.Apply(ctx, v.Client, v.Live, found.gate(), Policies(isAudited))
	if !result.HasApplied {
		return found, result.IsForbidden, err
	}
	applied, listErr := list(ctx, v.Live) // The cache does not contain them yet.
	if listErr != nil {
		return found, result.IsForbidden, errors.Join(err, listErr)
	}
	return applied, result.IsForbidden, err
}

// missingWith describes the missing policies, and the webhooks if the API server requires them.
func (i installed) missingWith(state mutation.State) []string {
	required := protecting()
	if state.ServesPolicies {
		required = append(mutating(), required...)
	}
	missing := i.missing(required)
	if len(missing) == 0 && !state.ServesPolicies && state.Webhooks == "" {
		missing = append(missing, msgNoWebhook)
	}
	return missing
}

// verifyInjection confirms by dry runs that new Namespaces get the initializers. It repeats the dry
// runs only if the set has changed, or if the policy or its binding was recreated.
func (v *Verifier) verifyInjection(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, state mutation.State, found installed,
) (PolicyStatus, error) {
	status := PolicyStatus{Reason: v1alpha1.ReasonEnforced, Message: msgEnforced + found.warning(set)}
	// Not the resourceVersion, which changes with the status of the set.
	identity := fmt.Sprintf("%s/%d %s", set.UID, set.Generation, state.Webhooks)
	if state.ServesPolicies {
		identity += fmt.Sprintf(" %s/%s", found.inject.UID, found.injectBinding.UID)
	}
	if v.confirmed == identity {
		return status, nil
	}
	v.confirmed = ""
	isInjected, refusal, err := v.waitForInjection(ctx, set)
	switch {
	case err != nil:
		return PolicyStatus{}, err
	case refusal != nil && found.disproves(refusal):
		return PolicyStatus{Reason: v1alpha1.ReasonRejected, Message: msgRefused(refusal), RetryAfter: retryInterval}, nil
	case refusal != nil: // By another rule, which the message contains.
		status.Message += msgUnconfirmed(refusal)
		status.RetryAfter = unconfirmedRetryInterval
		return status, nil
	case !isInjected:
		return PolicyStatus{
			Reason: v1alpha1.ReasonEnforcementPending, Message: msgPending(state), RetryAfter: retryInterval,
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
			namespace, denied, err := dryRun(ctx, v.Client, probePrefix, labels)
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

// ensureFail sets the failure policy of the inject policy to Fail, and that of the policies for templates,
// waitingSubjects and subjects if the set contains any. The API server then denies requests while it cannot
// read the set, for example shortly after a restart. The manifests of package policyapply cannot contain Fail: no
// Namespace could be created until the API server has discovered the set's type. ensureFail adds a missing permission,
// and the time until every API server has discovered the type, to the given status.
func (v *Verifier) ensureFail(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, found installed, status PolicyStatus,
) (PolicyStatus, error) {
	policies := found.failingOpen(set)
	if len(policies) == 0 {
		return status, nil
	}
	if left := policyapply.RecognizedAfter - v.Clock.Since(set.CreationTimestamp.Time); left > 0 {
		status.retryAfter(left)
		return status, nil
	}
	var errs []error
	for _, policy := range policies {
		err := v.setFail(ctx, policy)
		if apierrors.IsForbidden(err) {
			status.Message += msgFailurePolicyForbidden(policy.GetName())
			status.retryAfter(unconfirmedRetryInterval)
			err = nil
		}
		errs = append(errs, err)
	}
	return status, errors.Join(errs...)
}

// retryAfter ensures that the next verification is not later than in the given time.
func (s *PolicyStatus) retryAfter(left time.Duration) {
	if s.RetryAfter == 0 || left < s.RetryAfter {
		s.RetryAfter = left
	}
}

func isFail(policy *admissionv1.FailurePolicyType) bool {
	return policy != nil && *policy == admissionv1.Fail
}

func (v *Verifier) setFail(ctx context.Context, policy client.Object) error {
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"failurePolicy":%q}}`,
		policy.GetResourceVersion(), admissionv1.Fail)
	changed := policy.DeepCopyObject().(client.Object)
	err := v.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(nsobject.FieldOwner))
	if err != nil {
		return fmt.Errorf("failed to set failurePolicy of %q to Fail: %w", policy.GetName(), err)
	}
	log.FromContext(ctx).Info("Set failurePolicy of an admission policy to Fail", "policy", policy.GetName())
	return nil
}

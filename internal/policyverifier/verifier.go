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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

const (
	// failAfter is the age of the set after which every API server recognizes its type: admission
	// looks up parameter kinds in a discovery cache that is refreshed every 30 s (k8s.io/apiserver,
	// pkg/server/options/admission.go).
	failAfter = 60 * time.Second

	// probeTimeout is how long Verify waits for the API server to enforce a new set. It repeats the
	// dry runs every probeInterval.
	probeTimeout  = time.Second
	probeInterval = 20 * time.Millisecond

	// RetryInterval is the time until the next call of Verify if the policies are not enforced yet.
	RetryInterval = 2 * time.Second
	// unconfirmedRetryInterval is used instead if policies of other projects prevent dry runs.
	unconfirmedRetryInterval = time.Minute
)

// Verifier verifies that the API server injects the initializers of the effective set into new
// Namespaces.
type Verifier struct {
	client.Client
	Clock clock.PassiveClock

	// confirmed identifies the set and the inject policy that dry runs have confirmed.
	confirmed string
}

// PolicyStatus is the result of a verification.
type PolicyStatus struct {
	// Reason is a reason of the Active condition: v1alpha1.ReasonEnforced, or why the set is not
	// enforced.
	Reason string
	// Message is the message of the condition.
	Message string
	// RetryAfter is the time until the next verification; 0 if no retry is needed before the next
	// watch event.
	RetryAfter time.Duration
}

// The operator does not manage the policies. It changes only their failurePolicy; see EnsureFail.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies;mutatingadmissionpolicybindings;validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=get;list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingadmissionpolicies,resourceNames=nslifecycle-inject,verbs=patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies,resourceNames=nslifecycle-templates;nslifecycle-waiting-subjects;nslifecycle-waiting-subjects-resources-named-namespaces;nslifecycle-initializer-subjects,verbs=patch
// The operator creates Namespaces only as dry runs.
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=create

// Verify reports whether the API server enforces the set. If this cannot be determined, it returns
// an empty status and an error. If it returns both a status and an error, the error concerns only
// the failure policy.
func (v *Verifier) Verify(ctx context.Context, set *v1alpha1.NamespaceInitializerSet) (PolicyStatus, error) {
	installed, err := List(ctx, v.Client)
	if err != nil {
		return PolicyStatus{}, err
	}
	if status, ok := installed.check(); !ok {
		v.confirmed = ""
		log.FromContext(ctx).Info("The admission policies do not match", "reason", status.Reason, "message", status.Message)
		return status, nil
	}
	status, err := v.verifyInjection(ctx, set, installed)
	if err != nil || status.Reason != v1alpha1.ReasonEnforced {
		return status, err
	}
	return v.EnsureFail(ctx, set, installed, status)
}

// CheckInstalled returns an error if the policies in config/default are not installed.
func (v *Verifier) CheckInstalled(ctx context.Context) error {
	installed, err := List(ctx, v.Client)
	if err != nil {
		return err
	}
	if status, ok := installed.check(); !ok {
		return errors.New(status.Message)
	}
	return installed.CheckForTemplates(InstallCommand)
}

// check returns false and a status if the policies in config/default are not installed.
func (i Installed) check() (PolicyStatus, bool) {
	switch missing := i.Missing(All()); {
	case len(missing) > 0:
		return PolicyStatus{Reason: v1alpha1.ReasonPolicyMissing, Message: msgMissing(missing)}, false
	case i.HasCompatGuard:
		return PolicyStatus{Reason: v1alpha1.ReasonPolicyMismatch, Message: msgMismatch}, false
	}
	return PolicyStatus{}, true
}

// verifyInjection confirms by dry runs that new Namespaces get the initializers. It repeats the dry
// runs only if the set has changed, or if the policy or its binding was recreated.
func (v *Verifier) verifyInjection(
	ctx context.Context, set *v1alpha1.NamespaceInitializerSet, installed Installed,
) (PolicyStatus, error) {
	status := PolicyStatus{Reason: v1alpha1.ReasonEnforced, Message: msgEnforced + installed.TemplateWarning(set)}
	identity := fmt.Sprintf("%s/%s %s/%s", set.UID, set.ResourceVersion, installed.inject.UID, installed.injectBinding.UID)
	if v.confirmed == identity {
		return status, nil
	}
	isInjected, refusal, err := v.waitForInjection(ctx, set)
	switch {
	case err != nil:
		return PolicyStatus{}, err
	case refusal != nil && installed.Denied(refusal):
		return Refused(refusal), nil
	case refusal != nil:
		return Unconfirmed(status, refusal), nil
	case !isInjected:
		return PolicyStatus{
			Reason: v1alpha1.ReasonEnforcementPending, Message: msgPending, RetryAfter: RetryInterval,
		}, nil
	}
	v.confirmed = identity
	return status, nil
}

// Refused returns the status to report if a policy of this project denies new Namespaces.
func Refused(refusal error) PolicyStatus {
	return PolicyStatus{Reason: v1alpha1.ReasonRefused, Message: msgRefused(refusal), RetryAfter: RetryInterval}
}

// Unconfirmed returns the status to report if a policy of another project denies the dry run.
func Unconfirmed(status PolicyStatus, refusal error) PolicyStatus {
	status.Message += msgUnconfirmed(refusal)
	status.RetryAfter = unconfirmedRetryInterval
	return status
}

// waitForInjection creates Namespaces as dry runs until they get the initializers in the set, or
// until probeTimeout expires. One dry run is not sufficient if initializers have selectors.
func (v *Verifier) waitForInjection(
	ctx context.Context, set *v1alpha1.NamespaceInitializerSet,
) (injected bool, refusal, err error) {
	probes := initialization.ProbeLabels(set)
	// The timeout does not cancel requests. Otherwise, no dry run would ever succeed on a slow API
	// server.
	err = wait.PollUntilContextTimeout(ctx, probeInterval, probeTimeout, true, func(context.Context) (bool, error) {
		for _, labels := range probes {
			namespace, denied, err := DryRun(ctx, v.Client, labels)
			if denied != nil {
				injected, refusal = false, denied
				return true, nil
			}
			injected = err == nil && IsInjected(namespace, set, labels)
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

// IsInjected reports whether a Namespace that was created with these labels and a generateName has exactly the
// initializers that select it, and their finalizers.
//
// Policies of other projects can add or remove labels before or after the inject policy. If an
// initializer selects only the labels before or only the labels after such a change, IsInjected
// accepts the Namespace with and without the initializer. Otherwise, the set would never be
// reported as enforced.
func IsInjected(
	namespace *corev1.Namespace, set *v1alpha1.NamespaceInitializerSet, sent map[string]string,
) bool {
	list := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
	got := initialization.SplitNames(list)
	before, after := initialization.Names(initialization.Selected(set, initialization.SelectorLabels("", sent))),
		initialization.Names(initialization.Selected(set, namespace.Labels))
	var expected []v1alpha1.EffectiveInitializer
	for _, initializer := range set.Initializers {
		before, after := slices.Contains(before, initializer.Name), slices.Contains(after, initializer.Name)
		if before && after || before != after && slices.Contains(got, initializer.Name) {
			expected = append(expected, initializer)
		}
	}
	return list == strings.Join(initialization.Names(expected), ",") &&
		len(initialization.MissingFinalizers(namespace, expected)) == 0
}

// EnsureFail sets the failure policy of the inject policy to Fail, and that of the policies for templates,
// waitingSubjects and subjects if the set contains any. The API server then denies requests while it cannot
// read the set, for example shortly after a restart. The manifest cannot contain Fail: no Namespace could be
// created until the API server has discovered the set's type. EnsureFail adds a missing permission, and the
// time until every API server has discovered the type, to the given status.
func (v *Verifier) EnsureFail(
	ctx context.Context, set *v1alpha1.NamespaceInitializerSet, installed Installed, status PolicyStatus,
) (PolicyStatus, error) {
	policies := installed.failingOpen(set)
	if len(policies) == 0 {
		return status, nil
	}
	if left := failAfter - v.Clock.Since(set.CreationTimestamp.Time); left > 0 {
		status.retryAfter(left)
		return status, nil
	}
	var errs []error
	for _, policy := range policies {
		validating, ok := policy.(*admissionv1.ValidatingAdmissionPolicy)
		if ok && selectsAllObjects(validating.Spec.MatchConstraints) {
			status.Message += msgPolicyOutdated(policy.GetName())
			continue
		}
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

// isFail reports whether a failure policy is Fail.
func isFail(policy *admissionv1.FailurePolicyType) bool {
	return policy != nil && *policy == admissionv1.Fail
}

func (v *Verifier) setFail(ctx context.Context, policy client.Object) error {
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"failurePolicy":%q}}`,
		policy.GetResourceVersion(), admissionv1.Fail)
	changed := policy.DeepCopyObject().(client.Object)
	err := v.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(nswrite.FieldOwner))
	if err != nil {
		return fmt.Errorf("failed to set failurePolicy of %q to Fail: %w", policy.GetName(), err)
	}
	log.FromContext(ctx).Info("Set failurePolicy of an admission policy to Fail", "policy", policy.GetName())
	return nil
}

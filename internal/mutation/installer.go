// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/policyapply"
)

const (
	// optionalAfter is the time after the operator has applied the policies for the first time, when new namespaces no
	// longer depend on the webhooks. In this time, all API servers of a cluster are upgraded.
	optionalAfter = time.Hour

	completePolicy = "nslifecycle-complete"
)

// Installer makes API servers run inject and complete, as policies or as webhooks. It must not be used concurrently.
type Installer struct {
	client.Client
	// Live reads from the API server: the configuration of the webhooks need not exist, and its permissions neither.
	Live      client.Reader
	Discovery discovery.DiscoveryInterfaceWithContext
	Clock     clock.PassiveClock
	// URL is the address of the webhooks if the API server cannot reach their Service.
	URL string
	// Watch starts a watch of a type, after which the caller calls Ensure again. Not every API server serves the types,
	// and not every installation permits to read them. The first one is MutatingWebhookConfiguration: it is watched if
	// the installation has webhooks.
	Watch func(client.Object) error

	// watched has the types for which Watch was called.
	watched map[string]bool
	// last is the state that was logged last.
	last string
}

// State describes what runs inject and complete.
type State struct {
	// ServesPolicies reports whether the API server serves MutatingAdmissionPolicy v1.
	ServesPolicies bool
	// Configuration is the configuration of the webhooks; nil if it is not installed, or may not be read.
	Configuration *admissionv1.MutatingWebhookConfiguration
}

// HasWebhooks reports whether the webhooks select requests.
func (s State) HasWebhooks() bool {
	return s.Configuration != nil && len(webhook(s.Configuration).Rules) > 0
}

// String describes the state in a log line.
func (s State) String() string {
	switch {
	case s.ServesPolicies && s.HasWebhooks():
		return messageBoth
	case s.ServesPolicies:
		return messagePolicies
	case s.HasWebhooks():
		return messageWebhooks
	}
	return messageNothing
}

// The permissions are in config/webhook.

// Ensure applies the policies, or configures the webhooks for the set, and returns the resulting state. If the set is
// nil, it changes nothing. Without the configuration of the webhooks, it only binds a policy that an administrator has
// applied.
func (i *Installer) Ensure(ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet) (State, error) {
	var state State
	var err error
	if state.ServesPolicies, err = ServesPolicies(ctx, i.Discovery); err != nil {
		return state, err
	}
	configuration := &admissionv1.MutatingWebhookConfiguration{}
	switch err := i.Live.Get(ctx, client.ObjectKey{Name: internalv1alpha1.InjectConfiguration}, configuration); {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		if state.ServesPolicies && set != nil {
			if err := i.watch(Objects()...); err != nil {
				return state, err
			}
		}
		i.log(ctx, state)
		return state, i.bind(ctx, state, set)
	case err != nil:
		return state, fmt.Errorf("failed to get MutatingWebhookConfiguration %q: %w",
			internalv1alpha1.InjectConfiguration, err)
	}
	state.Configuration = configuration
	if set == nil {
		return state, nil
	}
	if err := i.watch(configuration); err != nil {
		return state, err
	}
	// The path of a webhook must change before the policies complete initializations.
	if err := i.configure(ctx, state, set); err != nil {
		return state, err
	}
	if state.ServesPolicies {
		if err := i.watch(Objects()...); err != nil {
			return state, err
		}
		if _, err := policyapply.Apply(ctx, i.Client, i.Live, configuration, Policies()); err != nil {
			return state, err
		}
	}
	i.log(ctx, state)
	return state, i.bind(ctx, state, set)
}

// bind creates the binding of inject, unless the policy could reject namespaces because an API server does not
// recognize the parameter kind yet. The policy is its owner: an administrator can have applied it.
func (i *Installer) bind(ctx context.Context, state State, set *internalv1alpha1.NamespaceInitializerSet) error {
	if set == nil || !state.ServesPolicies {
		return nil
	}
	inject, err := i.inject(ctx)
	if inject == nil || err != nil {
		return err
	}
	isStrict := ptr.Deref(inject.Spec.FailurePolicy, admissionv1.Fail) == admissionv1.Fail
	if isStrict && i.Clock.Since(set.CreationTimestamp.Time) < policyapply.RecognizedAfter {
		return nil
	}
	_, err = policyapply.Apply(ctx, i.Client, i.Live, inject, Binding())
	return err
}

// inject returns the policy, or nil if it does not exist.
func (i *Installer) inject(ctx context.Context) (*admissionv1.MutatingAdmissionPolicy, error) {
	inject := &admissionv1.MutatingAdmissionPolicy{}
	switch err := i.Live.Get(ctx, client.ObjectKey{Name: internalv1alpha1.InjectConfiguration}, inject); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("failed to get MutatingAdmissionPolicy %q: %w", internalv1alpha1.InjectConfiguration, err)
	}
	return inject, nil
}

func (i *Installer) watch(objects ...client.Object) error {
	for _, object := range objects {
		kind := fmt.Sprintf("%T", object)
		if i.watched[kind] {
			continue
		}
		if err := i.Watch(object); err != nil {
			return fmt.Errorf("failed to watch %s: %w", kind, err)
		}
		if i.watched == nil {
			i.watched = map[string]bool{}
		}
		i.watched[kind] = true
	}
	return nil
}

// log logs a state that differs from the last one.
func (i *Installer) log(ctx context.Context, state State) {
	if now := state.String(); now != i.last {
		log.FromContext(ctx).Info(now)
		i.last = now
	}
}

// configure updates the webhooks. If the API server serves the policies, webhooks that select requests still do.
func (i *Installer) configure(ctx context.Context, state State, set *internalv1alpha1.NamespaceInitializerSet) error {
	isNeeded, isOptional := !state.ServesPolicies || state.HasWebhooks(), false
	if state.ServesPolicies && isNeeded {
		inject, err := i.inject(ctx)
		if err != nil {
			return err
		}
		isOptional = inject != nil && i.Clock.Since(inject.CreationTimestamp.Time) >= optionalAfter
	}
	before := state.Configuration.DeepCopy()
	configure(state.Configuration, settings{
		isNeeded: isNeeded, isOptional: isOptional, isAfterPolicies: state.ServesPolicies, url: i.URL, set: set,
	})
	return i.update(ctx, before, state.Configuration)
}

// EnsureFail makes the API server reject new Namespaces that the webhook cannot answer. The caller has verified that
// the webhook works.
func (i *Installer) EnsureFail(ctx context.Context, state State) error {
	if !state.HasWebhooks() {
		return nil
	}
	before := state.Configuration.DeepCopy()
	webhook(state.Configuration).FailurePolicy = ptr.To(admissionv1.Fail)
	return i.update(ctx, before, state.Configuration)
}

func (i *Installer) update(ctx context.Context, before, after *admissionv1.MutatingWebhookConfiguration) error {
	if apiequality.Semantic.DeepEqual(before, after) {
		return nil
	}
	if err := i.Update(ctx, after, client.FieldOwner(nsobject.FieldOwner)); err != nil {
		return fmt.Errorf("failed to update MutatingWebhookConfiguration %q: %w", after.Name, err)
	}
	inject := webhook(after)
	log.FromContext(ctx).Info("Updated the webhooks that inject initializers", "rules", len(inject.Rules),
		"failurePolicy", ptr.Deref(inject.FailurePolicy, ""))
	return nil
}

// IsFailure reports whether a request was rejected because the webhook that injects did not answer.
func IsFailure(refusal error) bool {
	return strings.Contains(refusal.Error(), strconv.Quote(injectWebhook))
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/policyapply"
)

// Webhooks replace the policies on API servers that do not serve them. The only implementation is in
// internal/admission/webhooks.
type Webhooks interface {
	// Ensure configures the webhooks for a set, before the policies are applied. It returns the UID of their
	// configuration, or "" if they select no requests.
	Ensure(ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, servesPolicies bool) (types.UID, error)
	// EnsureFail makes the API server reject new Namespaces that the webhooks cannot answer. The caller has verified that
	// they answer.
	EnsureFail(ctx context.Context) error
}

// Installer makes API servers run inject, complete and require-set. It must not be used concurrently.
type Installer struct {
	client.Client
	// Live reads from the API server: the policies need not exist, and the permissions to read them neither.
	Live      client.Reader
	Discovery discovery.DiscoveryInterfaceWithContext
	Clock     clock.PassiveClock
	// Webhooks is nil if nothing replaces the policies.
	Webhooks Webhooks
	// StartWebhooks starts the controllers of the component config/webhook, unless it has. It is called if the component
	// is installed.
	StartWebhooks func() error
	// Watch starts a watch of the objects of a type with the label of this project's policies, after which the caller
	// calls Ensure again. Not every API server serves the types, and not every installation permits to read them.
	Watch func(client.Object) error

	// watched has the types for which Watch was called.
	watched map[string]bool
}

// State describes what runs inject and complete.
type State struct {
	// ServesPolicies reports whether the API server serves MutatingAdmissionPolicy v1.
	ServesPolicies bool
	// Webhooks is the UID of the configuration of Webhooks; "" if they select no requests.
	Webhooks types.UID
}

// The permissions are in config/webhook.

// Ensure configures the webhooks for the set, then applies the policies with an owner, and returns the resulting state.
// Without an owner, it changes nothing. Without the permission to apply the policies, it only binds one that an
// administrator has applied.
func (i *Installer) Ensure(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, owner client.Object,
) (State, error) {
	var state State
	var err error
	if state.ServesPolicies, err = ServesPolicies(ctx, i.Discovery); err != nil || owner == nil {
		return state, err
	}
	if err := i.startWebhooks(ctx); err != nil {
		return state, err
	}
	// The path of a webhook must change before the policies complete initializations.
	if i.Webhooks != nil {
		if state.Webhooks, err = i.Webhooks.Ensure(ctx, set, state.ServesPolicies); err != nil {
			return state, err
		}
	}
	if !state.ServesPolicies {
		return state, nil
	}
	if err := i.EnsureWatch(Objects()...); err != nil {
		return state, err
	}
	if _, err := policyapply.Apply(ctx, i.Client, i.Live, owner, Policies()); err != nil {
		return state, err
	}
	return state, i.bind(ctx, set)
}

// EnsureFail calls that of Webhooks.
func (i *Installer) EnsureFail(ctx context.Context) error {
	if i.Webhooks == nil {
		return nil
	}
	return i.Webhooks.EnsureFail(ctx)
}

// startWebhooks starts the controllers of the component config/webhook, if the component is installed.
func (i *Installer) startWebhooks(ctx context.Context) error {
	const name = internalv1alpha1.HoldConfiguration
	switch err := i.Live.Get(ctx, client.ObjectKey{Name: name}, &admissionv1.MutatingWebhookConfiguration{}); {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("failed to get MutatingWebhookConfiguration %q: %w", name, err)
	}
	return i.StartWebhooks()
}

// bind creates the binding of inject, unless the policy could reject namespaces because an API server does not
// recognize the parameter kind yet. The policy is its owner: an administrator can have applied it.
func (i *Installer) bind(ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet) error {
	inject, err := i.Inject(ctx)
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

// Inject returns the policy inject, or nil if it does not exist.
func (i *Installer) Inject(ctx context.Context) (*admissionv1.MutatingAdmissionPolicy, error) {
	inject := &admissionv1.MutatingAdmissionPolicy{}
	switch err := i.Live.Get(ctx, client.ObjectKey{Name: internalv1alpha1.InjectConfiguration}, inject); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("failed to get MutatingAdmissionPolicy %q: %w", internalv1alpha1.InjectConfiguration, err)
	}
	return inject, nil
}

// EnsureWatch watches the types of the objects.
func (i *Installer) EnsureWatch(objects ...client.Object) error {
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

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/mutation"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/webhooks"
)

// optionalAfter is the time after the operator has applied the policies for the first time, when new namespaces no
// longer depend on the webhooks. In this time, all API servers of a cluster are upgraded.
const optionalAfter = time.Hour

// Setup makes the installer configure the webhooks, and makes the server answer their requests on every replica. The
// installer is nil if the controller admission does not run in this process, and the server is nil if the process
// serves no webhooks. The URL is empty if API servers reach the Service of the webhooks. The number of concurrent
// requests has no limit of its own, because the webhooks read only from the cache and answer within microseconds.
func Setup(
	ctx context.Context, informers cache.Informers, installer *mutation.Installer, server *webhooks.Server, url string,
) error {
	if installer != nil {
		installer.Webhooks = &configurer{Installer: installer, url: url}
	}
	if server == nil {
		return nil
	}
	sets := newSets()
	if err := sets.watch(ctx, informers); err != nil {
		return fmt.Errorf("failed to set up the webhooks that inject initializers: %w", err)
	}
	for _, webhook := range sets.webhooks() {
		server.Register(webhook)
	}
	return nil
}

// configurer configures the webhooks.
type configurer struct {
	*mutation.Installer
	url string
	// current is the configuration after the last Ensure, nil if it is not installed or may not be read.
	current *admissionv1.MutatingWebhookConfiguration
}

// Ensure implements mutation.Webhooks. If the API server serves the policies, webhooks that select requests still do.
func (c *configurer) Ensure(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, servesPolicies bool,
) (types.UID, error) {
	c.current = nil
	const name = internalv1alpha1.InjectConfiguration
	configuration := &admissionv1.MutatingWebhookConfiguration{}
	switch err := c.Live.Get(ctx, client.ObjectKey{Name: name}, configuration); {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("failed to get MutatingWebhookConfiguration %q: %w", name, err)
	}
	if err := c.StartWebhooks(); err != nil {
		return "", err
	}
	if err := c.EnsureWatch(configuration); err != nil {
		return "", err
	}
	settings := settings{isAfterPolicies: servesPolicies, url: c.url, set: set}
	settings.isNeeded = !servesPolicies || len(injectIn(configuration).Rules) > 0
	if servesPolicies && settings.isNeeded {
		policy, err := c.Inject(ctx)
		if err != nil {
			return "", err
		}
		settings.isOptional = policy != nil && c.Clock.Since(policy.CreationTimestamp.Time) >= optionalAfter
	}
	c.current = configuration
	err := c.update(ctx, func() { configure(configuration, settings) })
	if err != nil || !settings.isNeeded {
		return "", err
	}
	return configuration.UID, nil
}

// EnsureFail implements mutation.Webhooks.
func (c *configurer) EnsureFail(ctx context.Context) error {
	if c.current == nil || len(injectIn(c.current).Rules) == 0 {
		return nil
	}
	return c.update(ctx, func() { injectIn(c.current).FailurePolicy = ptr.To(admissionv1.Fail) })
}

// update updates the configuration if a function changes it.
func (c *configurer) update(ctx context.Context, change func()) error {
	before := c.current.DeepCopy()
	change()
	if apiequality.Semantic.DeepEqual(before, c.current) {
		return nil
	}
	if err := c.Update(ctx, c.current, client.FieldOwner(nsobject.FieldOwner)); err != nil {
		return fmt.Errorf("failed to update MutatingWebhookConfiguration %q: %w", c.current.Name, err)
	}
	inject := injectIn(c.current)
	log.FromContext(ctx).Info("Updated the webhooks that inject initializers", "rules", len(inject.Rules),
		"failurePolicy", ptr.Deref(inject.FailurePolicy, ""))
	return nil
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/internal/admission/inject"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// optionalAfter is the time after the operator has applied the policies for the first time, when new namespaces no
// longer depend on the webhooks. In this time, all API servers of a cluster are upgraded.
const optionalAfter = time.Hour

// configureWebhooks configures the webhooks that replace the mutating policies. If the API server serves the policies,
// webhooks that select requests still do.
func (i *Installer) configureWebhooks(ctx context.Context, result *Result) error {
	configuration := &admissionv1.MutatingWebhookConfiguration{}
	var err error
	result.HasWebhooks, err = i.get(ctx, internalv1alpha1.HoldConfiguration, &admissionv1.MutatingWebhookConfiguration{})
	if err != nil {
		return err
	}
	if isInstalled, err := i.get(ctx, internalv1alpha1.InjectConfiguration, configuration); err != nil || !isInstalled {
		return err
	}
	result.HasWebhooks, result.injecting = true, configuration
	result.Readable = append(result.Readable, &admissionv1.MutatingWebhookConfiguration{})
	settings := inject.Settings{IsAfterPolicies: result.ServesMutating, URL: i.URL, Set: result.set}
	settings.IsNeeded = !result.ServesMutating || len(inject.Injecting(configuration).Rules) > 0
	if result.ServesMutating && settings.IsNeeded {
		policy := &admissionv1.MutatingAdmissionPolicy{}
		exists, err := i.get(ctx, internalv1alpha1.InjectConfiguration, policy)
		if err != nil {
			return err
		}
		settings.IsOptional = exists && i.ServerClock.Since(policy.CreationTimestamp.Time) >= optionalAfter
	}
	err = i.updateInjecting(ctx, configuration, func() { inject.Configure(configuration, settings) })
	if err == nil && settings.IsNeeded {
		result.Webhooks = configuration.UID
	}
	return err
}

func (i *Installer) updateInjecting(
	ctx context.Context, configuration *admissionv1.MutatingWebhookConfiguration, change func(),
) error {
	return UpdateWebhooks(ctx, i.Client, configuration, func() []any {
		change()
		webhook := inject.Injecting(configuration)
		return []any{"rules", len(webhook.Rules), "failurePolicy", ptr.Deref(webhook.FailurePolicy, "")}
	}, "Updated the webhooks that inject initializers")
}

// UpdateWebhooks updates a webhook configuration if a function changes it, and then logs the message with the key-value
// pairs that the function returns.
func UpdateWebhooks(
	ctx context.Context, c client.Client, configuration client.Object, change func() []any, message string,
) error {
	before := configuration.DeepCopyObject()
	keysAndValues := change()
	if apiequality.Semantic.DeepEqual(before, configuration) {
		return nil
	}
	if err := c.Update(ctx, configuration, client.FieldOwner(nsobject.FieldOwner)); err != nil {
		kind, _ := c.GroupVersionKindFor(configuration)
		return fmt.Errorf("failed to update %s %q: %w", kind.Kind, configuration.GetName(), err)
	}
	log.FromContext(ctx).Info(message, keysAndValues...)
	return nil
}

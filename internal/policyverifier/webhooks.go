// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// webhookProbePrefix is the prefix of the names of Namespaces that the webhook for probes selects.
	webhookProbePrefix = "nslifecycle-webhook-probe-"
	// costly is the time above which a failed call delays the write too much. A refused connection and an invalid
	// certificate fail sooner, dropped packets only after the timeoutSeconds of the webhook.
	costly = time.Second
)

// WebhookState is what a dry run shows about the webhooks.
type WebhookState int

// The states.
const (
	// WebhooksFail: calls fail soon, for example while no replica is running.
	WebhooksFail WebhookState = iota
	// WebhooksAnswer: the API server gets a response.
	WebhooksAnswer
	// WebhooksTimeOut: the API server waits, and gets no response.
	WebhooksTimeOut
)

// isServed reports whether the server of the webhooks answers. A validating policy refuses only what all mutating
// webhooks have admitted.
func (v *Verifier) isServed(ctx context.Context) (bool, error) {
	_, refusal, err := dryRun(ctx, v.Client, webhookProbePrefix, nil)
	return err == nil && (refusal == nil || slices.ContainsFunc(denials(refusal),
		func(by policy) bool { return by.kind == validatingKind })), err
}

// ProbeWebhook creates a Namespace as a dry run, which the webhook with the given name selects. Its failurePolicy is
// Fail. A refusal that does not name the webhook means that it has answered, or that another project's refuses before.
func ProbeWebhook(ctx context.Context, c client.Client, webhook string) (WebhookState, error) {
	begin := time.Now()
	_, refusal, err := dryRun(ctx, c, webhookProbePrefix, nil)
	switch {
	case err != nil:
		return WebhooksFail, err
	case refusal == nil || !strings.Contains(refusal.Error(), strconv.Quote(webhook)):
		return WebhooksAnswer, nil
	case time.Since(begin) < costly:
		return WebhooksFail, nil
	}
	return WebhooksTimeOut, nil
}

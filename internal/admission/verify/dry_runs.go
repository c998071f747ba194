// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// Creator creates Namespaces.
type Creator interface {
	Create(ctx context.Context, namespace client.Object, options ...client.CreateOption) error
}

const (
	// probePrefix and webhookProbePrefix are prefixes of the names of Namespaces that are created as dry runs. The webhook
	// for probes selects the second.
	probePrefix        = "nslifecycle-probe-"
	webhookProbePrefix = "nslifecycle-webhook-probe-"
	// costly is the time above which a failed call delays the write too much. A refused connection and an invalid
	// certificate fail sooner, dropped packets only after the timeoutSeconds of the webhook.
	costly = time.Second
)

// dryRun creates a Namespace as a dry run. It returns the Namespace that the API server would
// create, or the refusal if admission rejects the request.
func dryRun(
	ctx context.Context, namespaces Creator, generateName string, labels map[string]string,
) (namespace *corev1.Namespace, refusal, err error) {
	namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: generateName, Labels: maps.Clone(labels)}}
	switch err := namespaces.Create(ctx, namespace, client.DryRunAll, client.FieldOwner(nsobject.FieldOwner)); {
	case isRefusal(err):
		return nil, err, nil
	case err != nil:
		return nil, nil, fmt.Errorf("failed to create a namespace as a dry run: %w", err)
	}
	return namespace, nil, nil
}

// WebhookState is what a dry run shows about the webhooks.
type WebhookState int

// The states: calls fail soon, for example while no replica is running; the API server gets a response; it waits, and
// gets no response.
const (
	WebhooksFail WebhookState = iota
	WebhooksAnswer
	WebhooksTimeOut
)

// isServed reports whether the server of the webhooks answers. A validating policy refuses only what all mutating
// webhooks have admitted.
func (v *Verifier) isServed(ctx context.Context) (bool, error) {
	_, refusal, err := dryRun(ctx, v.Namespaces, webhookProbePrefix, nil)
	return err == nil && (refusal == nil || slices.ContainsFunc(deniers(refusal),
		func(by denier) bool { return by.kind == policies.ValidatingKind })), err
}

// ProbeWebhook creates a Namespace as a dry run, which the webhook with the given name selects. Its failurePolicy is
// Fail. A refusal that does not name the webhook means that it has answered, or that another project's refuses before.
func ProbeWebhook(ctx context.Context, namespaces Creator, webhook string) (WebhookState, error) {
	begin := time.Now()
	_, refusal, err := dryRun(ctx, namespaces, webhookProbePrefix, nil)
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

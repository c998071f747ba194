// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
)

// Parts of the messages of the Active condition, and of the condition about the policy for deletion protection.
const (
	// enforceCommand ends the audit mode.
	enforceCommand = "kubectl nslifecycle enforcement enforce"

	messageEnforced = "every new namespace gets these initializers"
	messageNotYet   = "the API server does not enforce the set of initializers yet; this can take up to 30 s after an " +
		"installation"
	// messageNoWebhook describes what an API server without MutatingAdmissionPolicy v1 lacks.
	messageNoWebhook = "webhooks that replace MutatingAdmissionPolicy v1, which this API server does not serve (the " +
		"component config/webhook is not installed)"

	messageProtectionEnforced = "the API server enforces ValidatingAdmissionPolicy \"protection\" for all requests and " +
		"namespaces"
	messageProtectionNotEnforced = "the API server does not enforce ValidatingAdmissionPolicy \"protection\" for all " +
		"requests and namespaces; run: kubectl apply -k config/protection"
)

func messageMissing(missing []string) string {
	return fmt.Sprintf("the API server lacks %s, so new namespaces are not initialized as configured; run: %s",
		strings.Join(missing, ", "), policies.InstallCommand)
}

func messagePending(servesMutating bool) string {
	if servesMutating {
		return messageNotYet
	}
	return messageNotYet + ", and lasts until a manager with --webhook-bind-address serves the webhooks"
}

func messageTemplatesUnprotected(missing []string) string {
	return fmt.Sprintf("; the API server lacks %s, so it does not enforce the rules of NamespaceTemplates",
		strings.Join(missing, ", "))
}

func messageConfinementUnprotected(missing []string) string {
	return fmt.Sprintf("; the API server lacks %s, so users who can write configurations can confine every ServiceAccount",
		strings.Join(missing, ", "))
}

func messageAudited(bindings []string) string {
	return fmt.Sprintf("; audit mode: the API server admits writes before a namespace is initialized and only warns, "+
		"because of the validationActions of ValidatingAdmissionPolicyBindings %s; to enforce the gate, run: %s",
		strings.Join(bindings, ", "), enforceCommand)
}

func messageUnlimited(missing []string) string {
	return fmt.Sprintf("the API server lacks %s, so RBAC alone limits what the operator can write; run: %s",
		strings.Join(missing, ", "), policies.InstallCommand)
}

func messageRefused(refusal error) string {
	return fmt.Sprintf("a policy or webhook of nslifecycle denies new namespaces: %v", refusal)
}

func messageNotInjecting(refusal error) string {
	return fmt.Sprintf("the API server refuses a change of what adds initializers to new namespaces: %v", refusal)
}

func messageUnconfirmed(refusal error) string {
	return fmt.Sprintf("; not confirmed by a dry run: %v", refusal)
}

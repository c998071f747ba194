// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"fmt"
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/confinement"
	"github.com/nslifecycle/nslifecycle/internal/mutation"
)

// Commands that install the policies.
const (
	InstallCommand           = "kubectl apply -k config/default"
	installProtectionCommand = "kubectl apply -k config/protection"
	// EnforceCommand ends the audit mode.
	EnforceCommand = "kubectl nslifecycle enforcement enforce"
)

// Messages of the Active condition.
const (
	msgEnforced = "every new namespace gets these initializers"
	msgNotYet   = "the API server does not enforce the set of initializers yet; this can take up to 30 s after an " +
		"installation"
)

// msgNoWebhook describes what an API server without MutatingAdmissionPolicy v1 lacks.
const msgNoWebhook = "webhooks that replace MutatingAdmissionPolicy v1, which this API server does not serve (the " +
	"component config/webhook is not installed)"

// Messages of the condition about the policy for deletion protection.
const (
	msgProtectionEnforced = "the API server enforces ValidatingAdmissionPolicy \"protection\" for all requests and " +
		"namespaces"
	msgProtectionNotEnforced = "the API server does not enforce ValidatingAdmissionPolicy \"protection\" for all " +
		"requests and namespaces; run: " + installProtectionCommand
)

func msgMissing(missing []string) string {
	return fmt.Sprintf("the API server lacks %s, so new namespaces are not initialized as configured; run: %s",
		strings.Join(missing, ", "), InstallCommand)
}

func msgPending(state mutation.State) string {
	if state.ServesPolicies {
		return msgNotYet
	}
	return msgNotYet + ", and lasts until a manager with --webhook-bind-address serves the webhooks"
}

func msgTemplatesUnprotected(missing []string) string {
	return fmt.Sprintf("; the API server lacks %s, so it does not enforce the rules of NamespaceTemplates",
		strings.Join(missing, ", "))
}

func msgConfinementUnprotected(missing []string) string {
	return fmt.Sprintf("; the API server lacks %s, so users who can write configurations can confine every ServiceAccount",
		strings.Join(missing, ", "))
}

func msgAudited(bindings []string) string {
	return fmt.Sprintf("; audit mode: the API server admits writes before a namespace is initialized and only warns, "+
		"because of the validationActions of ValidatingAdmissionPolicyBindings %s; to enforce the gate, run: %s",
		strings.Join(bindings, ", "), EnforceCommand)
}

func msgUnlimited(missing []string) string {
	return fmt.Sprintf("the API server lacks %s, so RBAC alone limits what the operator can write; run: %s",
		strings.Join(missing, ", "), InstallCommand)
}

func msgFailurePolicyForbidden(policy string) string {
	return fmt.Sprintf("; a restarting API server can admit requests without policy %q, because the operator is not "+
		"authorized to set its failurePolicy to Fail: set it manually", policy)
}

func msgNotConfined(subjects int) string {
	if subjects == 0 {
		return fmt.Sprintf("; subjects of initializers are still confined, because the operator is not authorized to delete "+
			"ValidatingAdmissionPolicy %q: delete it manually", confinement.Name)
	}
	return fmt.Sprintf("; %d subjects of initializers are not confined as configured, because the operator is not "+
		"authorized to apply ValidatingAdmissionPolicy %q; run: %s", subjects, confinement.Name, InstallCommand)
}

const msgNotApplied = "; the operator is not authorized to apply its admission policies, which differ; run: " +
	InstallCommand

func msgRefused(refusal error) string {
	return fmt.Sprintf("a policy or webhook of nslifecycle denies new namespaces: %v", refusal)
}

func msgNotInjecting(refusal error) string {
	return fmt.Sprintf("the API server refuses a change of what adds initializers to new namespaces: %v", refusal)
}

func msgUnconfirmed(refusal error) string {
	return fmt.Sprintf("; not confirmed by a dry run: %v", refusal)
}

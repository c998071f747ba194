// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

import (
	"fmt"
	"strings"
)

// Commands that install the policies.
const (
	InstallCommand       = "kubectl apply -k config/default"
	installExpiryCommand = "kubectl apply -k config/expiry"
)

// Messages of the Active condition.
const (
	msgEnforced = "every new namespace gets these initializers"
	msgPending  = "the API server does not enforce the set of initializers yet; this takes up to 30 s after an " +
		"installation"
	msgMismatch = "policy guard is the variant of config/compat, which denies the changes of policy inject; run: " +
		InstallCommand
)

// MsgExpiryNotEnforced is the reason why no namespace expires.
const MsgExpiryNotEnforced = "the API server lacks ValidatingAdmissionPolicy \"expiry\" without exceptions, or a " +
	"binding for all namespaces that denies, so every user who may update a namespace could have it deleted; run: " +
	installExpiryCommand

func msgMissing(missing []string) string {
	return fmt.Sprintf("the API server lacks %s, so new namespaces are not initialized as configured; run: %s",
		strings.Join(missing, ", "), InstallCommand)
}

func msgFailurePolicyForbidden(policy string) string {
	return fmt.Sprintf("; an API server that has just restarted may create a namespace without them, because the "+
		"operator is not authorized to set failurePolicy of MutatingAdmissionPolicy %q to Fail: set it manually", policy)
}

func msgRefused(refusal error) string {
	return fmt.Sprintf("the API server denies new namespaces because of a policy of nslifecycle: %v", refusal)
}

func msgUnconfirmed(refusal error) string {
	return fmt.Sprintf("; not confirmed by a dry run: %v", refusal)
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"fmt"
	"strings"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
)

// InstallCommand installs nslifecycle on API servers without MutatingAdmissionPolicy v1.
const InstallCommand = "kubectl apply -k config/compat"

// Messages of the Active condition.
const (
	msgEnforced = "every new namespace gets these initializers from the operator, shortly after it was created; until " +
		"then it is open"
	msgUpgrade = "; this API server serves MutatingAdmissionPolicy v1, which leaves no such gap: run: " +
		policyverifier.InstallCommand
	msgUnauthorized = "new namespaces are not initialized: the operator does not hold verb \"" + v1alpha1.VerbInject +
		"\" on namespaces; run: " + InstallCommand
	msgNextSecond   = "the operator adds these initializers to namespaces that are created from the next second on"
	msgGuardPending = "the API server does not enforce policy guard yet; this takes some seconds after an installation"
)

const msgMismatch = "policy guard is the variant for API servers that serve MutatingAdmissionPolicy v1, and this one " +
	"does not; run: " + InstallCommand

func msgMissing(missing []string) string {
	return fmt.Sprintf("the API server lacks %s; run: %s", strings.Join(missing, ", "), InstallCommand)
}

func msgNotInitialized(reason string) string { return "new namespaces are not initialized: " + reason }

// Event about a Namespace that has no pending list yet.
const eventNotInitialized = "NotInitialized"

func noteNotInitialized(reason string) string {
	return "The namespace is open, because the operator cannot add its pending initializers yet: " + reason
}

// Results of detection, for the log.
const (
	msgOperatorInjects = "The API server does not serve MutatingAdmissionPolicy v1: the operator adds the pending " +
		"initializers to new namespaces, which are open until then"
	msgServerInjects = "The API server serves MutatingAdmissionPolicy v1: it adds the pending initializers to new " +
		"namespaces in the request that creates them"
)

func msgServerChanged(server Server) string {
	return fmt.Sprintf("the capabilities of the API server have changed, so the manager has to restart. %s", server)
}

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
	msgEnforced = "the operator adds these initializers to every new namespace shortly after its creation; until then, " +
		"all users can write to the namespace"
	msgUpgrade = "; this API server serves MutatingAdmissionPolicy v1, which closes this gap; run: " +
		policyverifier.InstallCommand
	msgNotInitialized = "new namespaces are not initialized: "
	msgUnauthorized   = msgNotInitialized + "the operator does not have the verb \"" + v1alpha1.VerbInject +
		"\" on namespaces; run: " + InstallCommand
	msgNextSecond   = "the operator adds these initializers to namespaces that are created after the current second"
	msgGuardPending = "the API server does not enforce policy \"guard\" yet; this can take a few seconds after an " +
		"installation"
	msgMismatch = "policy \"guard\" is the variant for API servers that serve MutatingAdmissionPolicy v1, and this API " +
		"server does not; run: " + InstallCommand
)

func msgMissing(missing []string) string {
	return fmt.Sprintf("the API server lacks %s; run: %s", strings.Join(missing, ", "), InstallCommand)
}

// Reason and note of the Event about a Namespace without a pending list.
const (
	eventNotInitialized = "NotInitialized"
	noteNotInitialized  = "All users can write to the namespace, because the operator cannot add the pending " +
		"initializers yet: "
)

// Log messages that report the result of Detect.
const (
	msgOperatorInjects = "The API server does not serve MutatingAdmissionPolicy v1: the operator adds the pending " +
		"initializers to new namespaces shortly after their creation; until then, all users can write to these " +
		"namespaces"
	msgServerInjects = "The API server serves MutatingAdmissionPolicy v1: it adds the pending initializers to new " +
		"namespaces in the request that creates them"
)

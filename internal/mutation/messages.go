// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package mutation

// Log messages about a State.
const (
	messagePolicies = "The API server adds the pending initializers to new namespaces by admission policies"
	messageWebhooks = "The API server adds the pending initializers to new namespaces by webhooks of the manager, " +
		"because it does not serve MutatingAdmissionPolicy v1"
	messageBoth = "The API server adds the pending initializers to new namespaces by admission policies; the webhooks " +
		"of the manager do the same for other API servers"
	messageNothing = "The API server does not serve MutatingAdmissionPolicy v1, and the webhooks that replace it are " +
		"not installed or not served"
)

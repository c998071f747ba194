// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

const (
	messageInvalidCertificate = "Secret contains no valid certificate"
	messageNoCertificate      = "no certificate has been loaded"
	messageNotServing         = "the webhook server has not been started"
	messagePanic              = "Webhook panicked"
	messageRefused            = "Refused a review; further refusals are logged once per minute"
	messageRotationFailed     = "Failed to rotate the certificate"
)

// Errors of the flags.
const (
	msgInvalidAddress  = "--webhook-bind-address %q is not an address such as :9443"
	msgInvalidURL      = "--webhook-url %q is not an https URL with a DNS name"
	msgNamesWithoutCA  = "--webhook-client-allowed-names requires --webhook-client-ca-file"
	msgInvalidClientCA = "--webhook-client-ca-file %q contains no certificate"
	msgUnknownClient   = "the client certificate for %q is not allowed"
)

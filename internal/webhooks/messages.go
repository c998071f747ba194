// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

const (
	messageInvalidCertificate = "Secret contains no valid certificate"
	messageNoCertificate      = "no certificate has been loaded"
	messageRotationFailed     = "Failed to rotate the certificate"
)

// Errors of the flags.
const (
	msgInvalidAddress = "--hold-bind-address %q is not an address such as :9443"
	msgInvalidURL     = "--hold-url %q is not an https URL with a DNS name"
)

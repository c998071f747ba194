// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks serves the admission webhooks of the manager (config/hold) and keeps their certificate.
// They serve on every replica, whichever is the leader. The leader issues and rotates the certificate, and
// adds its CA to the webhook configurations.
package webhooks

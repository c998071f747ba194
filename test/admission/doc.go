// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission verifies that a real API server changes Namespaces in requests as test/admissioncases and the Go
// implementation of the rules specify, by policies or, if it does not serve these, by webhooks.
package admission

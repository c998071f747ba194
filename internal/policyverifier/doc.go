// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policyverifier verifies that the admission policies of config/admission and config/expiry
// are installed and that the API server enforces them. It reads the policies by their label, since
// an installation may add a prefix to their names, and creates Namespaces as dry runs.
package policyverifier

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policyverifier verifies that the admission policies in config/admission and config/expiry
// are installed and that the API server enforces them. It finds the policies by their label,
// because their names can have an installation-specific prefix. To verify that they are enforced,
// it creates Namespaces as dry runs.
package policyverifier

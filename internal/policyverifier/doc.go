// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policyverifier makes API servers enforce the effective set, and verifies it: that the admission policies in
// config/admission and config/mutating are installed, or the webhooks that replace config/mutating
// (package mutation), and that new Namespaces get the initializers. It applies those in config/validating. It finds the
// policies by their label, because their names can have an installation-specific prefix, and creates Namespaces as dry
// runs.
package policyverifier

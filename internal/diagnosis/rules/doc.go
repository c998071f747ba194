// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules computes the findings of a diagnosis from its facts. It sends no requests: the same
// facts always result in the same findings.
//
// A rule finds a group of related causes. To add a cause, add its constant to package diagnosis, an entry to the table
// in causes.go, a rule with a test, and a row to docs/stuck-namespace.md.
package rules

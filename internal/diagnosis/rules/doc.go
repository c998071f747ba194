// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules computes the findings of a diagnosis from its facts. It sends no requests: the same
// facts always result in the same findings.
//
// A rule finds a group of related causes. To add a cause, add a rule with a test, add its texts to
// messages.go, and add the rule to the variable rules.
package rules

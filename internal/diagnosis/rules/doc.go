// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules computes the findings of a diagnosis from its facts. It makes no requests: the same
// facts always result in the same findings.
//
// A Rule finds a group of related causes and declares the facts that it needs. To add a cause, add
// a file with a Rule, its texts in messages.go, a test, and the Rule to All.
package rules

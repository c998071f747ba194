// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules computes the findings of a diagnosis from its facts. It sends no requests: the same
// facts always result in the same findings.
//
// A Rule finds a group of related causes and declares the facts that it needs. To add a cause, add a
// file with a Rule and a test, add its texts to messages.go, and add the Rule to All.
package rules

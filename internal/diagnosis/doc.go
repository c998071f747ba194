// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diagnosis defines the causes that block the initialization or the deletion of a
// namespace, and the facts and findings of a diagnosis.
//
// A diagnosis has three parts:
//
//	collect  reads the Facts that the rules need from a cluster; whatever cannot be read is a fact too
//	owners   finds evidence in the Facts of the controllers responsible for finalizers and initializers
//	rules    computes the findings from the Facts; pure functions, one rule for each group of causes
//
// The operator publishes the findings in conditions, Events and metrics, without objects of other
// namespaces. The kubectl plugin prints all of them.
//
// A finding is Confirmed only if the facts leave no other explanation: an error that the API server
// returned, or an owner that, by all evidence, no longer exists. All other findings
// are Likely. A namespace that makes progress, or that was deleted less than the progress deadline ago,
// has no findings unless the API server itself returns an error.
package diagnosis

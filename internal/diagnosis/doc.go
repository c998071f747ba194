// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diagnosis defines the causes that block the initialization or the deletion of a
// namespace, and the facts and findings of a diagnosis.
//
// A diagnosis has three parts:
//
//	collect  reads the Facts from a cluster, and records what it could not read
//	owners   searches the Facts for evidence of the owners of finalizers and initializers
//	rules    computes the findings from the Facts, without requests; a rule finds a group of causes
//
// The operator publishes the findings in conditions, Events and metrics, but omits objects in other
// namespaces. The kubectl plugin prints all findings.
//
// A finding is Proven if the API server itself shows it, Published if a controller wrote it into a condition or an
// Event, and Inferred if it is a conclusion from evidence. A namespace that makes progress, or that was deleted less
// than the progress deadline ago, has findings only if the API server itself returns an error.
package diagnosis

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gitops tests what GitOps tools read in the status of the objects of this project: the results of kstatus for
// each state, and that kubectl, Helm and Flux wait until a namespace is Initialized. Without the webhook server, only
// the conditions can make a client wait. It also tests that repeated syncs of the installation change nothing.
package gitops

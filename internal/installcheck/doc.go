// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installcheck tells whether an installation in a cluster works. It only reads, and
// creates a namespace in a dry run, so that it can be asked at any time, with the manager's
// own rights: by `manager --check`, and so by `helm test`.
//
// What it asks, each answered by what only a working part could have left behind:
//
//	a manager is at work         its Lease has been renewed
//	the policies are installed   all four, each with its binding
//	the set is published         the manager has written it
//	namespaces get a condition   the manager's own has one
//	namespaces can be created    and get the list that the set holds
package installcheck

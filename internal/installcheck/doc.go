// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installcheck checks an installation in a cluster, for `manager --check` and `helm test`,
// with the permissions of the manager. Except for a dry run that creates a namespace, it only
// reads, so it can run at any time.
//
//	the leader renews its Lease                   a manager is running
//	the admission policies are installed          all four, each with its binding
//	NamespaceInitializerSet "effective" exists    the manager has written it
//	namespaces get the Initializing condition     the system namespace has it
//	namespaces can be created                     they get the initializers of the set
package installcheck

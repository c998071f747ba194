// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installcheck checks an installation in a cluster, for `manager --check` and so for `helm
// test`. It uses the permissions of the manager. It only reads, and creates a namespace as a dry
// run, so it can run at any time.
//
//	the leader renews its Lease                   a manager is running
//	the admission policies are installed          all four, each with its binding
//	NamespaceInitializerSet "effective" exists    the manager has written it
//	namespaces get the Initializing condition     the system namespace has it
//	namespaces can be created                     and get the initializers of the set
package installcheck

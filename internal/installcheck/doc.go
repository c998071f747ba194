// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installcheck checks an installation in a cluster, for `manager --check` and `helm test`,
// with the permissions of the manager. It only reads, so it can run at any time.
//
//	the leader renews its Lease                     a manager is running
//	NamespaceInitializerSet "effective" exists      the manager has written it
//	new namespaces get the initializers of the set  the admission controller reports it in the status of the set: the
//	                                                policies are installed, and dry runs get the initializers
//	a policy limits what the operator can write     the policy confine and its binding are installed
//	namespaces get the Initializing condition       the system namespace has it
package installcheck

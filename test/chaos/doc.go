// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chaos continuously creates and deletes namespaces while the components that they depend
// on fail, restart or change: the leading manager, the API server, its certificate, the CRDs.
//
// Two managers run as processes with leader election and their own ServiceAccount, and are
// restarted when they exit, as in a Deployment. Every namespace must get its initializers, reject
// writes of users until they have finished, open, and be deleted without orphaned objects. The
// report contains the recovery times after each disruption; docs/operate.md lists them.
package chaos

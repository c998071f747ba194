// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chaos continuously creates and deletes namespaces while the components that they depend
// on fail, restart or change: the leading manager, the API server, its certificate, the CRDs.
//
// Two managers run as processes with leader election and their own ServiceAccount. The suite
// restarts them when they exit, as a Deployment does. Every namespace must get its initializers,
// reject writes by users until the initializers have finished, accept writes afterwards, and be
// deleted without orphaned objects. The report contains the recovery time after each disruption.
// docs/operate.md lists these times.
package chaos

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chaos lets namespaces come and go all the time while the parts that they depend on
// fail, restart or change: the leading manager, the API server, its certificate, the CRDs.
//
// Two managers run as processes of their own, with leader election, under their own
// ServiceAccount, and are started again when they end, as a Deployment would. Every namespace
// that was asked for must get its initializers, let nobody in before they are done, become
// ready, and go without leaving anything behind. How long that took after each disturbance is
// in the report; docs/operate.md has the figures.
package chaos

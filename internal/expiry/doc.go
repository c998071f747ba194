// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expiry contains the rules for deleting Namespaces at the time set in their annotations,
// as pure functions: [Parse] returns that time, and [Decide] returns what to do now. It makes no
// API calls and reads no clock.
//
//	Scheduled ──▶ warned ──▶ deleted
//	              (condition Expiring is True)
//
// A Namespace is never deleted without a warning. If the time has already passed at the first
// warning, because it was set too late or the operator was not running, the Namespace is deleted
// one hour after the warning. When in doubt, the operator does not delete a Namespace: if it has
// both annotations, if the value is invalid, if the Namespace is protected, or if the API server
// does not check who sets the time.
package expiry

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expiry contains the rules for deleting Namespaces at the time that their annotations set.
// [Parse] returns this time, and [Decide] returns what to do now. The functions are pure: they make
// no API calls and do not read a clock.
//
//	Scheduled ──▶ warned ──▶ deleted
//	              (condition Expiring is True)
//
// The operator never deletes a Namespace without a warning. If the Namespace has already expired at
// the first warning, for example because the operator was not running, the operator deletes it one
// hour after the warning. The operator does not delete a Namespace that has both annotations, has an
// invalid value or is protected. The operator deletes no Namespaces while the API server does not
// check who sets the time.
package expiry

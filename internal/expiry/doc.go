// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expiry holds the rules by which Namespaces are deleted at a time that was set for
// them, as pure functions: when that is ([Read]), and what is to be done about a Namespace
// now ([Decide]). It makes no API calls and reads no clock.
//
//	Scheduled ──▶ warned of ──▶ deleted
//	              (condition Expiring is True)
//
// Nothing is deleted without a warning before. A warning that comes only when the time is
// over, since the time was set too late or nobody was there, gives one hour from then on.
// Whatever is not clear is not deleted: two times, one that cannot be read, a Namespace that
// is protected, or an API server that does not check who sets the time.
package expiry

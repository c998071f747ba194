// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup turns a namespace into YAML that `kubectl apply` takes, in any cluster.
//
// Collect reads, and never writes. All else is pure: Clean makes of an object what its
// user might have written, whyLeftOut tells which objects others make anew, and the order
// is such that one `kubectl apply -f` creates everything. What could not be read is part
// of the result: a backup that looks whole and is not would be worse than none.
//
// It holds objects, not what is in volumes, and it is no snapshot: the types are read one
// after another.
package backup

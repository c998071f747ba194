// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package causes proves the diagnosis on a real API server: each spec makes one state that
// holds a namespace, for real, with a namespace controller that works on it. It expects
// that the cause is found, that the right objects are named, that nothing else is blamed at
// any moment, that what the diagnosis recommends can be run, and that the namespace goes
// once the cause is taken away.
package causes

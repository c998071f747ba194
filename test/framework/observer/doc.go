// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observer checks what a control plane did against the promises of this project. It uses
// nothing of the operator except the public names in its API: its evidence is the audit logs of all
// API servers and its own watches.
//
// The resourceVersion in the response to a write is the revision of etcd that stored the write. All
// API servers of a control plane share these revisions, so the observer orders writes and watch events
// by revision, exactly and independently of clocks. For responses without a resourceVersion, it
// compares times, and reports a request only if the violation lasted for the whole request.
//
// The observer cannot attribute a write whose client got no response, such as a request that timed
// out.
package observer

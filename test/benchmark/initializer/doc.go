// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command initializer measures by how much a no-op initializer delays a namespace, and how long the
// initialization of many concurrent namespaces takes (make bench-initializer).
//
// The benchmark runs chains of one, two, four and eight initializers with pkg/initializer, in one
// process or in separate processes. The two take turns, so that interference on the machine affects
// both. Every turn starts new processes. The measurement
// starts a few seconds later, after a few namespaces have been initialized.
//
// The client measures two times from before its POST: until its watch delivers the namespace
// without the label, and until the condition Initializing has status False. The first means that
// users can write to the namespace; the second means that the manager has reported this. The time
// that one initializer adds is the slope of the medians over the length of the chain, by least
// squares. This excludes the constant part, such as the POST, the watch and the manager's last
// write.
//
// For many concurrent namespaces, the benchmark also measures a bare client, without the manager. For
// each namespace it sends only the requests that cannot be avoided: the creation, one patch for each
// initializer, and one write of the status.
//
// The API server, etcd, the manager, the initializers and the client share the machine, and etcd
// runs without fsync unless --fsync is set.
package main

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command initializer measures what an initializer that does nothing adds to the time until
// a namespace is ready, and how long many namespaces take at once (make bench-initializer).
//
// Chains of one, two, four and eight initializers are served in four ways, in turn: by
// pkg/initializer, all in one process or each in its own, and by the machinery of
// test/initializers, which is written by hand with client-go alone, in the same two ways. So
// what disturbs the machine disturbs all of them. The processes are started anew for every
// turn, and some namespaces are prepared, and some seconds pass, before times are taken.
//
// The clock is the client's: from before its POST until its watch delivers the namespace
// without the label, and with the condition Initializing with status False. The first is when
// users are let in, the second is when the manager has said so. What one initializer adds is
// the slope of the medians over the length of the chain, by least squares: so what is there
// once, the POST, the watch and the manager's last write, does not count.
//
// API server, etcd, manager, initializers and client share the machine, and etcd does not wait
// for the disk unless --fsync is given.
package main

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command initializer measures how much a no-op initializer adds to the time until
// a namespace is ready, and how long many concurrent namespaces take (make bench-initializer).
//
// Chains of one, two, four and eight initializers run in four ways, in turn: with
// pkg/initializer, all in one process or each in its own, and with
// test/initializers, which uses client-go only, in the same two ways. So
// a disturbance of the machine affects all of them. New processes are started for every
// turn, and the measurement starts after a few seconds and a few namespaces.
//
// The client's clock counts: from before its POST until its watch delivers the namespace
// without the label, and with the condition Initializing with status False. The first is the time
// until users can write, the second the time until the manager has reported it. What one
// initializer adds is the slope of the medians over the length of the chain, by least squares, so
// the constant part, such as the POST, the watch and the manager's last write, is excluded.
//
// API server, etcd, manager, initializers and client share the machine, and etcd does not wait
// for the disk unless --fsync is given.
package main

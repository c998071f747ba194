// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchmark measures what nslifecycle costs and how fast it is, on real API
// servers, and prints one table (make bench).
//
// # With and without, side by side
//
// It runs two control planes at once, each a kube-apiserver with an etcd of its own. One
// has nslifecycle installed, the other never has. The same request goes to both in turns
// of a few, in the order
//
//	without, with, with, without;  with, without, without, with;  ...
//
// so a slow drift cancels out, and what disturbs the machine for longer than a few
// milliseconds disturbs both. The other design, one server whose policies come and go,
// would need a pause after each change: the API server takes up to a second to notice a
// policy and compiles it then, and it needs up to 30 s to learn of the type of the
// policy's parameters. Turns would be a minute long, and noise of that length is what a
// shared machine is full of. Measuring one after the other has the same weakness.
//
// Two servers have a weakness of their own: they may differ by accident. Therefore both
// are compared before anything is installed in either; this control ratio should be 1.
// The second control needs no extra requests: each server is measured in two halves, the
// first and the second of its turns in each round. "Same server twice" is the ratio of
// the two halves' medians, which only noise can move away from 1. The range after a ratio
// is a bootstrap interval of 95 %, drawn from whole rounds.
//
// # What is measured how
//
// The client is an ordinary user with a certificate, not a cluster administrator, whom
// the API server would spare the evaluation of RBAC. It sends JSON, one request at a
// time. Client, API server and etcd share a machine, and etcd does not wait for the disk:
// there is nothing in a request's time that would dilute the cost of the policies, so the
// difference of the medians says as much as their ratio. With --fsync etcd waits for the
// disk, as in a real cluster.
//
// The manager is built and runs as a process of its own, with the token of its own
// ServiceAccount. While the cost of the policies is measured it is stopped: it is not
// needed for that, and its work would compete for the processors with one of the two
// servers only. What that competition amounts to has a row of its own. The times until a
// namespace is initialized are taken by one clock, the client's: from before its POST
// until a watch delivers the condition Initializing with status False. The three
// initializers run in the process of the client, each with an identity and a connection
// of its own.
//
// What the program writes to the servers is in namespaces whose names start with
// "bench-". All of it is gone when it ends.
package main

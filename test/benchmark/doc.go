// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchmark measures the overhead and speed of nslifecycle on real API
// servers, and prints one table (make bench).
//
// # With and without, side by side
//
// It runs two control planes at once, each a kube-apiserver with an etcd of its own. One
// has nslifecycle installed, the other does not. The same requests are sent to both in short turns,
// in the order
//
//	without, with, with, without;  with, without, without, with;  ...
//
// so a slow drift cancels out, and a disturbance of the machine that lasts longer than a few
// milliseconds affects both. The alternative, installing and removing the policies on one server,
// needs a pause after each change: the API server takes up to a second to observe a
// policy and then compiles it, and it takes up to 30 s to discover the type of the
// policy's parameters. Turns would take a minute, and noise of that length is typical for a
// shared machine. Measuring one server after the other has the same weakness.
//
// Two servers may differ by accident. Therefore both are compared before anything is installed in
// either; this control ratio should be 1. The second control needs no extra requests: each server
// is measured in two halves, the first and the second of its turns in each round. "Same server
// twice" is the ratio of the two halves' medians, which differs from 1 only by noise. The range
// after a ratio is a 95% bootstrap confidence interval, drawn from whole rounds.
//
// # Method
//
// The client is an ordinary user with a certificate, not a cluster administrator, for whom
// the API server would skip the evaluation of RBAC. It sends JSON, one request at a
// time. Client, API server and etcd share a machine, and etcd does not wait for the disk:
// nothing in a request's duration dilutes the cost of the policies, so the
// difference of the medians is as meaningful as their ratio. With --fsync etcd waits for the
// disk, as in a real cluster.
//
// The manager is built and runs in its own process, with the token of its
// ServiceAccount. It is stopped while the cost of the policies is measured: it is not
// needed for that, and its work would compete for the processors with one of the
// servers only. A separate row shows the effect of that competition. The times until a
// namespace is initialized are measured by the client's clock: from before its POST
// until a watch delivers the condition Initializing with status False. The three
// initializers run in the process of the client, each with its own identity and
// connection.
//
// The benchmark writes only to namespaces whose names start with
// "bench-", and deletes them at the end.
package main

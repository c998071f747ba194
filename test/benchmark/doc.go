// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchmark measures the overhead of nslifecycle on real API servers, and prints
// tables (make bench).
//
// # With and without, side by side
//
// The benchmark runs two control planes concurrently, each a kube-apiserver with its own etcd. Only
// one has nslifecycle installed. The benchmark sends the same requests to both in short turns, in
// the order
//
//	without, with, with, without;  with, without, without, with;  ...
//
// so slow drift cancels out, and interference on the machine that lasts longer than a few
// milliseconds affects both. The alternative is to install and remove the policies on one server,
// which requires a pause after each change: the API server observes a policy after up to a second,
// compiles it, and discovers the type of its parameters after up to 30 s. Each turn would take a
// minute, and interference of that duration is typical of shared machines. Measuring one server
// after the other would have the same weakness.
//
// Two servers can also differ by chance. Therefore, the benchmark first compares them before it
// installs nslifecycle; this control ratio should be 1. The second control needs no extra requests:
// the first and the second turn of a server in each round are treated as two halves. The column
// "Same server twice" contains the ratio of the medians of the halves; its difference from 1 is
// noise. The range after a ratio is a 95% bootstrap confidence interval, drawn from whole rounds.
//
// # Method
//
// The client is an ordinary user with a certificate. It is not a cluster administrator, because the
// API server does not evaluate RBAC for cluster administrators. It sends JSON, one request at a
// time. The client, the API server and etcd share a machine, and etcd runs without fsync.
// Therefore, no other latency hides the cost of the policies, and the difference of the medians is
// as meaningful as their ratio. The flag --fsync enables fsync, as in a real cluster.
//
// The manager runs in its own process, with a token of its ServiceAccount. It is stopped while the
// cost of the policies is measured, because it would compete with only one of the servers for
// processor time. A separate row shows this effect.
//
// The benchmark writes only to namespaces whose names start with "bench-", and deletes them at the
// end.
package main

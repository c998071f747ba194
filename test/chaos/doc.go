// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chaos continuously creates and deletes namespaces, and changes a template, while the components that
// they depend on fail, restart or change: managers, API servers, the three members of etcd, certificates, CRDs,
// connections and requests.
//
// The managers run as processes with their own ServiceAccount. The suite restarts them when they exit, as a
// Deployment does. Every namespace must reach its end state after the last fault. An observer checks every
// spec through another API server, which no fault affects except those of etcd. The report contains the
// recovery times. docs/operate.md lists the times after each disruption.
//
// The specs about API servers upgrade and downgrade those of the versions CHAOS_API_SERVERS.
//
// The random faults depend on Ginkgo's seed, which the output contains, and last for CHAOS_DURATION, by default
// two minutes: CHAOS_DURATION=10m go test ./test/chaos -v -timeout 40m -ginkgo.focus=Random -ginkgo.seed=1.
package chaos

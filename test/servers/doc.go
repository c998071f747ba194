// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers runs the manager with two API servers, or three if the environment variable
// NSLIFECYCLE_TEST_API_SERVERS is 3. They share one etcd or, if NSLIFECYCLE_TEST_ETCD_MEMBERS is 3, each use their own
// member of an etcd. It reproduces and measures the effects of stale watches: one API server can be paused, and its
// traffic with etcd, or that of its etcd member with the others, can be delayed. An observer checks
// every spec. All random values depend on Ginkgo's seed, which the output contains:
//
//	make test-servers ARGS=-ginkgo.seed=1
package servers

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers runs the manager with two API servers that share one etcd, and reproduces and measures
// the effects of stale watches. An observer checks every spec. All random values depend on Ginkgo's
// seed, which the output contains: go test ./test/servers -ginkgo.seed=1.
package servers

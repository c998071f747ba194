// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manager sets up a controller-runtime manager: it checks the API server, selects the
// controllers, and creates their clients, caches and probes.
package manager

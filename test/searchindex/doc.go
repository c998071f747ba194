// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package searchindex tests the example search-index: its two programs as processes, with
// the rights of its manifests, against a real API server with nslifecycle installed. What
// stands between the two makes the service look broken in all the ways that services are.
package searchindex

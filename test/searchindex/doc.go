// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package searchindex tests the example search-index: its two programs as processes, with the
// permissions of its manifests, against a real API server with nslifecycle installed. A proxy
// between the two programs injects the usual failures of services.
package searchindex

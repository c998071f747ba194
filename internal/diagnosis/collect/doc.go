// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package collect reads the facts for a diagnosis from a cluster. It changes nothing in the cluster:
// it lists objects, checks permissions, and sends dry runs of a few deletions and patches.
package collect

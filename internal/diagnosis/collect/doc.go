// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package collect reads the facts of a diagnosis from a cluster: those that the rules need. It
// changes nothing: it lists objects, checks permissions, and makes dry runs of a few deletions and
// patches.
package collect

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs tests the documentation: links, paths, make targets, flags and tests that it names
// must exist, and its size is limited.
package docs

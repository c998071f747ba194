// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs tests the documentation: the links, paths, make targets, flags and tests in it must
// exist, and its size is limited.
package docs

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs keeps the documentation honest, as far as a program can: that what it links to
// is there, and that what it tells people to type exists.
package docs

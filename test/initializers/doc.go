// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initializers runs small initializers for the tests, the benchmarks and the
// demo: real clients with rights of their own, which watch for namespaces that wait for
// them, do their work and take their name off the list. It is written with nothing but
// client-go, the way somebody would who has no library for it.
package initializers

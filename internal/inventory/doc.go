// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory finds out what a cluster and its namespaces hold: the namespaced
// types that an API server serves, and the objects of each.
//
// It only reads, and it reads metadata. What cannot be read is part of the answer and
// never an error of the whole: a tool that looks for what is wrong with a cluster has to
// work with half of one. Package finalization does not use it, since what is to be
// deleted has to be proven, and shared among many namespaces.
package inventory

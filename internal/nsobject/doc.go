// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nsobject reads and writes Namespaces: their conditions, their protection from deletion, patches with a UID
// precondition, retries on conflict, and Events.
package nsobject

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package selfservice contains specs for config/samples/self-service and config/owners, with users who
// have no permissions except those of the sample.
package selfservice

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package confinement renders the policy confined-initializers, which limits the subjects of initializers with a
// confinement.
package confinement

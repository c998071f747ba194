// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initializers contains the policy that the operator applies while an initializer has a confinement.
// config/default does not contain it: the operator adds the subjects, which a repeated installation would remove.
package initializers

import _ "embed" // for the manifest

// Confined is the manifest of the policy confined-initializers and of its binding.
//
//go:embed confined_initializers.yaml
var Confined []byte

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutating contains the policies that the operator applies if the API server serves
// MutatingAdmissionPolicy v1 (Kubernetes 1.36 and later). Otherwise, its webhooks inject and complete. config/default
// does not contain the policies, because kubectl cannot apply kinds that an API server does not serve.
package mutating

import _ "embed" // for the manifests

// The manifests of the policies and of their bindings.
var (
	//go:embed complete.yaml
	Complete []byte
	//go:embed require_set.yaml
	RequireSet []byte
	//go:embed inject.yaml
	Inject []byte
	// InjectBinding is not in the directory that an administrator applies.
	//go:embed binding/inject.yaml
	InjectBinding []byte
)

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac contains the ClusterRoles of the operator for programs that check an installation.
package rbac

import _ "embed" // for the manifests

// Manager is the ClusterRole of the ServiceAccount controller-manager, and Admission that of the ServiceAccount
// admission.
var (
	//go:embed role.yaml
	Manager []byte
	//go:embed admission_role.yaml
	Admission []byte
)

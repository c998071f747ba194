// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validating contains the validating policies that the operator applies: it changes their failurePolicy, and
// a tool that applies a manifest again would revert this. They enforce what NamespaceInitializerSet/effective
// contains, so they have no effect before the operator has started.
package validating

import _ "embed" // for the manifests

// The manifests of the policies and of their bindings.
var (
	//go:embed initializer_subjects.yaml
	InitializerSubjects []byte
	//go:embed templates.yaml
	Templates []byte
	//go:embed waiting_subjects.yaml
	WaitingSubjects []byte
)

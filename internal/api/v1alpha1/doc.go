// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the state that the operator compiles for its admission policies from the objects of the public
// API, and the names of these policies. It is not an API for users, and can change in every release.
//
// +kubebuilder:object:generate=true
// +groupName=internal.nslifecycle.dev
package v1alpha1

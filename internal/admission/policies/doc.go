// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies lists the admission policies of this project, and contains the manifests of those that the operator
// applies. It sends no requests.
package policies

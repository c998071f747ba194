// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policyapply applies admission policies that are part of the program. They are not in the manifests of the
// installation, because the operator changes their failurePolicy: an API server can take up to 30 s to recognize a new
// parameter kind, and with Fail, it would reject each request that the policy matches. A tool that applies a manifest
// again, such as Argo CD, Flux, Helm or kubectl, would reset the field.
package policyapply

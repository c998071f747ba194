// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install writes admission policies, their bindings and webhook configurations. No other package does, except
// the rotation of the certificate in package webhooks, which writes the CA.
//
// If the API server serves MutatingAdmissionPolicy v1 (Kubernetes 1.36 and later), the operator applies the policies in
// config/mutating, which work while no manager runs. Otherwise, webhooks select the same requests (package inject).
// Both write the same state, so it does no harm if a request passes through both.
//
// The manifests of the installation do not contain the policies that the operator applies, because it changes their
// failurePolicy: an API server can take up to 30 s to recognize a new parameter kind, and with Fail, it would reject
// each request that the policy matches. A tool that applies a manifest again, such as Argo CD, Flux, Helm or kubectl,
// would reset the field. The gate policy is the owner of all of them, so they are deleted with it. Without the
// permission in config/webhook, an administrator can apply config/mutating, and the operator creates only the binding
// of inject.
package install

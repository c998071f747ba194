// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package injection implements the policies inject and complete in Go, and serves them as webhooks to API servers
// without MutatingAdmissionPolicy. The rules equal those in config/mutating/inject.yaml and
// config/mutating/complete.yaml: test/admission/cases contains cases that both pass.
//
// Policies run before webhooks. Inject changes nothing that the policy has injected. Complete would undo a completion
// by the policy, so CompleteAfterPolicy replaces it where the policy can have run.
package webhooks

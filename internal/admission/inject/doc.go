// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inject implements the policies inject and complete (config/mutating) in Go, and serves them as webhooks to
// API servers without MutatingAdmissionPolicy v1, which is part of Kubernetes 1.36. test/admission/cases contains the
// cases that both pass.
//
// Policies run before webhooks. Inject changes nothing that the policy has injected. Complete would undo a completion
// by the policy, so completeAfterPolicy replaces it where the policy can have run: after an upgrade of the API server,
// the webhooks remain, because other API servers may not serve the type, and the upgrade can be taken back. After
// an hour, new namespaces no longer depend on them.
//
// # End
//
// The first minor release after the end of upstream's support for Kubernetes 1.35 (docs/versions.md) deletes:
//
//   - this directory, which contains also the manifests and the permission,
//   - in internal/admission/install/webhooks.go, all but the detection of the hold webhooks,
//   - test/policywebhooks, and its line in test/suites.txt,
//   - this directory in config/webhook/kustomization.yaml, hack/policies/main.go and test/docs/imports_test.go,
//   - InjectConfiguration in internal/admission/webhooks/certificate.go and internal/installcheck,
//   - what does not compile then, and in docs and comments, what mentions this directory.
//
// After that, these have no use: Installed.Webhooks and Status.WebhooksMayFail of package verify, Request.Subpath and
// Request.OldObject of package webhooks, initialization.LockedKeys, the rules about nslifecycle-inject in the policy
// confine (one policy limits all webhook configurations) and their cases in test/admission, and in other suites the
// branches without framework.ServesPolicies.
package inject

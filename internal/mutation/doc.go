// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutation makes API servers add the pending list to new Namespaces, and restore or remove state in updates.
//
// If the API server serves MutatingAdmissionPolicy v1 (Kubernetes 1.36 and later), the operator applies the policies in
// config/mutating, which work while no manager runs. Otherwise, webhooks select the same requests
// (internal/admission/webhooks). Both write the same state, so it does no harm if a request passes through both.
//
// The gate policy is the owner of the policies, so they are deleted with it. Without the permission
// in config/webhook, an administrator can apply config/mutating, and the operator creates only the binding of inject.
package mutation

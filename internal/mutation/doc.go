// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutation makes API servers add the pending list to new Namespaces, and restore or remove state in updates.
//
// If the API server serves MutatingAdmissionPolicy v1 (Kubernetes 1.36 and later), the operator applies the policies in
// config/mutating, which work while no manager runs. Otherwise, the operator makes the webhooks in config/webhook
// select the same requests; package injection answers them. Both write the same state, so it does no harm if a
// request passes through both.
//
// After an upgrade of the API server, the webhooks remain, because other API servers may not serve the type, and the
// upgrade can be taken back. After optionalAfter, new namespaces no longer depend on them. An administrator can remove
// the rules; where API servers have always served the type, there are none.
//
// The MutatingWebhookConfiguration is the owner of the policies, so they are deleted with it. Without it, an
// administrator can apply config/mutating, and the operator creates only the binding of inject.
package mutation

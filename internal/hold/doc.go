// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hold lets writes to an initializing Namespace wait instead of failing: a mutating admission
// webhook (config/hold) changes nothing, and responds when the initialization has completed. The gate
// policy, which the API server evaluates afterwards, then admits the write. Without the webhook, the
// gate rejects the write.
//
// # Stale API servers
//
// The webhook learns of the completion from its own watch, and the API server that called it may
// learn of it later. Its gate would then reject a released write. Therefore the configuration has two
// webhooks with the same namespaceSelector. The API server evaluates each selector immediately before
// it calls the webhook, with the same Namespace informer that the gate uses
// (k8s.io/apiserver, pkg/admission/plugin/webhook/mutating/dispatcher.go). If it calls the second
// webhook for a Namespace that is already initialized, its informer is stale, and the webhook asks
// the client to send the write again. Otherwise its gate admits the write. This works with any number
// of API servers, because each of them is asked for its own state.
//
// # Writes that must be sent again
//
// The plugins LimitRanger and ServiceAccount of the API server, and selectors of policies and of
// webhooks, are evaluated before or while a write is held. A Pod, and any write whose Namespace
// received other labels in the meantime, is therefore never released. The client is asked to send it
// again, and the API server admits it like any other write to an initialized Namespace.
package hold

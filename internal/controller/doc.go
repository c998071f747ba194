// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller contains the reconcilers. They read from and write to the API server. The pure
// functions of the domain packages make the decisions.
//
//   - [ConfigurationReconciler] merges all configurations into the effective set, and reports their state.
//   - [AdmissionReconciler] makes the API server enforce the set, and reports whether it does.
//   - [NamespaceReconciler] reports the initialization of a Namespace, and acts on timeouts and failures.
//   - [TemplatedNamespaceReconciler] applies templates to a Namespace, as an initializer and afterwards.
//   - [TemplateReconciler] reports the state of a template, and decides which revision Namespaces get.
//   - [TemplateWebhookReconciler] sets the URL of the webhook that validates templates.
//   - [HoldReconciler] configures the webhooks that hold early writes.
//   - [FinalizationReconciler] deletes the content of a terminating Namespace, then removes its finalizer.
//   - [DiagnosisReconciler] reports why the initialization or deletion of a Namespace makes no progress.
//
// Admission policies in the API server (config/admission and config/mutating) add the pending list, protect it, and
// complete the initialization. Therefore, initialization does not depend on the reconcilers. On API servers without
// MutatingAdmissionPolicy v1, webhooks replace config/mutating (internal/admission/inject).
package controller

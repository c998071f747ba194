// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller contains the reconcilers. They read from and write to the API server. The pure
// functions of the domain packages make the decisions.
//
//   - [ConfigurationReconciler] merges all NamespaceInitializerConfigurations into
//     NamespaceInitializerSet/effective and reports in their Active condition whether the API
//     server enforces it.
//   - [AdmissionReconciler] makes the API server enforce the set, and reports in its Enforced condition
//     whether it does.
//   - [NamespaceReconciler] reports the progress of initialization in the conditions of a Namespace,
//     enforces timeouts, and deletes a Namespace whose initialization failed.
//   - [FinalizationReconciler] deletes the content of a terminating Namespace and then removes the
//     operator's own finalizer from spec.finalizers.
//   - [DiagnosisReconciler] reports why the initialization or deletion of a Namespace makes no
//     progress.
//   - [HoldReconciler] configures the webhooks that hold early writes.
//   - [ExpiryReconciler] deletes a Namespace at the time set in its annotations. It is off by default.
//
// Admission policies in the API server (config/admission and config/mutating) add the pending list, protect it, and
// complete the initialization. Therefore, initialization does not depend on the reconcilers. On API servers without
// MutatingAdmissionPolicy v1, webhooks replace config/mutating (package mutation).
package controller

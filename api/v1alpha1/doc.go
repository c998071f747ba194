// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the public API of nslifecycle: the custom resources that register initializers and
// specify the objects of Namespaces, and the names of the labels, annotations and conditions that record
// the state of a Namespace.
//
// It imports only apimachinery, so that clients get no other dependencies.
//
// # Life cycle of a Namespace
//
//	            CREATE                 last pending initializer removed
//	(nothing) ─────────▶ Initializing ──────────────────────────────────▶ Initialized
//	                       │                                                │
//	                       │ result with status Failure              DELETE │
//	                       ▼                                                ▼
//	                     Failed ───────────── DELETE by the operator ──▶ Terminating
//
// The state is recorded in the label [LabelInitializing], the annotations
// [AnnotationPendingInitializers] and [AnnotationInitializationResult], and the conditions
// [ConditionReady] and [ConditionInitializing].
//
// The API follows the Namespace Initializer KEP (kubernetes/enhancements, keps/33).
//
// # Enumerations
//
// Later versions can add values to enumerations and reasons. Clients show an unknown value, and do not
// decide by it. The operator deletes no object and fails no initialization because of an unknown policy.
//
// +kubebuilder:object:generate=true
// +groupName=nslifecycle.dev
package v1alpha1

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the public API of nslifecycle: the two custom resources
// that say which initializers a new Namespace has to wait for, and the names of
// the labels, annotations and conditions through which a Namespace tells its
// stage of life.
//
// It imports nothing but apimachinery, so that a client pays for nothing else.
//
// # The life of a Namespace
//
//	            CREATE                    last entry of the list removed
//	(nothing) ─────────▶ initializing ──────────────────────────────────▶ ready
//	                       │                                                │
//	                       │ result says Failure                     DELETE │
//	                       ▼                                                ▼
//	                     failed ───────────── DELETE by the operator ──▶ terminating
//
// The states are told by the label [LabelInitializing], the annotations
// [AnnotationPendingInitializers] and [AnnotationInitializationResult], and the
// condition [ConditionInitializing].
//
// The model is the Namespace Initializer KEP (kubernetes/enhancements, keps/33).
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package="applyconfiguration"
// +groupName=nslifecycle.dev
package v1alpha1

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"slices"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// SettableLabels are the labels under v1alpha1.Prefix that users can set when they create a Namespace. All other labels
// and annotations with this prefix are reserved for the operator: inject removes them.
var SettableLabels = []string{v1alpha1.LabelDeletionProtection, v1alpha1.LabelTemplate}

// The annotations that only holders of the verb "initialize" can change, or no user. A write that leaves one out does
// not remove it.
var (
	// OriginAnnotations describe how a Namespace was created, and never change.
	OriginAnnotations = []string{
		v1alpha1.AnnotationInitializers, v1alpha1.AnnotationRequestedBy, v1alpha1.AnnotationSelectedTemplates,
	}
	// RecordAnnotations are written by the operator, which removes them with an empty value.
	RecordAnnotations = []string{v1alpha1.AnnotationAppliedTemplates, v1alpha1.AnnotationTurnStartedAt}
	// ProgressAnnotations can be left out when no initializers are pending.
	ProgressAnnotations = []string{v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationInitializationResult}
	// StateAnnotations are all of these.
	StateAnnotations = slices.Concat(OriginAnnotations, RecordAnnotations, ProgressAnnotations)
)

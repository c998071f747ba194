// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// ActiveCondition returns the Active condition of a configuration. The reason says
// what the API server does with the merged set as a whole, v1alpha1.ReasonInForce
// where it acts on it; the message says more.
func ActiveCondition(
	configuration *v1alpha1.NamespaceInitializerConfiguration, merged Merged, reason, message string,
) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionActive,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: configuration.Generation,
		Reason:             reason,
		Message:            message,
	}
	switch {
	case slices.Contains(merged.LeftOut, configuration.Name):
		condition.Reason = v1alpha1.ReasonTooManyInitializers
		condition.Message = fmt.Sprintf("all configurations together may name %d initializers, and those of "+
			"configurations that sort before this one leave no room; none of its initializers is in force: "+
			"remove some initializers, there or here", v1alpha1.MaxSetInitializers)
	case reason != v1alpha1.ReasonInForce:
	case len(configuration.Initializers) == 0:
		condition.Status = metav1.ConditionTrue
		condition.Reason = v1alpha1.ReasonEmpty
		condition.Message = "this configuration names no initializer, so it adds nothing to new namespaces"
	default:
		condition.Status = metav1.ConditionTrue
	}
	return condition
}

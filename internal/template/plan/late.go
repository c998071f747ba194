// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

func lateTemplates(templates []v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state template.State) []string {
	var names []string
	for i := range templates {
		if template.IsLate(&templates[i], namespace, state) {
			names = append(names, templates[i].Name)
		}
	}
	return names
}

// lateSelection has the late templates of a Namespace, to recognize those that a change of labels adds.
type lateSelection struct {
	// labels is a hash of the labels for which the templates are late; empty before the first pass.
	labels    string
	templates []string
}

// Update replaces the late templates. It returns those that were added when the labels changed. The first pass over a
// Namespace that is older than the operator's first pass adds none: an earlier process has reported them. A Namespace
// that was created in the second of this pass is new.
func (l *lateSelection) Update(namespace *corev1.Namespace, templates []string, start time.Time) (added []string) {
	known, current := *l, lateSelection{labels: template.HashOf(namespace.Labels), templates: templates}
	*l = current
	isFirst := known.labels == ""
	if isFirst && namespace.CreationTimestamp.Time.Before(start.Truncate(time.Second)) || known.labels == current.labels {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(templates), func(name string) bool {
		return slices.Contains(known.templates, name)
	})
}

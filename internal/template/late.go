// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// IsLate reports whether a template selects a Namespace but is not applied to it, because it was not created with the
// template.
func IsLate(template *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state State) bool {
	return template.DeletionTimestamp == nil && Selects(template, namespace) && !Applies(template, namespace, state)
}

func lateTemplates(templates []v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, state State) []string {
	var names []string
	for i := range templates {
		if IsLate(&templates[i], namespace, state) {
			names = append(names, templates[i].Name)
		}
	}
	return names
}

// lateSelections has the late templates of Namespaces, to recognize those that a change of labels adds. After a
// restart, the first pass over an older Namespace adds none: an earlier process has reported them.
type lateSelections struct {
	mutex sync.Mutex
	// since is when the first Namespace was processed.
	since time.Time
	byUID map[types.UID]lateSelection
}

type lateSelection struct {
	// labels is a hash of the labels for which the templates are late.
	labels    string
	templates []string
}

// update replaces the late templates of a Namespace. It returns those that were added when its labels changed.
func (l *lateSelections) update(namespace *corev1.Namespace, templates []string, now time.Time) (added []string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.byUID == nil {
		l.since, l.byUID = now, map[types.UID]lateSelection{}
	}
	known, ok := l.byUID[namespace.UID]
	current := lateSelection{labels: hashOf(namespace.Labels), templates: templates}
	l.byUID[namespace.UID] = current
	if !ok && !namespace.CreationTimestamp.After(l.since) || known.labels == current.labels {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(templates), func(name string) bool {
		return slices.Contains(known.templates, name)
	})
}

func (l *lateSelections) forget(namespace types.UID) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.byUID, namespace)
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// checkForeignState checks ForeignStateChanged.
func (c *checker) checkForeignState() {
	c.eachUpdate(func(t *timeline, before, after *version) {
		if !c.isManager(after.writer) || t.namespace == c.SystemNamespace ||
			t.resource != namespacesResource && t.namespace == "" {
			return
		}
		if changes := foreignChanges(before, after, c.Managers[after.writer.User.Username]); len(changes) > 0 {
			namespace := t.namespace
			if t.resource == namespacesResource {
				namespace = t.name
			}
			c.report(ForeignStateChanged, namespace, after.writer, "the operator changed %s %q: %s",
				t.resource, t.name, strings.Join(changes, ", "))
		}
	})
}

// foreignChanges returns the state of other controllers that a version has lost, in a stable order.
func foreignChanges(before, after *version, ownFinalizers []corev1.FinalizerName) []string {
	changes := slices.Concat(
		changedKeys("label", before.Labels, after.Labels),
		changedKeys("annotation", before.Annotations, after.Annotations))
	for _, finalizer := range before.Finalizers {
		if !isOwnKey(finalizer) && !slices.Contains(after.Finalizers, finalizer) {
			changes = append(changes, "finalizer "+finalizer)
		}
	}
	if after.Kind != before.Kind {
		return changes // A response with only the metadata.
	}
	for _, finalizer := range before.namespaceFinalizers() {
		if !slices.Contains(ownFinalizers, finalizer) && !slices.Contains(after.namespaceFinalizers(), finalizer) {
			changes = append(changes, fmt.Sprintf("namespace finalizer %s", finalizer))
		}
	}
	for _, condition := range before.conditions() {
		isUnchanged := slices.ContainsFunc(after.conditions(), func(now corev1.NamespaceCondition) bool {
			return now.LastTransitionTime.Equal(&condition.LastTransitionTime) && now.Type == condition.Type &&
				now.Status == condition.Status && now.Reason == condition.Reason && now.Message == condition.Message
		})
		if !isUnchanged && !isOwnCondition(condition.Type) {
			changes = append(changes, fmt.Sprintf("condition %s", condition.Type))
		}
	}
	return changes
}

func changedKeys(kind string, before, after map[string]string) []string {
	var changes []string
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if value, ok := after[key]; !isOwnKey(key) && (!ok || value != before[key]) {
			changes = append(changes, kind+" "+key)
		}
	}
	return changes
}

func isOwnKey(key string) bool {
	return strings.HasPrefix(key, v1alpha1.Prefix) || strings.HasPrefix(key, v1alpha1.PrefixParameter)
}

// isOwnCondition reports whether the operator sets a condition, alone or in place of
// kube-controller-manager.
func isOwnCondition(conditionType corev1.NamespaceConditionType) bool {
	switch conditionType {
	case v1alpha1.ConditionInitializing, v1alpha1.ConditionReady, v1alpha1.ConditionStalled,
		corev1.NamespaceDeletionDiscoveryFailure,
		corev1.NamespaceDeletionContentFailure, corev1.NamespaceDeletionGVParsingFailure,
		corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining:
		return true
	}
	name := string(conditionType)
	return isOwnKey(name) || strings.HasSuffix(name, v1alpha1.ConditionInitializedSuffix)
}

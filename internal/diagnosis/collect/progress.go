// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// computeProgress compares two lists of the content, and counts deleted objects and removed
// finalizers. It ignores new objects, and types that could not be listed twice.
func computeProgress(first, second []resourcetypes.Content) diagnosis.Progress {
	progress := diagnosis.Progress{Deleted: map[schema.GroupResource]int{}, Released: map[string]int{}}
	again := map[schema.GroupResource]resourcetypes.Content{}
	for _, content := range second {
		again[content.Type.GroupResource()] = content
	}
	for _, before := range first {
		after := again[before.Type.GroupResource()] // The second list lacks a type if all of its objects are deleted.
		if before.Err == nil && after.Err == nil {
			addProgress(progress, before, after)
		}
	}
	return progress
}

// addProgress adds the changes of one type. An object that the second list lacks is treated as deleted
// if the first list is complete, or if the number of objects decreased.
func addProgress(progress diagnosis.Progress, before, after resourcetypes.Content) {
	resource := before.Type.GroupResource()
	remaining := map[types.UID][]string{}
	for _, object := range after.Objects {
		remaining[object.UID] = object.Finalizers
	}
	isComplete := len(before.Objects) == before.Count && !before.IsAtLeast
	for _, object := range before.Objects {
		finalizers, ok := remaining[object.UID]
		if !ok && !isComplete && after.Count >= before.Count {
			continue
		}
		if !ok {
			progress.Deleted[resource]++
		}
		for _, finalizer := range object.Finalizers {
			if !slices.Contains(finalizers, finalizer) {
				progress.Released[finalizer]++
			}
		}
	}
	if progress.Deleted[resource] == 0 && after.Count < before.Count {
		progress.Deleted[resource] = before.Count - after.Count
	}
}

var remainingCount = regexp.MustCompile(`([a-z0-9-]+)\.([a-z0-9.-]*) has (\d+) resource instances`)

// progressInConditions returns a sentence about the progress that the NamespaceContentRemaining
// condition shows, or "". The condition contains the numbers of remaining objects, and must have been
// written recently.
func progressInConditions(facts *diagnosis.Facts) string {
	condition := facts.Condition(corev1.NamespaceContentRemaining)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return ""
	}
	written := countWritten(facts.Namespace)
	if written.IsZero() || facts.IsOverdue(written) {
		return ""
	}
	counts := map[schema.GroupResource]resourcetypes.Content{}
	for _, content := range facts.Content {
		counts[content.Type.GroupResource()] = content
	}
	for _, match := range remainingCount.FindAllStringSubmatch(condition.Message, -1) {
		before, err := strconv.Atoi(match[3])
		now := counts[schema.GroupResource{Resource: match[1], Group: match[2]}]
		if err == nil && now.Err == nil && !now.IsAtLeast && now.Count < before {
			return fmt.Sprintf(evidenceCountDecreased, before, match[1], facts.Ago(written), now.Count)
		}
	}
	if isCountChanged(facts, written) {
		return fmt.Sprintf(evidenceCountChanged, facts.Ago(written))
	}
	return ""
}

// isCountChanged reports whether the last write of the status changed only the number of objects:
// no condition changed its status in this write, and no condition lists errors, because their text
// varies. A controller writes the status only if the status changes. Unlike a comparison of two
// lists, this function also detects progress if a controller takes seconds for each object.
func isCountChanged(facts *diagnosis.Facts, written time.Time) bool {
	blocked := facts.Condition(v1alpha1.ConditionDeletionBlocked)
	if blocked != nil && blocked.Status == corev1.ConditionTrue {
		return false // An earlier diagnosis found no progress.
	}
	return !slices.ContainsFunc(facts.Namespace.Status.Conditions, func(condition corev1.NamespaceCondition) bool {
		isError := diagnosis.ListsErrors(condition.Type) && condition.Status == corev1.ConditionTrue
		return isError || !condition.LastTransitionTime.Time.Before(written.Add(-time.Second))
	})
}

// countWritten returns the time of the last write that might have changed the NamespaceContentRemaining
// condition; zero if managedFields do not contain the condition.
func countWritten(namespace *corev1.Namespace) time.Time {
	var last time.Time
	for _, entry := range namespace.ManagedFields {
		if entry.Subresource == "status" && entry.FieldsV1 != nil && entry.Time != nil && entry.Time.After(last) &&
			bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(corev1.NamespaceContentRemaining)) {
			last = entry.Time.Time
		}
	}
	return last
}

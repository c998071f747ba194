// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

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
	"github.com/nslifecycle/nslifecycle/internal/inventory"
)

// computeMovement compares two looks at what is left: which objects have gone, and which
// finalizers have been taken off. What has come in between does not count, and neither do
// types that could not be listed, or not to the end, the second time.
func computeMovement(first, second []inventory.Content) Movement {
	movement := Movement{Gone: map[schema.GroupResource]int{}, Released: map[string]int{}}
	again := map[schema.GroupResource]inventory.Content{}
	for _, content := range second {
		again[content.Type.GroupResource()] = content
	}
	for _, before := range first {
		after := again[before.Type.GroupResource()] // of a type that is not in the second look everything went
		if before.Err == nil && after.Err == nil {
			movement.compare(before, after)
		}
	}
	return movement
}

// compare adds what has changed of one type. An object that is not among those that were
// listed the second time has gone if all were listed the first time, or if there are fewer.
func (m Movement) compare(before, after inventory.Content) {
	resource := before.Type.GroupResource()
	left := map[types.UID][]string{}
	for _, object := range after.Objects {
		left[object.UID] = object.Finalizers
	}
	isWhole := len(before.Objects) == before.Count && !before.IsAtLeast
	for _, object := range before.Objects {
		finalizers, isThere := left[object.UID]
		if !isThere && !isWhole && after.Count >= before.Count {
			continue
		}
		if !isThere {
			m.Gone[resource]++
		}
		for _, finalizer := range released(object.Finalizers, finalizers) {
			m.Released[finalizer]++
		}
	}
	if m.Gone[resource] == 0 && after.Count < before.Count {
		m.Gone[resource] = before.Count - after.Count
	}
}

// released returns which finalizers are there before and not after.
func released(before, after []string) []string {
	var gone []string
	left := map[string]bool{}
	for _, finalizer := range after {
		left[finalizer] = true
	}
	for _, finalizer := range before {
		if !left[finalizer] {
			gone = append(gone, finalizer)
		}
	}
	return gone
}

var remainingCount = regexp.MustCompile(`([a-z0-9-]+)\.([a-z0-9.-]*) has (\d+) resource instances`)

// whatConditionsProve returns a sentence if the condition that counts what is left was
// written a moment ago and says more than there is now.
func whatConditionsProve(facts *Facts) string {
	condition := facts.condition(corev1.NamespaceContentRemaining)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return ""
	}
	written := statusWritten(facts.Namespace)
	if written.IsZero() || facts.isOverdue(written) {
		return ""
	}
	counts := map[schema.GroupResource]inventory.Content{}
	for _, content := range facts.Content {
		counts[content.Type.GroupResource()] = content
	}
	for _, match := range remainingCount.FindAllStringSubmatch(condition.Message, -1) {
		said, err := strconv.Atoi(match[3])
		now := counts[schema.GroupResource{Resource: match[1], Group: match[2]}]
		if err == nil && now.Err == nil && !now.IsAtLeast && now.Count < said {
			return fmt.Sprintf("%s ago %d objects of %s were left, and now %d",
				facts.ago(written), said, match[1], now.Count)
		}
	}
	if facts.isCountedAnew(written) {
		return fmt.Sprintf("%s ago what is left was counted anew, and was not what it had been", facts.ago(written))
	}
	return ""
}

// isCountedAnew tells whether the last thing that was written to the status was another
// count: nothing there has begun or ended at that time, and no errors are listed, which are
// others each time. A controller writes only what has changed. Whoever works on one object
// after another may take seconds for each, and two looks at them see nothing of it.
func (f *Facts) isCountedAnew(written time.Time) bool {
	blocked := f.condition(v1alpha1.ConditionDeletionBlocked)
	if blocked != nil && blocked.Status == corev1.ConditionTrue {
		return false // it says that nothing has moved for a while
	}
	return !slices.ContainsFunc(f.Namespace.Status.Conditions, func(condition corev1.NamespaceCondition) bool {
		isError := isOfErrors(condition.Type) && condition.Status == corev1.ConditionTrue
		return isError || !condition.LastTransitionTime.Time.Before(written.Add(-time.Second))
	})
}

// statusWritten returns when the condition that counts what is left may last have been
// written; zero if managedFields do not tell.
func statusWritten(namespace *corev1.Namespace) time.Time {
	var last time.Time
	for _, entry := range namespace.ManagedFields {
		if entry.Subresource == "status" && entry.FieldsV1 != nil && entry.Time != nil && entry.Time.After(last) &&
			bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(corev1.NamespaceContentRemaining)) {
			last = entry.Time.Time
		}
	}
	return last
}

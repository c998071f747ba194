// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
)

// mostObjects is how many objects a finding names.
const mostObjects = 5

// item is one object that is left.
type item struct {
	inventory.Type
	*metav1.PartialObjectMetadata
}

func (i item) object() Object {
	return Object{Resource: i.Type.String(), Namespace: i.Namespace, Name: i.Name}
}

// deletedAt returns when the object should have gone; zero if it is not being deleted.
func (i item) deletedAt() time.Time {
	if i.DeletionTimestamp == nil {
		return time.Time{}
	}
	return i.DeletionTimestamp.Time
}

var (
	podResource   = schema.GroupResource{Resource: "pods"}
	claimResource = schema.GroupResource{Resource: "persistentvolumeclaims"}
)

// items returns everything that was listed, in the order of the types.
func (f *Facts) items() []item {
	var items []item
	for _, content := range f.Content {
		for i := range content.Objects {
			items = append(items, item{content.Type, &content.Objects[i]})
		}
	}
	return items
}

// isOverdueItem tells whether an object that is being deleted should have gone by now. The
// API server adds a Pod's grace period to its deletionTimestamp.
func (f *Facts) isOverdueItem(i item) bool {
	return i.DeletionTimestamp != nil && f.isOverdue(i.DeletionTimestamp.Time)
}

// isBeingReleased tells whether a finalizer is taken off here and there, so that the rest
// only has to wait for its turn.
func (f *Facts) isBeingReleased(finalizer string) bool {
	return f.Movement.Said != "" || f.Movement.Released[finalizer] > 0
}

// isMoving tells the same of the objects of a type.
func (f *Facts) isMoving(resource schema.GroupResource) bool {
	return f.Movement.Said != "" || f.Movement.Gone[resource] > 0
}

// overdueByFinalizer groups the objects that should have gone by their finalizers.
func (f *Facts) overdueByFinalizer() map[string][]item {
	groups := map[string][]item{}
	for _, i := range f.items() {
		if !f.isOverdueItem(i) {
			continue
		}
		for n, finalizer := range i.Finalizers {
			if slices.Index(i.Finalizers, finalizer) == n { // it may be there twice
				groups[finalizer] = append(groups[finalizer], i)
			}
		}
	}
	return groups
}

// some sets the objects of a finding: all are counted, a few are named.
func (finding Finding) some(items []item) Finding {
	objects := make([]Object, 0, len(items))
	for _, i := range items {
		objects = append(objects, i.object())
	}
	return finding.about(objects)
}

func (finding Finding) about(objects []Object) Finding {
	slices.SortFunc(objects, compareObjects)
	objects = slices.Compact(objects)
	finding.Count = len(objects)
	finding.Objects = objects[:min(len(objects), mostObjects)]
	return finding
}

func compareObjects(a, b Object) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// resourcesOf names the types of some items, each once.
func resourcesOf(items []item) []string {
	var names []string
	for _, i := range items {
		names = append(names, i.Type.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// describe names one object, or counts many: "configmaps "a"", "3 configmaps", "4 objects
// of 2 types".
func describe(items []item) string {
	names := resourcesOf(items)
	switch {
	case len(items) == 0:
		return "nothing"
	case len(items) == 1:
		return fmt.Sprintf("%s %q", names[0], items[0].Name)
	case len(names) == 1:
		return fmt.Sprintf("%d %s", len(items), names[0])
	}
	return fmt.Sprintf("%d objects (%s)", len(items), joinSome(names))
}

// longestWaiting returns the item that should have gone first. There is at least one, and all
// are being deleted.
func longestWaiting(items []item) item {
	return slices.MinFunc(items, func(a, b item) int { return a.deletedAt().Compare(b.deletedAt()) })
}

// oldest returns when the first of some items should have gone.
func oldest(items []item) time.Time {
	var first time.Time
	for _, i := range items {
		if i.DeletionTimestamp != nil && (first.IsZero() || i.DeletionTimestamp.Time.Before(first)) {
			first = i.DeletionTimestamp.Time
		}
	}
	return first
}

func joinSome(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func plural(count int, noun string) string {
	if count == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", count, noun)
}

// stamp writes a time as evidence.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ago says how long ago a time was, as kubectl does.
func (f *Facts) ago(t time.Time) string { return duration.HumanDuration(f.Now.Sub(t)) }

// condition returns a condition of the Namespace, or nil.
func (f *Facts) condition(conditionType corev1.NamespaceConditionType) *corev1.NamespaceCondition {
	return nscondition.Find(f.Namespace, conditionType)
}

// failure returns what a condition complains of, or nothing if it is not True.
func (f *Facts) failure(conditionType corev1.NamespaceConditionType) string {
	condition := f.condition(conditionType)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return ""
	}
	return condition.Message
}

// quote makes evidence of a condition of the Namespace.
func quote(condition *corev1.NamespaceCondition) string {
	return fmt.Sprintf("condition %s=%s, %s since %s: %s", condition.Type, condition.Status, condition.Reason,
		stamp(condition.LastTransitionTime.Time), oneLine(condition.Message))
}

// quotes makes evidence of those conditions of the Namespace that are True.
func (f *Facts) quotes(conditionTypes ...corev1.NamespaceConditionType) []string {
	var texts []string
	for _, conditionType := range conditionTypes {
		if condition := f.condition(conditionType); condition != nil && condition.Status == corev1.ConditionTrue {
			texts = append(texts, quote(condition))
		}
	}
	return texts
}

// sorted walks a map in the order of its keys.
func sorted[K cmp.Ordered, V any](of map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if !yield(key, of[key]) {
				return
			}
		}
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

func TestComputeProgress(t *testing.T) {
	first := []resourcetypes.Content{contentOf(widgets, makeTerminatingObject("a", held), makeTerminatingObject("b", held, "x")), contentOf(configMaps, makeObject("c"))}
	for name, test := range map[string]struct {
		second   []resourcetypes.Content
		deleted  int
		released int
	}{
		"no change":                     {second: first},
		"a new object":                  {second: []resourcetypes.Content{contentOf(widgets, makeTerminatingObject("a", held), makeTerminatingObject("b", held), makeTerminatingObject("c")), first[1]}},
		"one deleted object":            {second: []resourcetypes.Content{contentOf(widgets, makeTerminatingObject("b", held, "x")), first[1]}, deleted: 1, released: 1},
		"all objects of a type deleted": {second: first[1:], deleted: 2, released: 2},
		"a removed finalizer":           {second: []resourcetypes.Content{contentOf(widgets, makeTerminatingObject("a"), makeTerminatingObject("b", held, "x")), first[1]}, released: 1},
		"a failed list request":         {second: []resourcetypes.Content{{Type: widgets, Err: unavailable}, first[1]}},
	} {
		progress := computeProgress(first, test.second)
		if progress.Deleted[widgets.GroupResource()] != test.deleted || progress.Released[held] != test.released {
			t.Errorf("%s: got %+v", name, progress)
		}
	}
	many, fewer := contentOf(configMaps, makeObject("a")), contentOf(configMaps, makeObject("b"))
	many.Count, fewer.Count = 9000, 8000
	if got := computeProgress([]resourcetypes.Content{many}, []resourcetypes.Content{fewer}); got.Deleted[configMaps.GroupResource()] != 1 {
		t.Errorf("with many objects: got %+v", got)
	}
	fewer.Count = 9000
	if got := computeProgress([]resourcetypes.Content{many}, []resourcetypes.Content{fewer}); got.Observed() {
		t.Errorf("with the same number of objects: got %+v", got)
	}
}

func TestProgressInConditions(t *testing.T) {
	facts := makeFacts(contentOf(configMaps, makeObject("a")))
	setCondition(facts, "NamespaceContentRemaining", corev1.ConditionTrue, "Some resources are remaining: configmaps. has 3 resource instances, widgets.widgets.example.com has 1 resource instances")
	written := func(ago time.Duration, fields string) {
		facts.Namespace.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "kube-controller-manager", Subresource: "status", Time: &metav1.Time{Time: now.Add(-ago)},
			FieldsV1: metav1.NewFieldsV1(fields),
		}}
	}
	const own = `{"f:status":{"f:conditions":{"k:{\"type\":\"NamespaceContentRemaining\"}":{}}}}`
	written(10*time.Second, own)
	if got := progressInConditions(facts); got != fmt.Sprintf(evidenceCountDecreased, 3, "configmaps", "10s", 1) {
		t.Errorf("got %q", got)
	}
	written(time.Minute, own)
	if got := progressInConditions(facts); got != "" {
		t.Errorf("with an old condition: got %q", got)
	}
	setCondition(facts, "NamespaceContentRemaining", corev1.ConditionTrue, "Some resources are remaining: configmaps. has 1 resource instances")
	written(10*time.Second, own)
	if got := progressInConditions(facts); got != fmt.Sprintf(evidenceCountChanged, "10s") {
		t.Errorf("with a changed count: got %q", got)
	}
	setCondition(facts, v1alpha1.ConditionDeletionBlocked, corev1.ConditionTrue, "")
	if got := progressInConditions(facts); got != "" {
		t.Errorf("with a blocked namespace: got %q", got)
	}
	setCondition(facts, v1alpha1.ConditionDeletionBlocked, corev1.ConditionFalse, "")
	setCondition(facts, "NamespaceDeletionContentFailure", corev1.ConditionTrue, "port 4711")
	if got := progressInConditions(facts); got != "" {
		t.Errorf("with an error: got %q", got)
	}
	written(10*time.Second, `{"f:status":{"f:conditions":{"k:{\"type\":\"Other\"}":{}}}}`)
	if got := progressInConditions(facts); got != "" {
		t.Errorf("with a write of another condition: got %q", got)
	}
}

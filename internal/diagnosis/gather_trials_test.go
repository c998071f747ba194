// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
)

func TestTrialsLeaveAggregatedServersAlone(t *testing.T) {
	group := schema.GroupVersion{Group: "things.example.com", Version: "v1"}
	aggregated := func(facts *Facts) {
		facts.APIServices = append(facts.APIServices, APIService{Name: "v1.things.example.com", GroupVersion: group})
	}
	content := func(group string) func(*Facts) {
		kept := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "kept", UID: "1"}}
		held := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: "held", UID: "2", DeletionTimestamp: &metav1.Time{Time: now}, Finalizers: []string{"example.com/hold"},
		}}
		return withContent(inventory.Content{
			Type: inventory.Type{
				GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"},
				Kind:                 "Thing", Verbs: []string{"list", "delete", "patch"},
			},
			Objects: []metav1.PartialObjectMetadata{kept, held}, Count: 2,
		})
	}
	for name, test := range map[string]struct {
		facts *Facts
		want  int
	}{
		"kube-apiserver serves it":              {makeDeath(content(group.Group)), 1},
		"another server serves it":              {makeDeath(content(group.Group), aggregated), 0},
		"another server serves something else":  {makeDeath(content("widgets.example.com"), aggregated), 1},
		"who serves it is not known":            {makeDeath(content(group.Group), withUnread(SourceAPIServices)), 0},
		"a group without domain, who is unread": {makeDeath(content("apps"), withUnread(SourceAPIServices)), 1},
		"the core group, who is unread":         {makeDeath(content(""), withUnread(SourceAPIServices)), 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := len(chooseDeletions(test.facts)); got != test.want {
				t.Errorf("%d deletions are tried, want %d", got, test.want)
			}
			if got := len(chooseReleases(test.facts)); got != test.want {
				t.Errorf("%d removals of a finalizer are tried, want %d", got, test.want)
			}
		})
	}
}

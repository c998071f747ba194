// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
)

const (
	// mostComplainants is how many custom resources are read as a whole.
	mostComplainants = 10
	// mostEvents is how many Events of the namespace are read.
	mostEvents = 1000
)

// readComplaints reads what controllers say about the objects that should have gone: in the
// conditions of custom resources, and in Events. A namespace that is being deleted takes no
// new Events, so what there is comes from before or from other namespaces.
func (g *gathering) readComplaints(ctx context.Context) {
	var overdue []item
	for _, i := range g.facts.items() {
		if g.facts.isOverdueItem(i) && len(i.Finalizers) > 0 {
			overdue = append(overdue, i)
		}
	}
	if len(overdue) == 0 {
		return
	}
	reads := []func(){func() { g.readEvents(ctx, overdue) }}
	for _, i := range overdue {
		// Custom resources only: no secret is read for this.
		if slices.Contains(g.facts.DefinitionNames, i.Type.String()) && len(reads) <= mostComplainants {
			reads = append(reads, func() { g.readConditions(ctx, i) })
		}
	}
	sideBySide(reads...)
	g.note(func(facts *Facts) {
		slices.SortFunc(facts.Complaints, func(a, b Complaint) int {
			return cmp.Or(cmp.Compare(a.Type.String(), b.Type.String()), cmp.Compare(a.Name, b.Name),
				cmp.Compare(a.Source, b.Source), cmp.Compare(a.Text, b.Text))
		})
	})
}

func (g *gathering) readConditions(ctx context.Context, of item) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	list, err := g.dynamic.Resource(of.GroupVersionResource).Namespace(of.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, of.Name).String(),
	})
	if err != nil {
		g.missed(Source(of.Type.String()), of.Namespace, err)
		return
	}
	for i := range list.Items {
		complaints := conditionsOf(of, &list.Items[i])
		g.note(func(facts *Facts) { facts.Complaints = append(facts.Complaints, complaints...) })
	}
}

// conditionsOf returns the conditions of an object that have something to say.
func conditionsOf(of item, object *unstructured.Unstructured) []Complaint {
	var complaints []Complaint
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		values, isMap := condition.(map[string]any)
		if !isMap {
			continue
		}
		name, _ := values["type"].(string)
		message, _ := values["message"].(string)
		since, _ := values["lastTransitionTime"].(string)
		at, _ := time.Parse(time.RFC3339, since)
		if message != "" {
			complaints = append(complaints, Complaint{of.Type, of.Name, "condition " + name, message, at})
		}
	}
	return complaints
}

func (g *gathering) readEvents(ctx context.Context, overdue []item) {
	isLeft := slices.ContainsFunc(g.facts.Content, func(content inventory.Content) bool {
		return content.Type.Resource == "events" && content.Count > 0
	})
	if !isLeft {
		return
	}
	list := &corev1.EventList{}
	if !g.list(ctx, SourceEvents, list, inNamespace(g.facts.Namespace.Name), atMost(mostEvents)) {
		return
	}
	var complaints []Complaint
	for i := range list.Items {
		event := &list.Items[i]
		if event.Type != corev1.EventTypeWarning {
			continue
		}
		for _, of := range overdue {
			involved := event.InvolvedObject
			if involved.Kind == of.Kind && involved.Name == of.Name &&
				(involved.UID == "" || involved.UID == of.UID) {
				complaints = append(complaints,
					Complaint{of.Type, of.Name, "Event " + event.Reason, event.Message, lastSeen(event)})
			}
		}
	}
	g.note(func(facts *Facts) { facts.Complaints = append(facts.Complaints, complaints...) })
}

// lastSeen returns when an Event was last seen, by the old API or the new one.
func lastSeen(event *corev1.Event) time.Time {
	switch {
	case event.Series != nil && !event.Series.LastObservedTime.IsZero():
		return event.Series.LastObservedTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	}
	return event.CreationTimestamp.Time
}

// quoteComplaint makes evidence of a complaint.
func quoteComplaint(complaint Complaint) string {
	text := complaint.Source + " of " + complaint.Type.String() + " " + strings.TrimSpace(complaint.Name)
	if !complaint.At.IsZero() {
		text += " at " + stamp(complaint.At)
	}
	return text + ": " + oneLine(complaint.Text)
}

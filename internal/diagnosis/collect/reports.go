// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/knowncontrollers"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

const (
	// maxCustomResources is the maximum number of custom resources that are read as full objects.
	maxCustomResources = 10
	// maxEvents is the maximum number of Events in the namespace that are read.
	maxEvents = 1000
)

// readReports reads the reports of controllers about overdue objects: conditions of
// custom resources, and Events. Events cannot be created in a terminating namespace, but
// controllers can still update the Events that they created before the deletion.
func (c *collection) readReports(ctx context.Context) {
	overdue := slices.DeleteFunc(c.facts.RemainingObjects(), func(object diagnosis.RemainingObject) bool {
		return !c.facts.IsObjectOverdue(object) || len(object.Finalizers) == 0
	})
	if len(overdue) == 0 {
		return
	}
	var group sync.WaitGroup
	group.Go(func() { c.readEvents(ctx, overdue) })
	custom := slices.DeleteFunc(slices.Clone(overdue), func(object diagnosis.RemainingObject) bool {
		return !slices.Contains(c.facts.CRDNames, object.Type.String()) // Secrets must not be read.
	})
	for _, object := range custom[:min(len(custom), maxCustomResources)] {
		group.Go(func() { c.readConditions(ctx, object) })
	}
	group.Wait()
	c.update(func(facts *diagnosis.Facts) {
		sortBy(facts.Reports, func(report diagnosis.Report) []string {
			return []string{report.Type.String(), report.Name, report.Source, report.Text}
		})
	})
}

// operatorReasons are the reasons of Events about writes to the Namespace that the API server rejects.
var operatorReasons = []string{v1alpha1.ReasonWriteRejected, "Template" + v1alpha1.ReasonNotRecorded}

// readRejectedWrites reads the Events about the Namespace, in the namespace default. A user who may not read them gets
// the other facts.
func (c *collection) readRejectedWrites(ctx context.Context) {
	if c.IsPublic {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	list := &corev1.EventList{}
	err := c.client.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), client.Limit(maxEvents),
		client.MatchingFields{"involvedObject.uid": string(c.facts.Namespace.UID)})
	if err != nil {
		if !apierrors.IsForbidden(err) {
			c.addFailure(diagnosis.SourceEvents, metav1.NamespaceDefault, err)
		}
		return
	}
	object := diagnosis.RemainingObject{
		Type:                  diagnosis.NamespaceType,
		PartialObjectMetadata: &metav1.PartialObjectMetadata{ObjectMeta: c.facts.Namespace.ObjectMeta},
	}
	c.update(func(facts *diagnosis.Facts) {
		for i := range list.Items {
			if event := &list.Items[i]; slices.Contains(operatorReasons, event.Reason) {
				facts.RejectedWrites = append(facts.RejectedWrites,
					diagnosis.MakeEventReport(object, event.Reason, event.Message, lastSeen(event)))
			}
		}
		slices.SortStableFunc(facts.RejectedWrites, func(a, b diagnosis.Report) int { return b.At.Compare(a.At) })
	})
}

func (c *collection) readConditions(ctx context.Context, of diagnosis.RemainingObject) {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	list, err := c.dynamic.Resource(of.GroupVersionResource).Namespace(of.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, of.Name).String(),
	})
	if err != nil {
		c.addFailure(diagnosis.Source(of.Type.String()), of.Namespace, err)
		return
	}
	var controllers []*knowncontrollers.Controller
	for _, finalizer := range of.Finalizers {
		if known, ok := owners.Known(finalizer, []diagnosis.RemainingObject{of}); ok && known.Controller != nil {
			controllers = append(controllers, known.Controller)
		}
	}
	for i := range list.Items {
		for _, condition := range conditionsOf(&list.Items[i]) {
			report := diagnosis.MakeConditionReport(of, &condition)
			report.IsFailure = report.IsFailure ||
				slices.ContainsFunc(controllers, func(controller *knowncontrollers.Controller) bool {
					return controller.IsFailure(condition.Type, string(condition.Status))
				})
			c.addReport(report)
		}
		for _, controller := range controllers {
			c.readFields(of, &list.Items[i], controller)
		}
	}
}

// readFields reads the fields of an object that pause its controller, and the fields in which the controller
// reports failures.
func (c *collection) readFields(
	of diagnosis.RemainingObject, object *unstructured.Unstructured, controller *knowncontrollers.Controller,
) {
	for _, pause := range controller.Pauses {
		if value := fieldOf(object, pause.Field); value != "" {
			c.update(func(facts *diagnosis.Facts) {
				facts.Fields[diagnosis.FieldKey{Resource: of.GroupResource(), Name: of.Name, Field: pause.Field}] = value
			})
		}
	}
	for _, failure := range controller.Failures {
		if value := fieldOf(object, failure.Field); value != "" {
			c.addReport(diagnosis.Report{
				Type: of.Type, Name: of.Name, Source: "field " + failure.Field, Text: value, IsFailure: true,
			})
		}
	}
}

// fieldOf returns a field as text, or "" if it is not set.
func fieldOf(object *unstructured.Unstructured, path string) string {
	if path == "" {
		return ""
	}
	value, ok, err := unstructured.NestedFieldNoCopy(object.Object, strings.Split(path, ".")...)
	if !ok || err != nil || value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

func (c *collection) addReport(report diagnosis.Report) {
	if report.Text != "" {
		c.update(func(facts *diagnosis.Facts) { facts.Reports = append(facts.Reports, report) })
	}
}

func (c *collection) readEvents(ctx context.Context, overdue []diagnosis.RemainingObject) {
	isEvent := func(of resourcetypes.Type) bool { return of.Resource == "events" }
	list := &corev1.EventList{}
	if !c.hasContent(isEvent) ||
		!c.list(ctx, diagnosis.SourceEvents, list, client.InNamespace(c.facts.Namespace.Name), client.Limit(maxEvents)) {
		return
	}
	for i := range list.Items {
		event := &list.Items[i]
		if event.Type != corev1.EventTypeWarning {
			continue
		}
		for _, object := range overdue {
			involved := event.InvolvedObject
			if involved.Kind == object.Kind && involved.Name == object.Name &&
				(involved.UID == "" || involved.UID == object.UID) {
				c.addReport(diagnosis.MakeEventReport(object, event.Reason, event.Message, lastSeen(event)))
			}
		}
	}
}

// lastSeen returns when an Event last occurred. It supports the fields of both Event APIs.
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

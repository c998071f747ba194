// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func recordedLabel(value string, isAdopted bool) *template.ObjectState {
	return &template.ObjectState{
		Kind: template.KindLabel, Name: "zone", UID: namespaceUID, Content: template.HashOf(value), Fields: template.HashOf(value),
		IsAdopted: isAdopted,
	}
}

func TestMetadata(t *testing.T) {
	const wanted, set = "a", "SetMetadata zone=a"
	const versioned = "SetMetadata version=3 zone=a"
	conflict := apierrors.NewConflict(schema.GroupResource{}, "ns", errors.New("x"))
	tests := map[string]struct {
		isInitializing bool
		// current is the value of the Namespace; "-" if it has none.
		current  string
		recorded *template.ObjectState
		adopt    v1alpha1.AdoptionPolicy
		value    string
		restored int
		answer   respond

		sent        []string
		writes      []Action
		problem     string
		unconfirmed bool
		isAdopted   bool
	}{
		"new namespace, set by the API server":   {isInitializing: true, current: "a"},
		"new namespace, changed since":           {isInitializing: true, current: "b", sent: []string{set}, writes: []Action{ActionUpdate}},
		"new namespace, removed since":           {isInitializing: true, current: "-", sent: []string{set}, writes: []Action{ActionCreate}},
		"existing namespace without it":          {current: "-", sent: []string{versioned}, writes: []Action{ActionCreate}},
		"existing namespace with the same value": {current: "a", isAdopted: true},
		"existing namespace with another value":  {current: "b", problem: v1alpha1.ReasonConflict},
		"adopts another value":                   {current: "b", adopt: v1alpha1.AdoptAlways, sent: []string{versioned}, writes: []Action{ActionCreate}, isAdopted: true},
		"adopts nothing":                         {current: "a", adopt: v1alpha1.AdoptNever, problem: v1alpha1.ReasonAlreadyExists},
		"an invalid value":                       {current: "-", value: strings.Repeat("a", 64), problem: v1alpha1.ReasonInvalidParameter},
		"as recorded":                            {current: "a", recorded: recordedLabel("a", false)},
		"another value in the template":          {current: "b", recorded: recordedLabel("b", false), sent: []string{versioned}, writes: []Action{ActionUpdate}},
		"adopted, another value in the template": {current: "b", recorded: recordedLabel("b", true), sent: []string{versioned}, writes: []Action{ActionUpdate}, isAdopted: true},
		"changed by another client":              {current: "b", recorded: recordedLabel("a", false), sent: []string{versioned}, writes: []Action{ActionRestore}},
		"removed by another client":              {current: "-", recorded: recordedLabel("a", false), sent: []string{versioned}, writes: []Action{ActionRestore}},
		"changed again and again":                {current: "b", recorded: recordedLabel("a", false), restored: maxRestorations, problem: v1alpha1.ReasonConflict},
		"forbidden":                              {current: "-", answer: failing(SetMetadata, "", apierrors.NewForbidden(schema.GroupResource{}, "ns", errors.New("x"))), sent: []string{versioned}, problem: v1alpha1.ReasonForbidden},
		"the namespace has changed":              {current: "-", answer: failing(SetMetadata, "", conflict), sent: []string{versioned}, unconfirmed: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, state := NewWithT(t), template.Record{}
			namespace := wrappers.MakeNamespace("ns").UID(namespaceUID).ResourceVersion("3")
			if test.current != "-" {
				namespace.Label("zone", test.current)
			}
			if test.isInitializing {
				namespace.Annotation(v1alpha1.AnnotationPendingInitializers, v1alpha1.TemplatesInitializer)
			}
			if test.recorded != nil {
				state["team"] = template.Entry{Revision: "a", Objects: []template.ObjectState{*test.recorded}}
			}
			value := wanted
			if test.value != "" {
				value = test.value
			}
			label := NewMetadata(template.KindLabel, "zone", value, namespace.Obj())
			g.Expect(label.IsMetadata()).To(BeTrue())
			s := snapshotOf(state).with(applied{name: "team", revision: "b", objects: []ObjectSnapshot{label}, change: func(t *v1alpha1.NamespaceTemplate) {
				t.Spec.Sync.AdoptionPolicy = test.adopt
			}})
			s.Namespace = namespace.Obj()
			memory := Memory{NextFullPass: start.Add(time.Hour)}
			for range test.restored {
				memory.Restorations.record(label.Key(), &Observed{}, restorationCheck{isCounted: true, count: memory.Restorations[label.Key()].count}, start)
			}
			outcome, memory, sent := pass(s, memory, test.answer)
			g.Expect(sent).To(Equal(test.sent))
			var writes []Action
			for _, write := range outcome.Writes {
				writes = append(writes, write.Action)
			}
			g.Expect(writes).To(Equal(test.writes))
			switch {
			case test.problem != "":
				g.Expect(reasonsOf(outcome.Templates[0].Problems)).To(Equal([]string{test.problem}))
				return
			case test.unconfirmed:
				g.Expect(outcome.HasFailed()).To(BeFalse())
				g.Expect(outcome.RetryAfter).To(Equal(unconfirmedRetry))
				return
			}
			g.Expect(outcome.State["team"].Objects).To(HaveExactElements(*recordedLabel(wanted, test.isAdopted)))
			g.Expect(outcome.State["team"].Revision).To(Equal("b"))
			restorations := memory.Restorations.checkChanged(label.Key(), v1alpha1.ConflictReport, start).count
			g.Expect(restorations).To(Equal(map[bool]int{true: 1}[len(test.sent) > 0]))
			g.Expect(outcome.Namespace.Labels).To(HaveKeyWithValue("zone", wanted), "it is the Namespace after the change")
			if len(test.sent) > 0 {
				g.Expect(outcome.Namespace.ResourceVersion).To(Equal("9"))
			}
		})
	}
}

// A label that a template no longer sets is removed if its managedFields show that the template has set it.
func TestMetadataRemoval(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "ns", errors.New("x"))
	live := func(manager string, change func(*Response)) respond {
		return func(o Operation) *Response {
			if o.step != findMetadata {
				return nil
			}
			response := answered(o)
			response.Namespace.ResourceVersion = "7"
			response.Namespace.ManagedFields = []metav1.ManagedFieldsEntry{
				entryOf(manager, metav1.ManagedFieldsOperationUpdate, "", `{"f:metadata":{"f:labels":{"f:zone":{}}}}`),
			}
			if change != nil {
				change(response)
			}
			return response
		}
	}
	own := template.FieldManager("team")
	const confirmed, removed = "Confirm team", "SetMetadata version=7 zone=-"
	for name, test := range map[string]struct {
		isAbsent bool
		answer   respond
		sent     []string
		remains  bool
		kept     int
	}{
		"set by the template":   {answer: live(own, nil), sent: []string{confirmed, confirmed, removed}},
		"absent":                {isAbsent: true, sent: []string{confirmed}},
		"set by another client": {answer: live("kubectl", nil), sent: []string{confirmed, confirmed}, kept: 1},
		"another namespace":     {answer: live(own, func(r *Response) { r.Namespace.UID = "x" }), sent: []string{confirmed, confirmed}, remains: true},
		"it cannot be read":     {answer: live(own, func(r *Response) { r.Err = errors.New("x") }), sent: []string{confirmed, confirmed}, remains: true},
		"the namespace has changed": {answer: func(o Operation) *Response {
			if o.step == setMetadata {
				return &Response{Err: conflict}
			}
			return live(own, nil)(o)
		}, sent: []string{confirmed, confirmed, removed}, remains: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, namespace := NewWithT(t), wrappers.MakeNamespace("ns").UID(namespaceUID)
			if !test.isAbsent {
				namespace.Label("zone", "a")
			}
			s := snapshotOf(template.Record{"team": {Revision: "a", Objects: []template.ObjectState{*recordedLabel("a", false)}}}).
				with(applied{name: "team", revision: "b"})
			s.Namespace = namespace.Obj()
			outcome, _, sent := pass(s, Memory{NextFullPass: start.Add(time.Hour)}, test.answer)
			g.Expect(sent).To(Equal(test.sent))
			g.Expect(outcome.Kept).To(HaveLen(test.kept))
			g.Expect(outcome.State["team"].Objects).To(HaveLen(map[bool]int{true: 1}[test.remains]))
		})
	}
}

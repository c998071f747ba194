// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// step is a template in a pass.
type step struct {
	name string
	// change changes the template.
	change func(*v1alpha1.NamespaceTemplate)
	// revision is what the Namespace gets. The latest is "b".
	revision string
	objects  []render.Object
	// latest are the names of the objects in the latest revision.
	latest []string
	// err is why it is unknown what the template contains, and failing is an object that cannot be applied.
	err     error
	failing string
}

// rendered returns rendered ConfigMaps.
func rendered(names ...string) []render.Object {
	var objects []render.Object
	for _, name := range names {
		objects = append(objects, render.Object{Name: name, Manifest: wantConfigMap(name, "").Manifest})
	}
	return objects
}

func contentsOf(names ...string) Contents {
	contents := Contents{}
	for _, name := range names {
		contents[wantConfigMap(name, "").Key()] = struct{}{}
	}
	return contents
}

// runPass performs a pass in which all requests succeed except those for failing objects, and returns the names of the
// applied and of the deleted objects.
func runPass(p *Pass, deselected []v1alpha1.NamespaceTemplate, steps ...step) (result Result, applied, deleted []string) {
	templates := deselected
	for _, s := range steps {
		tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: s.name, UID: types.UID(s.name)}}
		tmpl.Spec.Sync.AdoptionPolicy = v1alpha1.AdoptNever
		if s.change != nil {
			s.change(tmpl)
		}
		templates = append(templates, *tmpl)
		selected := p.Add(tmpl)
		if s.err != nil {
			p.Keep(selected)
			continue
		}
		var names []string
		for _, object := range s.objects {
			names = append(names, object.Name)
		}
		if !p.SetRevision(selected, s.revision, "b", contentsOf(s.latest...)) {
			continue
		}
		if err := p.Contain(selected, contentsOf(names...), nil, s.objects); err != nil {
			p.Keep(selected)
			continue
		}
		for _, object := range selected.Objects {
			if object.Err == nil {
				object.Err = p.Decide(selected, object, nil)
			}
		}
	}
	for i, selected := range p.Selected {
		for _, object := range selected.Objects {
			switch {
			case object.Err == nil && object.Name == steps[i].failing:
				object.Err = errors.New("x")
				selected.AddProblem(object.Name, template.Problemf(v1alpha1.ReasonForbidden, "x"))
			case object.Err == nil:
				applied = append(applied, selected.Template.Name+"/"+object.Name)
				state := recordedConfigMap(object.Name)
				state.Content = object.Content
				object.Recorded = &state
			}
		}
	}
	removals := p.Removals(templates)
	for _, removal := range removals {
		for _, object := range removal.Objects {
			deleted = append(deleted, removal.Template.Name+"/"+object.Name)
			p.Removed(removal, object, "", nil)
		}
	}
	return p.Conclude(templates, removals, time.Hour, p.Now), applied, deleted
}

// describe returns the revision, the target and the objects of each template in a state.
func describe(state template.State) []string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(state)) {
		text := fmt.Sprintf("%s %s>%s", name, state[name].Revision, state[name].Target)
		var names []string
		for _, object := range state[name].Objects {
			names = append(names, object.Name)
		}
		slices.Sort(names)
		texts = append(texts, fmt.Sprint(text, names))
	}
	return texts
}

func TestPass(t *testing.T) {
	once := func(t *v1alpha1.NamespaceTemplate) { t.Spec.Sync.Mode = v1alpha1.SyncOnce }
	retain := func(t *v1alpha1.NamespaceTemplate) {
		t.Spec.ObjectRetentionPolicy.WhenRemoved = v1alpha1.RetentionRetain
	}
	adopted := recordedConfigMap("adopted")
	adopted.IsAdopted = true
	recorded := func(revision string, objects ...template.ObjectState) template.Entry {
		return template.Entry{Revision: revision, Objects: objects}
	}
	one, two := recordedConfigMap("one"), recordedConfigMap("two")
	state := template.State{"a": recorded("a", one, two)}
	late := rendered("late")
	late[0].When = v1alpha1.NamespaceStateInitialized
	var many []string
	for i := range template.MaxObjects {
		many = append(many, strconv.Itoa(i))
	}
	unknown := errors.New("x")
	tests := map[string]struct {
		state          template.State
		isInitializing bool
		steps          []step
		applied        []string
		deleted        []string
		want           []string
		// kept has the number of objects that are no longer recorded and that the operator has not created.
		kept int
		// problems are the reasons in the outcomes.
		problems []string
	}{
		"a new template":                       {steps: []step{{name: "a", revision: "b", objects: rendered("one")}}, applied: []string{"a/one"}, want: []string{"a b>[one]"}},
		"an object is removed":                 {state: state, steps: []step{{name: "a", revision: "b", objects: rendered("one")}}, applied: []string{"a/one"}, deleted: []string{"a/two"}, want: []string{"a b>[one]"}},
		"all objects are removed":              {state: state, steps: []step{{name: "a", revision: "b"}}, want: []string{"a b>[one two]"}},
		"an object is removed, Retain":         {state: state, steps: []step{{name: "a", revision: "b", objects: rendered("one"), change: retain}}, applied: []string{"a/one"}, want: []string{"a b>[one]"}},
		"an adopted object is removed":         {state: template.State{"a": recorded("a", one, adopted)}, steps: []step{{name: "a", revision: "b", objects: rendered("one")}}, applied: []string{"a/one"}, want: []string{"a b>[one]"}, kept: 1},
		"an object fails":                      {state: state, steps: []step{{name: "a", revision: "b", objects: rendered("one", "new"), failing: "new"}}, applied: []string{"a/one"}, want: []string{"a a>b[one two]"}, problems: []string{v1alpha1.ReasonForbidden}},
		"it is unknown what it contains":       {state: state, steps: []step{{name: "a", err: unknown}}, want: []string{"a a>[one two]"}},
		"another one is unknown":               {state: state, steps: []step{{name: "a", revision: "b", objects: rendered("one")}, {name: "c", err: unknown}}, applied: []string{"a/one"}, want: []string{"a b>[one two]"}},
		"an object moves":                      {state: state, steps: []step{{name: "a", revision: "b", objects: rendered("one")}, {name: "c", revision: "b", objects: rendered("two")}}, applied: []string{"a/one", "c/two"}, want: []string{"a b>[one]", "c b>[two]"}},
		"an object moves later":                {state: state, steps: []step{{name: "a", revision: "b", objects: rendered("one")}, {name: "c", revision: "a", objects: rendered("x"), latest: []string{"two"}}}, applied: []string{"a/one", "c/x"}, want: []string{"a b>[one two]", "c a>[x]"}},
		"two contain an object":                {steps: []step{{name: "a", revision: "b", objects: rendered("one")}, {name: "c", revision: "b", objects: rendered("one", "two")}}, applied: []string{"a/one", "c/two"}, want: []string{"a b>[one]", "c b>[two]"}, problems: []string{v1alpha1.ReasonClaimedByTemplate, v1alpha1.ReasonClaimedByTemplate}},
		"too many objects":                     {state: state, steps: []step{{name: "a", revision: "b", objects: rendered(append(many, "one")...)}}, want: []string{"a a>[one two]"}},
		"too many objects of both":             {state: state, steps: []step{{name: "a", revision: "b", objects: rendered("one")}, {name: "c", revision: "b", objects: rendered(many...)}}, applied: []string{"a/one"}, want: []string{"a b>[one two]"}},
		"Once, applied":                        {state: state, steps: []step{{name: "a", revision: "b", objects: rendered("new"), change: once}}, want: []string{"a a>[one two]"}},
		"Once, not applied":                    {steps: []step{{name: "a", revision: "b", objects: rendered("new"), change: once}}, applied: []string{"a/new"}, want: []string{"a b>[new]"}},
		"no revision yet":                      {state: state, steps: []step{{name: "a"}}, want: []string{"a a>[one two]"}},
		"created when initialized":             {steps: []step{{name: "a", revision: "b", objects: append(rendered("one"), late...)}}, applied: []string{"a/one", "a/late"}, want: []string{"a b>[late one]"}},
		"created when initialized, before":     {isInitializing: true, steps: []step{{name: "a", revision: "b", objects: append(rendered("one"), late...)}}, applied: []string{"a/one"}, want: []string{"a >b[one]"}},
		"an unknown one has had an object":     {state: template.State{"c": recorded("a", one)}, steps: []step{{name: "a", revision: "b", objects: rendered("two")}, {name: "c", err: unknown}}, applied: []string{"a/two"}, want: []string{"a b>[two]", "c a>[one]"}},
		"an unknown one that had it is second": {state: template.State{"c": recorded("a", one)}, steps: []step{{name: "a", revision: "b", objects: rendered("one", "two")}, {name: "c", err: unknown}}, applied: []string{"a/one", "a/two"}, want: []string{"a b>[one two]", "c a>[one]"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, p := NewWithT(t), newPass(test.state)
			if p.IsInitializing = test.isInitializing; !p.IsInitializing {
				p.Begin(nil, time.Hour)
			}
			result, applied, deleted := runPass(p, nil, test.steps...)
			g.Expect(applied).To(Equal(test.applied))
			g.Expect(deleted).To(Equal(test.deleted))
			g.Expect(describe(result.State)).To(Equal(test.want))
			g.Expect(result.Kept).To(HaveLen(test.kept))
			var problems []string
			for _, found := range ProblemsOf(result.Templates) {
				problems = append(problems, found.Reason)
			}
			g.Expect(problems).To(Equal(test.problems))
			g.Expect(result.Templates).To(HaveLen(len(test.steps)))
		})
	}
}

// A template that no longer applies to a Namespace is removed after a delay, because some clients remove labels for a
// moment.
func TestDeselectedTemplates(t *testing.T) {
	one, two := recordedConfigMap("one"), recordedConfigMap("two")
	tests := map[string]struct {
		selected, deleted v1alpha1.RetentionPolicy
		isDeleted         bool
		// absence is the time since the template was selected.
		absence time.Duration
		steps   []step
		removed []string
		want    []string
		retry   bool
	}{
		"at first":                     {selected: v1alpha1.RetentionDelete, want: []string{"deselected a>[one two]"}, retry: true},
		"after the delay":              {selected: v1alpha1.RetentionDelete, absence: time.Hour, removed: []string{"deselected/one", "deselected/two"}},
		"after the delay, Retain":      {selected: v1alpha1.RetentionRetain, absence: time.Hour},
		"deleted":                      {deleted: v1alpha1.RetentionDelete, isDeleted: true, removed: []string{"deselected/one", "deselected/two"}},
		"deleted, Retain":              {selected: v1alpha1.RetentionDelete, deleted: v1alpha1.RetentionRetain, isDeleted: true},
		"an object moves":              {selected: v1alpha1.RetentionDelete, absence: time.Hour, steps: []step{{name: "a", revision: "b", objects: rendered("one")}}, removed: []string{"deselected/two"}, want: []string{"a b>[one]"}},
		"an object moves later":        {selected: v1alpha1.RetentionDelete, absence: time.Hour, steps: []step{{name: "a", latest: []string{"one"}}}, removed: []string{"deselected/two"}, want: []string{"deselected a>[one]"}},
		"another template is unknown":  {selected: v1alpha1.RetentionDelete, absence: time.Hour, steps: []step{{name: "a", err: errors.New("x")}}, want: []string{"deselected a>[one two]"}},
		"unknown, but nothing deletes": {selected: v1alpha1.RetentionRetain, absence: time.Hour, steps: []step{{name: "a", err: errors.New("x")}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, p := NewWithT(t), newPass(template.State{"deselected": {Revision: "a", Objects: []template.ObjectState{one, two}}})
			tmpl := v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "deselected", UID: "deselected"}}
			tmpl.Spec.ObjectRetentionPolicy = v1alpha1.TemplateObjectRetentionPolicy{WhenDeselected: test.selected, WhenDeleted: test.deleted}
			if test.isDeleted {
				tmpl.DeletionTimestamp = &metav1.Time{Time: p.Now}
			}
			p.Memory.Absences = Absences{absenceKey{template: "deselected"}: p.Now.Add(-test.absence)}
			result, _, removed := runPass(p, []v1alpha1.NamespaceTemplate{tmpl}, test.steps...)
			g.Expect(removed).To(Equal(test.removed))
			g.Expect(describe(result.State)).To(Equal(test.want))
			g.Expect(result.Deselected).To(Equal([]types.UID{"deselected"}))
			if test.retry {
				g.Expect(result.RetryAfter).To(Equal(initialization.DeregistrationDelay))
			}
		})
	}
}

// What was not deleted remains recorded.
func TestRemoved(t *testing.T) {
	tests := map[string]struct {
		reason string
		err    error
		// isForgotten is true if the object was not processed.
		isForgotten bool
		want        []string
		kept        int
		problems    int
		retry       time.Duration
	}{
		"deleted":     {want: []string{"a b>[two]"}},
		"kept":        {reason: keptRecreated, want: []string{"a b>[two]"}, kept: 1},
		"unconfirmed": {err: fmt.Errorf("x: %w", ErrUnconfirmed), want: []string{"a a>b[one two]"}, retry: UnconfirmedRetry},
		"forgotten":   {isForgotten: true, want: []string{"a a>b[one two]"}},
		"failed":      {err: errors.New("x"), want: []string{"a a>b[one two]"}, problems: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, p := NewWithT(t), newPass(template.State{"a": {Revision: "a", Objects: []template.ObjectState{recordedConfigMap("one")}}})
			tmpl := v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			selected := p.Add(&tmpl)
			g.Expect(p.SetRevision(selected, "b", "b", nil)).To(BeTrue())
			g.Expect(p.Contain(selected, contentsOf("two"), nil, rendered("two"))).To(Succeed())
			state := recordedConfigMap("two")
			state.Content = selected.Objects[0].Content
			selected.Objects[0].Recorded = &state
			removals := p.Removals([]v1alpha1.NamespaceTemplate{tmpl})
			g.Expect(removals[0].Objects).To(HaveLen(1))
			if !test.isForgotten {
				p.Removed(removals[0], removals[0].Objects[0], test.reason, test.err)
			}
			result := p.Conclude(nil, removals, time.Hour, p.Now)
			g.Expect(describe(result.State)).To(Equal(test.want))
			g.Expect(result.Kept).To(HaveLen(test.kept))
			g.Expect(result.Templates[0].Problems).To(HaveLen(test.problems))
			g.Expect(result.RetryAfter).To(Equal(test.retry))
		})
	}
}

// A new Namespace waits for a template with which it was created and whose label is absent for a moment.
func TestAwaitSelection(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("ns").Initializers(v1alpha1.TemplatesInitializer).
		Annotation(v1alpha1.AnnotationSelectedTemplates, "a").Obj()
	memory, start := &Memory{}, time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	templates := []v1alpha1.NamespaceTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "other"}}}
	result := NewPass(memory, namespace, nil, start).Conclude(templates, nil, time.Hour, start)
	g.Expect(result.Blocking()).To(HaveField("Reason", v1alpha1.ReasonNotSelected))
	g.Expect(result.Templates).To(ConsistOf(HaveField("IsInitializing", true)))
	result = NewPass(memory, namespace, nil, start.Add(initialization.DeregistrationDelay)).Conclude(templates, nil, time.Hour, start)
	g.Expect(result.Templates).To(BeEmpty())
}

// A new Namespace waits for an object about which the cache is stale.
func TestUnconfirmed(t *testing.T) {
	for _, isInitializing := range []bool{false, true} {
		g, p := NewWithT(t), newPass(nil)
		p.IsInitializing = isInitializing
		selected := p.Add(&v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		object := wantConfigMap("one", "")
		object.Err = ErrUnconfirmed
		p.Unconfirmed(selected, object)
		result := p.Conclude(nil, nil, time.Hour, p.Now)
		g.Expect(result.Blocking() != nil).To(Equal(isInitializing))
		g.Expect(result.HasFailed()).To(BeFalse())
		g.Expect(result.RetryAfter).To(Equal(UnconfirmedRetry))
	}
}

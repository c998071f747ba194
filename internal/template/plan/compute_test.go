// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// applied is a template in a snapshot.
type applied struct {
	name string
	// change changes the template.
	change func(*v1alpha1.NamespaceTemplate)
	// revision is what the Namespace gets. The latest is "b".
	revision string
	objects  []ObjectSnapshot
	// latest are the names of the objects in the latest revision.
	latest    []string
	isPartial bool
	// err is why it is unknown what the template contains.
	err error
}

func objects(names ...string) (found []ObjectSnapshot) {
	for _, name := range names {
		found = append(found, *wantConfigMap(name, "new"))
	}
	return found
}

func contentsOf(names ...string) Contents {
	contents := Contents{}
	for _, name := range names {
		contents[wantConfigMap(name, "").Key()] = struct{}{}
	}
	return contents
}

// with adds templates to a snapshot.
func (s Snapshot) with(all ...applied) Snapshot {
	for _, a := range all {
		tmpl := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: a.name, UID: types.UID(a.name)}}
		if a.change != nil {
			a.change(tmpl)
		}
		var names []string
		for i := range a.objects {
			names = append(names, a.objects[i].Name)
		}
		s.Templates = append(s.Templates, *tmpl)
		s.Applicable = append(s.Applicable, TemplateSnapshot{
			Template: tmpl, Choice: Choice{Revision: a.revision, Current: a.revision}, Latest: "b", LatestContents: contentsOf(a.latest...),
			Contents: contentsOf(names...), Objects: a.objects, IsPartial: a.isPartial, Unknown: a.err,
		})
	}
	return s
}

// namesIn returns the names in requests that write.
func namesIn(sent []string, verb Verb) (names []string) {
	for _, text := range sent {
		if words := strings.Fields(text); words[0] == string(verb) && !slices.Contains(words, "dry") {
			names = append(names, words[1])
		}
	}
	return names
}

func initializing(s Snapshot) Snapshot {
	s.Namespace.Annotations = map[string]string{v1alpha1.AnnotationPendingInitializers: v1alpha1.TemplatesInitializer}
	return s
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
	state := template.Record{"a": recorded("a", one, two)}
	var many []string
	for i := range template.MaxObjects {
		many = append(many, strconv.Itoa(i))
	}
	unknown := errors.New("x")
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "new", errors.New("x"))
	claimed := []string{v1alpha1.ReasonClaimedByTemplate, v1alpha1.ReasonClaimedByTemplate}
	tests := map[string]struct {
		state          template.Record
		isInitializing bool
		templates      []applied
		answer         respond
		applied        []string
		deleted        []string
		want           []string
		// kept has the number of objects that are no longer recorded and that the operator has not created.
		kept int
		// problems are the reasons in the outcomes.
		problems []string
	}{
		"a new template":                              {templates: []applied{{name: "a", revision: "b", objects: objects("one")}}, applied: []string{"one"}, want: []string{"a b>[one]"}},
		"an object is removed":                        {state: state, templates: []applied{{name: "a", revision: "b", objects: objects("one")}}, applied: []string{"one"}, deleted: []string{"two"}, want: []string{"a b>[one]"}},
		"all objects are removed":                     {state: state, templates: []applied{{name: "a", revision: "b"}}, want: []string{"a b>[one two]"}},
		"an object is removed, Retain":                {state: state, templates: []applied{{name: "a", revision: "b", objects: objects("one"), change: retain}}, applied: []string{"one"}, want: []string{"a b>[one]"}},
		"an adopted object is removed":                {state: template.Record{"a": recorded("a", one, adopted)}, templates: []applied{{name: "a", revision: "b", objects: objects("one")}}, applied: []string{"one"}, want: []string{"a b>[one]"}, kept: 1},
		"an adopted object is removed, another fails": {state: template.Record{"a": recorded("a", one, adopted)}, answer: failing(Apply, "one", forbidden), templates: []applied{{name: "a", revision: "b", objects: objects("one")}}, applied: []string{"one"}, want: []string{"a a>b[adopted one]"}, problems: []string{v1alpha1.ReasonForbidden}},
		"an object fails":                             {state: state, answer: failing(Apply, "new", forbidden), templates: []applied{{name: "a", revision: "b", objects: objects("one", "new")}}, applied: []string{"one", "new"}, want: []string{"a a>b[one two]"}, problems: []string{v1alpha1.ReasonForbidden}},
		"it is unknown what it contains":              {state: state, templates: []applied{{name: "a", err: unknown}}, want: []string{"a a>[one two]"}, problems: []string{v1alpha1.ReasonApplyFailed}},
		"another one is unknown":                      {state: state, templates: []applied{{name: "a", revision: "b", objects: objects("one")}, {name: "c", err: unknown}}, applied: []string{"one"}, want: []string{"a b>[one two]"}, problems: []string{v1alpha1.ReasonApplyFailed}},
		"an object moves":                             {state: state, templates: []applied{{name: "a", revision: "b", objects: objects("one")}, {name: "c", revision: "b", objects: objects("two")}}, applied: []string{"one", "two"}, want: []string{"a b>[one]", "c b>[two]"}},
		"an object moves later":                       {state: state, templates: []applied{{name: "a", revision: "b", objects: objects("one")}, {name: "c", revision: "a", objects: objects("x"), latest: []string{"two"}}}, applied: []string{"one", "x"}, want: []string{"a b>[one two]", "c a>[x]"}},
		"two contain an object":                       {templates: []applied{{name: "a", revision: "b", objects: objects("one")}, {name: "c", revision: "b", objects: objects("one", "two")}}, applied: []string{"one", "two"}, want: []string{"a b>[one]", "c b>[two]"}, problems: claimed},
		"too many objects":                            {state: state, templates: []applied{{name: "a", revision: "b", objects: objects(append(many, "one")...)}}, want: []string{"a a>[one two]"}, problems: []string{v1alpha1.ReasonTooManyObjects}},
		"too many objects of both":                    {state: state, templates: []applied{{name: "a", revision: "b", objects: objects("one")}, {name: "c", revision: "b", objects: objects(many...)}}, applied: []string{"one"}, want: []string{"a b>[one two]"}, problems: []string{v1alpha1.ReasonTooManyObjects}},
		"Once, applied":                               {state: state, templates: []applied{{name: "a", revision: "b", change: once}}, want: []string{"a a>[one two]"}},
		"Once, not applied":                           {templates: []applied{{name: "a", revision: "b", objects: objects("new"), change: once}}, applied: []string{"new"}, want: []string{"a b>[new]"}},
		"no revision yet":                             {state: state, templates: []applied{{name: "a"}}, want: []string{"a a>[one two]"}},
		"created when initialized, before":            {isInitializing: true, templates: []applied{{name: "a", revision: "b", objects: objects("one"), isPartial: true}}, applied: []string{"one"}, want: []string{"a >b[one]"}},
		"an unknown one has had an object":            {state: template.Record{"c": recorded("a", one)}, templates: []applied{{name: "a", revision: "b", objects: objects("two")}, {name: "c", err: unknown}}, applied: []string{"two"}, want: []string{"a b>[two]", "c a>[one]"}, problems: []string{v1alpha1.ReasonApplyFailed}},
		"an unknown one that had it is second":        {state: template.Record{"c": recorded("a", one)}, templates: []applied{{name: "a", revision: "b", objects: objects("one", "two")}, {name: "c", err: unknown}}, applied: []string{"one", "two"}, want: []string{"a b>[one two]", "c a>[one]"}, problems: []string{v1alpha1.ReasonApplyFailed}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), snapshotOf(test.state)
			if test.isInitializing {
				s = initializing(s)
			}
			outcome, _, sent := pass(s.with(test.templates...), Memory{}, test.answer)
			g.Expect(namesIn(sent, Apply)).To(Equal(test.applied))
			g.Expect(namesIn(sent, Delete)).To(Equal(test.deleted))
			g.Expect(describeState(outcome.State)).To(Equal(test.want))
			g.Expect(outcome.Kept).To(HaveLen(test.kept))
			g.Expect(reasonsOf(ProblemsOf(outcome.Templates))).To(Equal(test.problems))
			g.Expect(outcome.Templates).To(HaveLen(len(test.templates)))
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
		absence   time.Duration
		templates []applied
		removed   []string
		want      []string
		retry     bool
	}{
		"at first":                     {selected: v1alpha1.RetentionDelete, want: []string{"deselected a>[one two]"}, retry: true},
		"after the delay":              {selected: v1alpha1.RetentionDelete, absence: time.Hour, removed: []string{"one", "two"}},
		"after the delay, Retain":      {selected: v1alpha1.RetentionRetain, absence: time.Hour},
		"deleted":                      {deleted: v1alpha1.RetentionDelete, isDeleted: true, removed: []string{"one", "two"}},
		"deleted, Retain":              {selected: v1alpha1.RetentionDelete, deleted: v1alpha1.RetentionRetain, isDeleted: true},
		"an object moves":              {selected: v1alpha1.RetentionDelete, absence: time.Hour, templates: []applied{{name: "a", revision: "b", objects: objects("one")}}, removed: []string{"two"}, want: []string{"a b>[one]"}},
		"an object moves later":        {selected: v1alpha1.RetentionDelete, absence: time.Hour, templates: []applied{{name: "a", latest: []string{"one"}}}, removed: []string{"two"}, want: []string{"deselected a>[one]"}},
		"another template is unknown":  {selected: v1alpha1.RetentionDelete, absence: time.Hour, templates: []applied{{name: "a", err: errors.New("x")}}, want: []string{"deselected a>[one two]"}},
		"unknown, but nothing deletes": {selected: v1alpha1.RetentionRetain, absence: time.Hour, templates: []applied{{name: "a", err: errors.New("x")}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, s := NewWithT(t), snapshotOf(template.Record{"deselected": {Revision: "a", Objects: []template.ObjectState{one, two}}})
			tmpl := v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "deselected", UID: "deselected"}}
			tmpl.Spec.ObjectRetentionPolicy = v1alpha1.TemplateObjectRetentionPolicy{WhenDeselected: test.selected, WhenDeleted: test.deleted}
			if test.isDeleted {
				tmpl.DeletionTimestamp = &metav1.Time{Time: s.Now}
			}
			s.Templates = append(s.Templates, tmpl)
			memory := Memory{Absences: Absences{absenceKey{template: "deselected"}: s.Now.Add(-test.absence)}}
			outcome, _, sent := pass(s.with(test.templates...), memory, nil)
			g.Expect(namesIn(sent, Delete)).To(Equal(test.removed))
			g.Expect(describeState(outcome.State)).To(Equal(test.want))
			g.Expect(outcome.Deselected).To(Equal([]types.UID{"deselected"}))
			if test.retry {
				g.Expect(outcome.RetryAfter).To(Equal(initialization.DeregistrationDelay))
			}
		})
	}
}

// An object is deleted after its template was applied, and after the API server has confirmed the decision. What was
// not deleted remains recorded.
func TestRemovals(t *testing.T) {
	recorded := template.Record{"a": {Revision: "a", Objects: []template.ObjectState{recordedConfigMap("one")}}}
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "one")
	answerTo := func(verb Verb, response Response) respond {
		return func(o Operation) *Response {
			if o.Request.Verb == verb && o.Request.Name != "two" {
				return &response
			}
			return nil
		}
	}
	confirmedAfter := func(change func(*Response)) respond {
		return func(o Operation) *Response {
			if o.Request.Verb != Confirm {
				return nil
			}
			response := answered(o)
			change(response)
			return response
		}
	}
	unserved := template.Problemf(v1alpha1.ReasonKindNotFound, "x")
	served := func(isServed bool, err error) respond {
		return func(o Operation) *Response {
			switch {
			case o.Request.Verb == Find && o.Request.Name == "one":
				return &Response{Err: unserved}
			case o.Request.Verb == Discover:
				return &Response{IsServed: isServed, Err: err}
			}
			return nil
		}
	}
	const find, del = "Find one removal", "Delete one uid=object-uid version=5"
	tests := map[string]struct {
		answer   respond
		sent     []string
		want     []string
		kept     int
		problems int
		retry    time.Duration
	}{
		"deleted":                        {sent: []string{find, del}, want: []string{"a b>[two]"}},
		"without a version":              {answer: answerTo(Find, Response{Metadata: metadataOfObject("one", "a", objectUID, func(m *metav1.PartialObjectMetadata) { m.ResourceVersion = "" })}), sent: []string{find, "Delete one uid=object-uid"}, want: []string{"a b>[two]"}},
		"does not exist":                 {answer: answerTo(Find, Response{}), sent: []string{find}, want: []string{"a b>[two]"}},
		"recreated by another client":    {answer: answerTo(Find, Response{Metadata: metadataOfObject("one", "a", "other")}), sent: []string{find}, want: []string{"a b>[two]"}, kept: 1},
		"without the mark":               {answer: answerTo(Find, Response{Metadata: metadataOfObject("one", "x", objectUID)}), sent: []string{find}, want: []string{"a b>[two]"}, kept: 1},
		"changed meanwhile":              {answer: answerTo(Delete, Response{Err: apierrors.NewConflict(schema.GroupResource{}, "one", errors.New("x"))}), sent: []string{find, del}, want: []string{"a a>b[one two]"}, retry: unconfirmedRetry},
		"being deleted":                  {answer: answerTo(Delete, Response{}), sent: []string{find, del}, want: []string{"a a>b[one two]"}, problems: 1},
		"the deletion fails":             {answer: answerTo(Delete, Response{Err: errors.New("x")}), sent: []string{find, del}, want: []string{"a a>b[one two]"}, problems: 1},
		"it cannot be found":             {answer: answerTo(Find, Response{Err: errors.New("x")}), sent: []string{find}, want: []string{"a a>b[one two]"}, problems: 1},
		"the kind is not served":         {answer: served(false, nil), sent: []string{find, "Discover"}, want: []string{"a b>[two]"}},
		"the kind is served":             {answer: served(true, nil), sent: []string{find, "Discover"}, want: []string{"a a>b[one two]"}, retry: unconfirmedRetry},
		"the kind is unknown":            {answer: served(false, errors.New("x")), sent: []string{find, "Discover"}, want: []string{"a a>b[one two]"}, problems: 1},
		"the template was not applied":   {answer: failing(Apply, "two", notFound), want: []string{"a a>b[one]"}, problems: 1},
		"the confirmation fails":         {answer: failing(Confirm, "", errors.New("x")), want: []string{"a a>b[one two]"}, problems: 1},
		"another template":               {answer: confirmedAfter(func(r *Response) { r.Template.UID = "x" }), want: []string{"a a>b[one two]"}, retry: unconfirmedRetry},
		"a changed template":             {answer: confirmedAfter(func(r *Response) { r.Template.Generation++ }), want: []string{"a a>b[one two]"}, retry: unconfirmedRetry},
		"another namespace":              {answer: confirmedAfter(func(r *Response) { r.Namespace.UID = "x" }), want: []string{"a a>b[one two]"}, retry: unconfirmedRetry},
		"other labels":                   {answer: confirmedAfter(func(r *Response) { r.Namespace.Labels = map[string]string{"a": "b"} }), want: []string{"a a>b[one two]"}, retry: unconfirmedRetry},
		"other annotations":              {answer: confirmedAfter(func(r *Response) { r.Namespace.Annotations = map[string]string{"a": "b"} }), want: []string{"a a>b[one two]"}, retry: unconfirmedRetry},
		"the namespace is being deleted": {answer: confirmedAfter(func(r *Response) { r.Namespace.DeletionTimestamp = &metav1.Time{Time: start} }), want: []string{"a a>b[one two]"}, retry: unconfirmedRetry},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := snapshotOf(recorded).with(applied{name: "a", revision: "b", objects: objects("two")})
			outcome, _, sent := pass(s, Memory{NextFullPass: start.Add(time.Hour)}, test.answer)
			want := []string{"Find two", "Apply two"}
			if name != "the template was not applied" {
				want = append(want, "Confirm a")
			}
			g.Expect(sent).To(Equal(append(want, test.sent...)))
			g.Expect(describeState(outcome.State)).To(Equal(test.want))
			g.Expect(outcome.Kept).To(HaveLen(test.kept))
			g.Expect(outcome.Templates[0].Problems).To(HaveLen(test.problems))
			if test.retry != 0 {
				g.Expect(outcome.RetryAfter).To(Equal(test.retry))
			}
		})
	}
}

// A new Namespace waits for a template with which it was created and whose label is absent for a moment.
func TestAwaitSelection(t *testing.T) {
	g, s := NewWithT(t), snapshotOf(nil)
	s.Namespace = wrappers.MakeNamespace("ns").Initializers(v1alpha1.TemplatesInitializer).
		Annotation(v1alpha1.AnnotationSelectedTemplates, "a").Obj()
	s.Templates = []v1alpha1.NamespaceTemplate{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "other"}}}
	outcome, memory, _ := pass(s, Memory{}, nil)
	g.Expect(outcome.WaitsFor()).To(HaveField("Reason", v1alpha1.ReasonNotSelected))
	g.Expect(outcome.Templates).To(ConsistOf(HaveField("IsInitializing", true)))
	s.Now = start.Add(initialization.DeregistrationDelay)
	outcome, _, _ = pass(s, memory, nil)
	g.Expect(outcome.Templates).To(BeEmpty())
}

// Users who change an object all the time must neither hide that it is not applied or deleted, nor stop a rollout. A
// new Namespace waits for the object.
func TestUnconfirmed(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("x"))
	recorded := template.Record{"a": {Revision: "a", Objects: []template.ObjectState{recordedConfigMap("old")}}}
	shared := objects("config")
	shared[0].Current = &Observed{UID: objectUID, NamespaceUID: namespaceUID, Fields: "fields", IsShared: true}
	recorded["a"].Objects[0].Name = "config"
	answer := func(o Operation) *Response {
		switch o.step {
		case find:
			return &Response{Metadata: metadataOfObject("config", "a", objectUID, withSharedFields)}
		case previewClaims:
			return &Response{Metadata: metadataOfObject("config", "a", objectUID), Object: o.manifest()}
		case setManagers:
			return &Response{Err: conflict}
		}
		return nil
	}
	g, memory := NewWithT(t), Memory{NextFullPass: start.Add(24 * time.Hour)}
	for at, isProblem := range map[time.Duration]bool{0: false, unconfirmedTimeout - time.Second: false, unconfirmedTimeout: true} {
		s := snapshotOf(recorded).with(applied{name: "a", revision: "b", objects: shared})
		s.Now = start.Add(at)
		memory.Unconfirmed = map[template.ObjectKey]time.Time{shared[0].Key(): start}
		outcome, next, sent := pass(s, memory, answer)
		g.Expect(sent).To(HaveExactElements("Find config", "Apply config dry forced", "SetManagers config version=5"))
		g.Expect(outcome.RetryAfter).To(Equal(unconfirmedRetry))
		g.Expect(outcome.HasFailed()).To(Equal(isProblem))
		g.Expect(next.Unconfirmed).To(HaveLen(1))
		for _, found := range outcome.Templates[0].Problems {
			g.Expect(found.IsLocal()).To(BeTrue())
		}
		outcome, _, _ = pass(initializing(s), memory, answer)
		g.Expect(outcome.WaitsFor()).NotTo(BeNil())
		g.Expect(outcome.HasFailed()).To(BeFalse())
		_, next, _ = pass(s, memory, nil)
		g.Expect(next.Unconfirmed).To(BeEmpty(), "then the time starts again")
	}
}

// Nothing is decided while a watch has just started.
func TestUnsynced(t *testing.T) {
	g := NewWithT(t)
	unsynced := objects("one")
	unsynced[0].Unknown = template.NotSyncedUnless(false, "ConfigMap")
	s := snapshotOf(nil).with(applied{name: "a", revision: "b", objects: unsynced}, applied{name: "b", revision: "b", objects: objects("two")})
	outcome, memory, sent := pass(s, Memory{}, nil)
	g.Expect(sent).To(BeEmpty())
	g.Expect(outcome.RetryAfter).To(Equal(SyncRetry))
	g.Expect(Compute(s, Memory{}).Unsynced).To(MatchError(template.ErrNotSynced))
	s.Now = start.Add(syncTimeout)
	outcome, memory, sent = pass(s, memory, nil)
	g.Expect(sent).To(ContainElement("Apply two"), "then it is a problem of the template, and other templates are applied")
	g.Expect(reasonsOf(outcome.Templates[0].Problems)).To(Equal([]string{v1alpha1.ReasonWatchNotSynced}))
	g.Expect(memory.UnsyncedSince).To(Equal(start))
	s.Applicable[0].Objects = objects("one")
	_, memory, _ = pass(s, memory, nil)
	g.Expect(memory.UnsyncedSince).To(BeZero())
	s.Refusal = &metav1.Status{Message: "x"}
	outcome, _, sent = pass(s, memory, nil)
	g.Expect(sent).To(BeEmpty())
	g.Expect(outcome.Refusal).To(Equal(s.Refusal))
}

// The execution stops when the Namespace is being deleted. What it has created is remembered.
func TestStoppedExecution(t *testing.T) {
	g, s := NewWithT(t), snapshotOf(nil).with(applied{name: "a", revision: "b", objects: objects("one", "two")})
	p := Compute(s, Memory{})
	results, _ := execute(p, nil)
	outcome, memory := Conclude(p, results[:1])
	g.Expect(memory.Created).To(HaveLen(1))
	g.Expect(describeState(outcome.State)).To(Equal([]string{"a >b[one]"}))
	g.Expect(memory.Recorded().Created).To(BeEmpty())
}

// Plans and memories are values.
func TestComputeChangesNothing(t *testing.T) {
	g := NewWithT(t)
	s := snapshotOf(template.Record{"a": {Revision: "a", Objects: []template.ObjectState{recordedConfigMap("one"), recordedConfigMap("old")}}}).
		with(applied{name: "a", revision: "b", objects: objects("one", "two")})
	memory := Memory{}
	p := Compute(s, memory)
	g.Expect(memory).To(Equal(Memory{}))
	g.Expect(Compute(s, memory)).To(Equal(p))
	results, _ := execute(p, nil)
	outcome, next := Conclude(p, results)
	again, nextAgain := Conclude(p, results)
	g.Expect(again).To(Equal(outcome))
	g.Expect(nextAgain).To(Equal(next))
	g.Expect(next.Created).To(HaveLen(2))
	g.Expect(s.State["a"].Objects).To(HaveLen(2))
}

// A full pass compares objects although their managedFields show no change.
func TestFullPass(t *testing.T) {
	recorded := recordedConfigMap("one")
	same := *wantConfigMap("one", "content")
	same.Current = &Observed{UID: objectUID, Fields: "fields"}
	crowded := same
	crowded.Current = &Observed{UID: objectUID, Fields: "fields", IsCrowded: true}
	preview := func(change func(*Operation, *Response)) respond {
		return func(o Operation) *Response {
			if o.step != compare && o.step != compareLive {
				return nil
			}
			response := answered(o)
			if change != nil {
				change(&o, response)
			}
			return response
		}
	}
	differ := func(o *Operation, r *Response) {
		if o.step == compareLive {
			r.Object.Object["data"] = "other"
		}
	}
	for name, test := range map[string]struct {
		object      ObjectSnapshot
		isDifferent bool
		isNotDue    bool
		answer      respond
		sent        []string
		failed      bool
	}{
		"not due":                            {object: same, isNotDue: true},
		"not due, but it has differed":       {object: same, isNotDue: true, isDifferent: true, answer: preview(func(_ *Operation, r *Response) { r.Object.SetLabels(nil) }), sent: []string{"Apply one dry forced", "Read one"}},
		"the same":                           {object: same, answer: preview(nil), sent: []string{"Apply one dry forced", "Read one"}},
		"changed":                            {object: same, answer: preview(differ), sent: []string{"Apply one dry forced", "Read one", "Apply one forced"}},
		"admission does not change it now":   {object: same, isDifferent: true, answer: preview(nil), sent: []string{"Apply one dry forced", "Apply one forced"}},
		"crowded":                            {object: crowded, sent: []string{"Find one", "Apply one forced"}},
		"the preview fails":                  {object: same, answer: failing(Apply, "one", errors.New("x")), sent: []string{"Apply one dry forced"}, failed: true},
		"the object cannot be read":          {object: same, answer: failing(Read, "one", errors.New("x")), sent: []string{"Apply one dry forced", "Read one"}, failed: true},
		"the managedFields are the recorded": {object: same, answer: preview(func(_ *Operation, r *Response) { r.Metadata.ManagedFields = nil }), sent: []string{"Apply one dry forced"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			state := recorded
			state.IsDifferent = test.isDifferent
			if name == "the managedFields are the recorded" {
				state.Fields, test.object.Current = "", &Observed{UID: objectUID}
			}
			s := snapshotOf(template.Record{"a": {Revision: "b", Objects: []template.ObjectState{state}}}).
				with(applied{name: "a", revision: "b", objects: []ObjectSnapshot{test.object}})
			memory := Memory{NextFullPass: start}
			if test.isNotDue {
				memory.NextFullPass = start.Add(time.Minute)
			}
			outcome, memory, sent := pass(s, memory, test.answer)
			g.Expect(sent).To(Equal(test.sent))
			g.Expect(outcome.HasFailed()).To(Equal(test.failed))
			if !test.isNotDue {
				g.Expect(memory.NextFullPass).To(Equal(start.Add(time.Hour)))
				g.Expect(outcome.RetryAfter).To(BeNumerically(">", 0))
			}
		})
	}
}

// A Namespace does not count as updated to what it does not record.
func TestNotRecorded(t *testing.T) {
	g := NewWithT(t)
	unchanged, changed := template.Entry{Revision: "b"}, template.Entry{Revision: "b", Objects: []template.ObjectState{recordedConfigMap("config")}}
	namespace := wrappers.MakeNamespace("ns").Annotation(v1alpha1.AnnotationAppliedTemplates,
		template.Record{"unchanged": unchanged, "changed": {Revision: "a"}}.String()).Obj()
	outcome := Outcome{
		State:     template.Record{"unchanged": unchanged, "changed": changed},
		Templates: []TemplateOutcome{{Template: "changed", Revision: "b"}, {Template: "unchanged"}},
		Kept:      []template.Problem{{Reason: v1alpha1.ReasonObjectRetained}},
	}
	outcome.NotRecorded(namespace, errors.New("x"))
	g.Expect(outcome.Templates[0].Problems).To(HaveExactElements(template.Problem{Template: "changed", Reason: v1alpha1.ReasonNotRecorded, Message: "x"}))
	g.Expect(outcome.Templates[1].Problems).To(BeEmpty())
	g.Expect(outcome.Kept).To(BeEmpty(), "they are still recorded")
}

func TestFullPasses(t *testing.T) {
	g := NewWithT(t)
	var m Memory
	const interval = time.Hour
	first := m.untilNextFullPass("uid", interval, start)
	g.Expect(first).To(And(BeNumerically(">", 0), BeNumerically("<=", interval)))
	g.Expect(m.untilNextFullPass("uid", interval, start.Add(first))).To(BeZero())
	g.Expect(m.untilNextFullPass("uid", interval, start.Add(2*interval))).To(BeZero(), "a pass that failed is repeated")
	m.NextFullPass = start.Add(interval)
	g.Expect(m.untilNextFullPass("uid", interval, start.Add(time.Minute))).To(Equal(interval - time.Minute))
	offsets := map[time.Duration]bool{}
	for i := range 100 {
		offsets[spread(types.UID(strconv.Itoa(i)), interval).Truncate(interval/10)] = true
	}
	g.Expect(offsets).To(HaveLen(10), "the passes over Namespaces are not at the same time")
}

func TestUnneeded(t *testing.T) {
	one, two := recordedConfigMap("one"), recordedConfigMap("two")
	recorded := template.Entry{Objects: []template.ObjectState{one, two}}
	otherVersion, otherGroup := wantConfigMap("two", ""), wantConfigMap("two", "")
	otherVersion.Manifest.SetAPIVersion("v2")
	otherGroup.Manifest.SetAPIVersion("test.example.com/v1")
	for name, test := range map[string]struct {
		want []*ObjectSnapshot
		// claimed is an object of another template.
		claimed string
		result  []template.ObjectState
	}{
		"all wanted":          {want: []*ObjectSnapshot{wantConfigMap("one", ""), wantConfigMap("two", "")}},
		"one wanted":          {want: []*ObjectSnapshot{wantConfigMap("one", "")}, result: []template.ObjectState{two}},
		"none wanted":         {result: []template.ObjectState{one, two}},
		"claimed":             {want: []*ObjectSnapshot{wantConfigMap("one", "")}, claimed: "two"},
		"another API version": {want: []*ObjectSnapshot{wantConfigMap("one", ""), otherVersion}},
		"another API group":   {want: []*ObjectSnapshot{wantConfigMap("one", ""), otherGroup}, result: []template.ObjectState{two}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Plan{claims: map[template.ObjectKey]int{wantConfigMap(test.claimed, "").Key(): 0}}
			for _, o := range test.want {
				p.claims[o.Key()] = 1
			}
			NewWithT(t).Expect(p.unneeded(recorded)).To(Equal(test.result))
		})
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package cases

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Verb is how a request writes a Namespace.
type Verb string

// The verbs of the cases. MergePatch removes keys with null.
const (
	Put        Verb = "PUT"
	MergePatch Verb = "PATCH"
	Status     Verb = "PUT status"
	Finalize   Verb = "PUT finalize"
)

// Update is a request that changes a Namespace.
type Update struct {
	// Start is the name of the Namespace before the request.
	Start string
	// Verbs are the ways to send the request; the default is Put and MergePatch.
	Verbs []Verb
	User  string
	// Change is what the client changes.
	Change func(*corev1.Namespace)
	// Want changes the Namespace before the request into the result; nil if it is unchanged.
	Want func(*corev1.Namespace)
	// Refused is whether the guard policy rejects the result.
	Refused bool
}

// Expected returns the result of the update of a Namespace.
func (u *Update) Expected(before *corev1.Namespace) *corev1.Namespace {
	expected := before.DeepCopy()
	if u.Want != nil {
		u.Want(expected)
	}
	return expected
}

const (
	// Failure is the result of a failed initialization.
	Failure = `{"status":"Failure","message":"<{no}>","details":{"name":"x"}}`
	record  = `{"templates":"<record>"}`
	locking = `{"a":{"lockedLabels":"absent,color"},"b":{"lockedLabels":"size,blank","lockedAnnotations":"note,empty"}}`
	// forgedTurn would make the initializer "all" time out.
	forgedTurn = "all" + domain + " 2020-01-01T00:00:00Z"
)

// The names of the namespaces before updates.
const (
	StartFresh     = "fresh"
	StartTemplated = "templated"
	StartFailed    = "failed"
	StartCompleted = "completed"
	StartPlain     = "plain"
	// StartTurn records the start of the turn of an initializer with a deadline.
	StartTurn = "turn"
	// StartLocked records that a template locks the label and the annotation of the user.
	StartLocked = "locked"
	// Users can create the following states only while no policy is installed.
	StartBlank       = "blank"
	StartEmptyResult = "empty-result"
	StartUnlabeled   = "unlabeled"
	StartStaleLabel  = "stale-label"
)

// ownLabels and ownAnnotations are those of the user in every Namespace at the start.
var ownLabels, ownAnnotations = pairs{"color": "red"}, pairs{"note": "x"}

func start(name string, labels, annotations pairs) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: merge(ownLabels, labels), Annotations: merge(ownAnnotations, annotations),
	}}
}

// Namespace is how a Namespace before updates is made.
type Namespace struct {
	// Request is the one that the ordinary user creates.
	Request *corev1.Namespace
	// Change is what the user who may initialize namespaces then changes, or the operator if it is a record.
	Change   func(*corev1.Namespace)
	IsRecord bool
}

// Reachable returns the Namespaces before updates that users can create.
func Reachable() map[string]Namespace {
	protected := pairs{v1alpha1.LabelDeletionProtection: ""}
	return map[string]Namespace{
		StartFresh: {Request: start(StartFresh, nil, nil)},
		StartTemplated: {
			Request: start(StartTemplated, pairs{v1alpha1.LabelTemplate: chosen}, nil),
			Change:  annotate(v1alpha1.AnnotationAppliedTemplates, record), IsRecord: true,
		},
		StartFailed: {
			Request: start(StartFailed, protected, nil),
			Change:  annotate(v1alpha1.AnnotationInitializationResult, Failure),
		},
		StartCompleted: {Request: start(StartCompleted, nil, nil), Change: complete},
		StartLocked: {
			Request: start(StartLocked, pairs{"other": "x", "size": "s", "blank": ""}, pairs{"empty": ""}),
			Change:  annotate(v1alpha1.AnnotationAppliedTemplates, locking), IsRecord: true,
		},
		StartTurn: {Request: start(StartTurn, pairs{limited: ""}, nil)},
		// The API server and config/default create other exempt namespaces.
		StartPlain: {Request: start("kube-node-lease", nil, nil)},
	}
}

// Starts returns the Namespaces before updates by name, without what the API server adds.
func Starts() map[string]*corev1.Namespace {
	starts := map[string]*corev1.Namespace{
		StartFresh: start(StartFresh, initializing(nil), state(Ordinary, usual)),
		StartTemplated: start(StartTemplated, initializing(pairs{v1alpha1.LabelTemplate: chosen}),
			state(Ordinary, "all not-a templates no-team not-shop named", selectedTemplates(chosen),
				parameters("size", "small", "region", "eu"),
				pairs{v1alpha1.AnnotationAppliedTemplates: record})),
		StartLocked: start(StartLocked, initializing(pairs{"other": "x", "size": "s", "blank": ""}), state(Ordinary, usual,
			pairs{v1alpha1.AnnotationAppliedTemplates: locking, "empty": ""})),
		StartFailed: start(StartFailed, initializing(pairs{v1alpha1.LabelDeletionProtection: ""}),
			state(Ordinary, usual+" protected", pairs{v1alpha1.AnnotationInitializationResult: Failure})),
		StartTurn: start(StartTurn, initializing(pairs{limited: ""}), state(Ordinary, limited+" "+usual,
			pairs{v1alpha1.AnnotationTurnStartedAt: limited + domain + " 2026-03-01T12:00:00Z"})),
		StartPlain:       start("kube-node-lease", nil, nil),
		StartCompleted:   start(StartCompleted, initializing(nil), state(Ordinary, usual)),
		StartBlank:       start(StartBlank, initializing(nil), state(Ordinary, usual)),
		StartEmptyResult: start(StartEmptyResult, initializing(nil), state(Ordinary, usual)),
		StartUnlabeled:   start(StartUnlabeled, nil, state(Ordinary, usual)),
		StartStaleLabel:  start(StartStaleLabel, initializing(nil), nil),
	}
	remove(v1alpha1.AnnotationPendingInitializers, v1alpha1.LabelInitializing)(starts[StartCompleted])
	annotate(v1alpha1.AnnotationPendingInitializers, " ,\t\n,\r\f")(starts[StartBlank])
	annotate(v1alpha1.AnnotationInitializationResult, "")(starts[StartEmptyResult])
	return starts
}

type change = func(*corev1.Namespace)

func all(changes ...change) change {
	return func(namespace *corev1.Namespace) {
		for _, change := range changes {
			change(namespace)
		}
	}
}

func annotate(key, value string) change {
	return func(namespace *corev1.Namespace) {
		namespace.Annotations = merge(namespace.Annotations, pairs{key: value})
	}
}

func relabel(key, value string) change {
	return func(namespace *corev1.Namespace) { namespace.Labels = merge(namespace.Labels, pairs{key: value}) }
}

// remove removes labels and annotations.
func remove(keys ...string) change {
	return func(namespace *corev1.Namespace) {
		for _, key := range keys {
			delete(namespace.Labels, key)
			delete(namespace.Annotations, key)
		}
	}
}

var (
	withoutAnnotations = func(namespace *corev1.Namespace) { namespace.Annotations = nil }
	withoutLabels      = func(namespace *corev1.Namespace) { namespace.Labels = nil }
	emptyMaps          = func(namespace *corev1.Namespace) { namespace.Labels, namespace.Annotations = pairs{}, pairs{} }
	withoutOwn         = remove("note", "color", v1alpha1.LabelTemplate, v1alpha1.LabelDeletionProtection,
		v1alpha1.PrefixParameter+"size", v1alpha1.PrefixParameter+"region")
	stateless = remove(v1alpha1.LabelInitializing, v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationInitializers,
		v1alpha1.AnnotationRequestedBy, v1alpha1.AnnotationInitializationResult)
	emptyList = annotate(v1alpha1.AnnotationPendingInitializers, "")
	noState   = remove(v1alpha1.LabelInitializing, v1alpha1.AnnotationPendingInitializers)
	complete  = all(emptyList)
	setList   = func(names string) change { return annotate(v1alpha1.AnnotationPendingInitializers, pending(names)) }
	setTurn   = func(value string) change { return annotate(v1alpha1.AnnotationTurnStartedAt, value) }
	noTurn    = remove(v1alpha1.AnnotationTurnStartedAt)
	setRecord = func(value string) change { return annotate(v1alpha1.AnnotationAppliedTemplates, value) }
	setResult = func(value string) change { return annotate(v1alpha1.AnnotationInitializationResult, value) }
)

// Updates returns the cases by description.
func Updates() map[string]Update {
	ordinary := func(start string, change, want change) Update {
		return Update{Start: start, User: Ordinary, Change: change, Want: want}
	}
	refused := func(start string, change, want change) Update {
		return Update{Start: start, User: Ordinary, Change: change, Want: want, Refused: true}
	}
	initializer := func(start string, change, want change) Update {
		return Update{Start: start, User: Initializer, Change: change, Want: want}
	}
	invalid := func(start string, change, want change) Update {
		return Update{Start: start, User: Initializer, Change: change, Want: want, Refused: true}
	}
	by := func(update Update, verbs ...Verb) Update {
		update.Verbs = verbs
		return update
	}
	short := pending("not-a no-team not-shop named")
	cases := map[string]Update{
		// Keys that a write omits.
		"without annotations":      ordinary(StartFresh, withoutAnnotations, remove("note")),
		"without labels":           ordinary(StartFresh, withoutLabels, remove("color")),
		"without both":             ordinary(StartFresh, all(withoutLabels, withoutAnnotations), withoutOwn),
		"empty maps":               ordinary(StartFresh, emptyMaps, withoutOwn),
		"without the list":         ordinary(StartFresh, remove(v1alpha1.AnnotationPendingInitializers), nil),
		"without the label":        ordinary(StartFresh, remove(v1alpha1.LabelInitializing), nil),
		"without the initializers": ordinary(StartFresh, remove(v1alpha1.AnnotationInitializers), nil),
		"without the requester":    ordinary(StartFresh, remove(v1alpha1.AnnotationRequestedBy), nil),
		"without the list, with a new label": ordinary(StartFresh,
			all(noState, relabel("size", "xl"), annotate("note", "y")), all(relabel("size", "xl"), annotate("note", "y"))),
		"only a new label":                        ordinary(StartFresh, relabel("a", "b"), relabel("a", "b")),
		"nothing":                                 ordinary(StartFresh, all(), nil),
		"without anything, by an initializer":     initializer(StartFresh, emptyMaps, withoutOwn),
		"without the list, by an initializer":     initializer(StartFresh, noState, nil),
		"without anything, templated":             ordinary(StartTemplated, emptyMaps, withoutOwn),
		"without selected templates":              ordinary(StartTemplated, remove(v1alpha1.AnnotationSelectedTemplates), nil),
		"without the record of templates":         ordinary(StartTemplated, remove(v1alpha1.AnnotationAppliedTemplates), nil),
		"without anything, failed":                ordinary(StartFailed, emptyMaps, withoutOwn),
		"without the result":                      ordinary(StartFailed, remove(v1alpha1.AnnotationInitializationResult), nil),
		"without anything, completed":             ordinary(StartCompleted, emptyMaps, withoutOwn),
		"without the initializers, completed":     ordinary(StartCompleted, remove(v1alpha1.AnnotationInitializers), nil),
		"without anything, not initialized":       ordinary(StartPlain, emptyMaps, withoutOwn),
		"without anything, by status":             by(ordinary(StartFresh, emptyMaps, withoutOwn), Status),
		"without anything, by finalize":           by(ordinary(StartFresh, stateless, nil), Finalize),
		"without anything, completed, by status":  by(ordinary(StartCompleted, emptyMaps, withoutOwn), Status),
		"without anything, failed, by finalize":   by(ordinary(StartFailed, stateless, nil), Finalize),
		"without anything, templated, by status":  by(ordinary(StartTemplated, emptyMaps, withoutOwn), Status),
		"another label, completed, initializer":   initializer(StartCompleted, relabel("a", "b"), relabel("a", "b")),
		"without anything, completed initializer": initializer(StartCompleted, emptyMaps, withoutOwn),

		// Writes that the guard policy rejects.
		"empties the list":                   refused(StartFresh, emptyList, emptyList),
		"empties the list without the label": refused(StartFresh, all(remove(v1alpha1.LabelInitializing), emptyList), emptyList),
		"empties the list, by status":        by(refused(StartFresh, emptyList, emptyList), Status),
		"empties the list, by finalize":      by(refused(StartFresh, emptyList, emptyList), Finalize),
		"a blank list":                       refused(StartFresh, annotate(v1alpha1.AnnotationPendingInitializers, " "), annotate(v1alpha1.AnnotationPendingInitializers, " ")),
		"shortens the list": refused(StartFresh,
			annotate(v1alpha1.AnnotationPendingInitializers, short), annotate(v1alpha1.AnnotationPendingInitializers, short)),
		"another label value":         refused(StartFresh, relabel(v1alpha1.LabelInitializing, "false"), relabel(v1alpha1.LabelInitializing, "false")),
		"an empty label value":        refused(StartFresh, relabel(v1alpha1.LabelInitializing, ""), relabel(v1alpha1.LabelInitializing, "")),
		"another requester":           refused(StartFresh, annotate(v1alpha1.AnnotationRequestedBy, "x"), annotate(v1alpha1.AnnotationRequestedBy, "x")),
		"an empty requester":          refused(StartFresh, annotate(v1alpha1.AnnotationRequestedBy, ""), annotate(v1alpha1.AnnotationRequestedBy, "")),
		"empty initializers":          refused(StartFresh, annotate(v1alpha1.AnnotationInitializers, ""), annotate(v1alpha1.AnnotationInitializers, "")),
		"empty selected templates":    refused(StartTemplated, annotate(v1alpha1.AnnotationSelectedTemplates, ""), annotate(v1alpha1.AnnotationSelectedTemplates, "")),
		"sets a result":               refused(StartFresh, setResult(Failure), setResult(Failure)),
		"empties the result":          refused(StartFailed, setResult(""), remove(v1alpha1.AnnotationInitializationResult)),
		"empties the list, failed":    refused(StartFailed, emptyList, emptyList),
		"empties the record":          refused(StartTemplated, annotate(v1alpha1.AnnotationAppliedTemplates, ""), remove(v1alpha1.AnnotationAppliedTemplates)),
		"a list, completed":           refused(StartCompleted, annotate(v1alpha1.AnnotationPendingInitializers, "x"), annotate(v1alpha1.AnnotationPendingInitializers, "x")),
		"a label, completed":          refused(StartCompleted, relabel(v1alpha1.LabelInitializing, "true"), relabel(v1alpha1.LabelInitializing, "true")),
		"a list, not initialized":     refused(StartPlain, annotate(v1alpha1.AnnotationPendingInitializers, "x"), annotate(v1alpha1.AnnotationPendingInitializers, "x")),
		"an empty list and no more":   refused(StartFresh, all(emptyMaps, emptyList), all(withoutOwn, emptyList)),
		"a requester, no initializer": refused(StartPlain, annotate(v1alpha1.AnnotationRequestedBy, "x"), annotate(v1alpha1.AnnotationRequestedBy, "x")),

		// Completion.
		"completes":                             initializer(StartFresh, emptyList, noState),
		"completes without the label":           initializer(StartFresh, all(remove(v1alpha1.LabelInitializing), emptyList), noState),
		"completes without labels":              initializer(StartFresh, all(withoutLabels, emptyList), all(noState, remove("color"))),
		"completes without other annotations":   initializer(StartFresh, all(withoutAnnotations, emptyList), all(noState, remove("note"))),
		"completes and changes labels":          initializer(StartFresh, all(emptyList, relabel("a", "b")), all(noState, relabel("a", "b"))),
		"completes by status":                   by(initializer(StartFresh, emptyList, noState), Status),
		"completes by finalize":                 by(initializer(StartFresh, emptyList, noState), Finalize),
		"completes, templated":                  initializer(StartTemplated, emptyList, noState),
		"completes and empties the record":      invalid(StartTemplated, all(emptyList, annotate(v1alpha1.AnnotationAppliedTemplates, "")), all(noState, remove(v1alpha1.AnnotationAppliedTemplates))),
		"completes with a result that succeeds": initializer(StartFresh, all(emptyList, setResult(`{"status":"Success"}`)), noState),
		"completes with a nested failure":       initializer(StartFresh, all(emptyList, setResult(`{"details":{"status":"Failure"}}`)), noState),
		"completes with an empty result":        initializer(StartFresh, all(emptyList, setResult("")), noState),
		"completes with a failure":              invalid(StartFresh, all(emptyList, setResult(Failure)), all(emptyList, setResult(Failure))),
		"completes, failed":                     invalid(StartFailed, emptyList, emptyList),
		"completes without the result, failed": invalid(StartFailed,
			all(emptyList, remove(v1alpha1.AnnotationInitializationResult)), emptyList),
		"completes with an empty result, failed": initializer(StartFailed, all(emptyList, setResult("")),
			all(noState, remove(v1alpha1.AnnotationInitializationResult))),
		"completes again":                ordinary(StartCompleted, emptyList, nil),
		"completes again, initializer":   initializer(StartCompleted, emptyList, nil),
		"completes again by status":      by(initializer(StartCompleted, emptyList, nil), Status),
		"empties both again":             ordinary(StartCompleted, all(emptyList, setResult("")), nil),
		"completes, not initialized":     ordinary(StartPlain, emptyList, nil),
		"shortens the list, initializer": initializer(StartFresh, annotate(v1alpha1.AnnotationPendingInitializers, short), annotate(v1alpha1.AnnotationPendingInitializers, short)),
		"shortens the list without the label": initializer(StartFresh,
			all(remove(v1alpha1.LabelInitializing), annotate(v1alpha1.AnnotationPendingInitializers, short)),
			annotate(v1alpha1.AnnotationPendingInitializers, short)),
		"a blank list, initializer":        invalid(StartFresh, annotate(v1alpha1.AnnotationPendingInitializers, " "), annotate(v1alpha1.AnnotationPendingInitializers, " ")),
		"extends the list, initializer":    invalid(StartFresh, setList(usual+" x"), setList(usual+" x")),
		"reorders the list, initializer":   invalid(StartFresh, setList("not-a all no-team not-shop named"), setList("not-a all no-team not-shop named")),
		"duplicates an entry, initializer": invalid(StartFresh, setList("all all no-team not-shop named"), setList("all all no-team not-shop named")),
		"another requester, initializer":   invalid(StartFresh, annotate(v1alpha1.AnnotationRequestedBy, "x"), annotate(v1alpha1.AnnotationRequestedBy, "x")),
		"empty initializers, initializer":  invalid(StartFresh, annotate(v1alpha1.AnnotationInitializers, ""), annotate(v1alpha1.AnnotationInitializers, "")),
		"sets a result, initializer":       initializer(StartFresh, setResult(Failure), setResult(Failure)),
		"empties the result, failed":       initializer(StartFailed, setResult(""), remove(v1alpha1.AnnotationInitializationResult)),
		"replaces the result, failed":      initializer(StartFailed, setResult("{}"), setResult("{}")),
		"empties the record, initializer": invalid(StartTemplated,
			annotate(v1alpha1.AnnotationAppliedTemplates, ""), remove(v1alpha1.AnnotationAppliedTemplates)),
		"another record, initializer":              invalid(StartTemplated, setRecord("{}"), setRecord("{}")),
		"another record, initializer, by status":   by(invalid(StartTemplated, setRecord("{}"), setRecord("{}")), Status),
		"another record, initializer, by finalize": by(invalid(StartTemplated, setRecord("{}"), setRecord("{}")), Finalize),
		"a record, initializer":                    invalid(StartFresh, setRecord("{}"), setRecord("{}")),
		"a record, completed, initializer":         invalid(StartCompleted, setRecord("{}"), setRecord("{}")),
		"a record, not initialized, initializer":   invalid(StartPlain, setRecord("{}"), setRecord("{}")),
		"an empty record, not templated":           initializer(StartFresh, annotate(v1alpha1.AnnotationAppliedTemplates, ""), nil),
		"an empty record, ordinary":                ordinary(StartFresh, annotate(v1alpha1.AnnotationAppliedTemplates, ""), nil),
		"an empty record and no list": ordinary(StartFresh,
			all(noState, annotate(v1alpha1.AnnotationAppliedTemplates, "")), nil),

		// The start of the turn.
		"without anything, in a turn":                    ordinary(StartTurn, emptyMaps, all(withoutOwn, remove(limited))),
		"without the turn":                               ordinary(StartTurn, noTurn, nil),
		"without the turn, by status":                    by(ordinary(StartTurn, noTurn, nil), Status),
		"without the turn, by finalize":                  by(ordinary(StartTurn, noTurn, nil), Finalize),
		"without the turn, by an initializer":            initializer(StartTurn, noTurn, nil),
		"empties the turn":                               refused(StartTurn, setTurn(""), noTurn),
		"empties the turn, initializer":                  invalid(StartTurn, setTurn(""), noTurn),
		"another turn":                                   refused(StartTurn, setTurn(forgedTurn), setTurn(forgedTurn)),
		"another turn, initializer":                      invalid(StartTurn, setTurn(forgedTurn), setTurn(forgedTurn)),
		"another turn, initializer, by status":           by(invalid(StartTurn, setTurn(forgedTurn), setTurn(forgedTurn)), Status),
		"a turn, without a deadline":                     refused(StartFresh, setTurn(forgedTurn), setTurn(forgedTurn)),
		"a turn, without a deadline, initializer":        invalid(StartFresh, setTurn(forgedTurn), setTurn(forgedTurn)),
		"a turn, completed":                              ordinary(StartCompleted, setTurn(forgedTurn), nil),
		"a turn, not initialized":                        ordinary(StartPlain, setTurn(forgedTurn), nil),
		"ends the turn":                                  initializer(StartTurn, setList(usual), all(setList(usual), noTurn)),
		"ends the turn, by status":                       by(initializer(StartTurn, setList(usual), all(setList(usual), noTurn)), Status),
		"ends the turn, by finalize":                     by(initializer(StartTurn, setList(usual), all(setList(usual), noTurn)), Finalize),
		"ends the turn and leaves it out":                initializer(StartTurn, all(setList(usual), noTurn), all(setList(usual), noTurn)),
		"ends the turn and empties it":                   initializer(StartTurn, all(setList(usual), setTurn("")), all(setList(usual), noTurn)),
		"ends the turn and sets the record":              invalid(StartTurn, all(setList(usual), setRecord("{}")), all(setList(usual), noTurn, setRecord("{}"))),
		"ends the turn and starts the next":              invalid(StartTurn, all(setList(usual), setTurn(forgedTurn)), all(setList(usual), setTurn(forgedTurn))),
		"ends the turn, ordinary":                        refused(StartTurn, setList(usual), all(setList(usual), noTurn)),
		"shortens the list, in a turn":                   initializer(StartTurn, setList(limited+" all not-a"), setList(limited+" all not-a")),
		"shortens the list without the turn":             initializer(StartTurn, all(setList(limited+" all not-a"), noTurn), setList(limited+" all not-a")),
		"completes, in a turn":                           initializer(StartTurn, emptyList, all(noState, noTurn)),
		"completes by status, in a turn":                 by(initializer(StartTurn, emptyList, all(noState, noTurn)), Status),
		"completes without the turn":                     initializer(StartTurn, all(emptyList, noTurn), all(noState, noTurn)),
		"completes and sets the turn":                    invalid(StartTurn, all(emptyList, setTurn(forgedTurn)), all(noState, setTurn(forgedTurn))),
		"completes without a deadline and sets the turn": invalid(StartFresh, all(emptyList, setTurn(forgedTurn)), all(noState, setTurn(forgedTurn))),

		"an older record, and another annotation, completed": ordinary(StartCompleted,
			all(annotate(v1alpha1.AnnotationAppliedTemplates, "{}"), annotate("note", "y")), annotate("note", "y")),
		"an empty record, completed":       ordinary(StartCompleted, annotate(v1alpha1.AnnotationAppliedTemplates, ""), nil),
		"an empty record, not initialized": ordinary(StartPlain, setRecord(""), nil),

		// Keys that templates lock.
		"without labels, locked":             ordinary(StartLocked, withoutLabels, remove("other")),
		"without annotations, locked":        ordinary(StartLocked, withoutAnnotations, nil),
		"without both, locked":               ordinary(StartLocked, all(withoutLabels, withoutAnnotations), remove("other")),
		"without both, locked, initializer":  initializer(StartLocked, emptyMaps, remove("other")),
		"without both, locked, by status":    by(ordinary(StartLocked, emptyMaps, remove("other")), Status),
		"without locked keys":                ordinary(StartLocked, remove("color", "size", "note", "blank", "empty"), nil),
		"without locked keys, by finalize":   by(ordinary(StartLocked, remove("color", "note"), nil), Finalize),
		"other values of locked keys":        ordinary(StartLocked, all(relabel("color", "b"), annotate("note", "b")), all(relabel("color", "b"), annotate("note", "b"))),
		"empties locked keys":                ordinary(StartLocked, all(relabel("size", ""), annotate("note", "")), all(relabel("size", ""), annotate("note", ""))),
		"without locked keys and the record": ordinary(StartLocked, remove("color", "note", v1alpha1.AnnotationAppliedTemplates), nil),
		"completes without labels, locked":   initializer(StartLocked, all(withoutLabels, emptyList), all(noState, remove("other"))),

		"an empty result":                      ordinary(StartCompleted, setResult(""), nil),
		"an empty result, not initialized":     ordinary(StartPlain, setResult(""), nil),
		"an empty result, without locked keys": ordinary(StartLocked, all(setResult(""), remove("color")), nil),

		// States that users create while no policy is installed.
		"without anything, blank list":   ordinary(StartBlank, emptyMaps, all(withoutOwn, noState)),
		"completes, blank list":          initializer(StartBlank, emptyList, remove(v1alpha1.AnnotationPendingInitializers)),
		"without the list, empty result": ordinary(StartEmptyResult, noState, remove(v1alpha1.AnnotationInitializationResult)),
		"completes, empty result":        initializer(StartEmptyResult, emptyList, all(noState, remove(v1alpha1.AnnotationInitializationResult))),
		"without anything, unlabeled":    ordinary(StartUnlabeled, emptyMaps, withoutOwn),
		"completes, unlabeled":           initializer(StartUnlabeled, emptyList, noState),
		"without anything, stale label":  ordinary(StartStaleLabel, emptyMaps, all(withoutOwn, noState)),
		"completes, stale label":         initializer(StartStaleLabel, emptyList, nil),
	}
	for name, update := range cases {
		if update.Verbs == nil {
			update.Verbs = []Verb{Put, MergePatch}
			cases[name] = update
		}
	}
	return cases
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// provisioned returns an object of a new Namespace as the operator has applied it.
func provisioned(kind schema.GroupVersionKind, name string, isCounted bool) (ObjectSnapshot, template.ObjectState) {
	manifest := &unstructured.Unstructured{}
	manifest.SetGroupVersionKind(kind)
	manifest.SetName(name)
	manifest.SetNamespace("ns")
	return ObjectSnapshot{
			Name: name, Manifest: manifest, Content: "content", Current: &Observed{UID: objectUID, Fields: "fields", IsCounted: isCounted},
		}, template.ObjectState{
			Kind: kind.GroupKind(), Name: name, UID: objectUID, Content: "content", Fields: "fields",
		}
}

// A new Namespace waits until its objects are effective. When it fails, the API server must have confirmed what this
// depends on.
func TestWaits(t *testing.T) {
	three := ptr.To[int32](3)
	const templates, whole = v1alpha1.TemplatesInitializer, 4 * time.Second
	ago := func(name string, d time.Duration) string { return initialization.FormatTurnStart(name, start.Add(-d)) }
	confirmation := func(change func(*Response)) respond {
		return func(o Operation) *Response {
			response := answered(o)
			change(response)
			return response
		}
	}
	confirmed := []string{"Confirm team", "FindUncounted quota"}
	tests := map[string]struct {
		// elapsed is the time since the first pass.
		elapsed time.Duration
		// recorded is the start of the turn that the Namespace records.
		recorded      string
		limit         *int32
		policy        v1alpha1.FailurePolicy
		wait          v1alpha1.TemplateWaitPolicy
		isInitialized bool
		isCounted     bool
		answer        respond
		sent          []string
		isWaiting     bool
		isTimedOut    bool
		isRefused     bool
		// mustRecord is true if the Namespace must record the start of the turn.
		mustRecord bool
		retry      time.Duration
	}{
		"effective":                         {isCounted: true, limit: three, mustRecord: true},
		"not effective":                     {isWaiting: true, retry: effectiveRetry},
		"not effective, waitPolicy Applied": {wait: v1alpha1.WaitForApplied},
		"not effective, initialized":        {isInitialized: true, limit: three},
		"waiting for a second":              {elapsed: time.Second, isWaiting: true, retry: time.Second / 2},
		"waiting for an hour":               {elapsed: time.Hour, isWaiting: true, retry: maxEffectiveRetry},
		"shortly before the deadline":       {elapsed: whole - 100*time.Millisecond, limit: three, isWaiting: true, mustRecord: true, retry: 100 * time.Millisecond},
		"at the deadline":                   {elapsed: whole, limit: three, sent: confirmed, isWaiting: true, isRefused: true, mustRecord: true, retry: effectiveRetry},
		"at the deadline, unknown policy":   {elapsed: whole, limit: three, policy: "x", isWaiting: true, mustRecord: true, retry: effectiveRetry},
		"at the deadline, Ignore":           {elapsed: whole, limit: three, policy: v1alpha1.FailurePolicyIgnore, isTimedOut: true, mustRecord: true},
		"at the deadline, effective":        {elapsed: whole, limit: three, isCounted: true, mustRecord: true},
		"after a restart":                   {recorded: ago(templates, whole+time.Second), limit: three, sent: confirmed, isWaiting: true, isRefused: true, retry: effectiveRetry},
		"after a restart, Ignore":           {recorded: ago(templates, whole+time.Second), limit: three, policy: v1alpha1.FailurePolicyIgnore, isTimedOut: true},
		"after a restart, in time":          {recorded: ago(templates, time.Second), limit: three, isWaiting: true, retry: effectiveRetry},
		"the turn of another initializer":   {recorded: ago("a.example.com", time.Hour), limit: three, isWaiting: true, mustRecord: true, retry: effectiveRetry},
		"a recorded time in the future":     {recorded: ago(templates, -time.Hour), limit: three, isWaiting: true, mustRecord: true, retry: effectiveRetry},
		"recorded later than here":          {recorded: ago(templates, time.Second), elapsed: time.Hour, limit: three, isWaiting: true, retry: 3 * time.Second},
		"any text":                          {recorded: templates + " 0", limit: three, isWaiting: true, mustRecord: true, retry: effectiveRetry},
		"the quota is counted":              {elapsed: whole, limit: three, answer: confirmation(func(r *Response) { r.IsUncounted = false }), sent: confirmed, isWaiting: true, mustRecord: true, retry: unconfirmedRetry},
		"the quota is unknown":              {elapsed: whole, limit: three, answer: failing(FindUncounted, "quota", errors.New("x")), sent: confirmed, isWaiting: true, mustRecord: true, retry: unconfirmedRetry},
		"a changed template":                {elapsed: whole, limit: three, answer: confirmation(func(r *Response) { r.Template.Generation++ }), sent: confirmed[:1], isWaiting: true, mustRecord: true, retry: unconfirmedRetry},
		"a changed namespace":               {elapsed: whole, limit: three, answer: confirmation(func(r *Response) { r.Namespace.Annotations = nil }), sent: confirmed[:1], isWaiting: true, mustRecord: true, retry: unconfirmedRetry},
		"the confirmation fails":            {elapsed: whole, limit: three, answer: failing(Confirm, "team", errors.New("x")), sent: confirmed[:1], isWaiting: true, mustRecord: true, retry: unconfirmedRetry},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := wrappers.MakeNamespace("ns").UID(namespaceUID)
			if !test.isInitialized {
				namespace.Annotation(v1alpha1.AnnotationPendingInitializers, templates)
			}
			if test.recorded != "" {
				namespace.Annotation(v1alpha1.AnnotationTurnStartedAt, test.recorded)
			}
			quota, recorded := provisioned(Quotas, "quota", test.isCounted)
			s := snapshotOf(template.Record{"team": {Revision: "b", Objects: []template.ObjectState{recorded}}}).with(applied{
				name: "team", revision: "b", objects: []ObjectSnapshot{quota}, change: func(t *v1alpha1.NamespaceTemplate) {
					t.Spec.Initialization = v1alpha1.TemplateInitialization{
						WaitPolicy: test.wait, EffectiveTimeoutSeconds: test.limit,
						EffectiveTimeoutPolicy: cmp.Or(test.policy, v1alpha1.FailurePolicyFail),
					}
				},
			})
			s.Namespace = namespace.Obj()
			memory := Memory{FirstPass: start.Add(-test.elapsed), FirstTurn: start.Add(-test.elapsed), NextFullPass: start.Add(time.Hour)}
			outcome, memory, sent := pass(s, memory, test.answer)
			g.Expect(sent).To(Equal(test.sent))
			g.Expect(outcome.Templates[0].Waiting).To(HaveLen(map[bool]int{true: 1}[test.isWaiting]))
			g.Expect(outcome.Templates[0].TimedOut).To(HaveLen(map[bool]int{true: 1}[test.isTimedOut]))
			if !test.isInitialized {
				g.Expect(outcome.RetryAfter).To(Equal(test.retry))
				g.Expect(memory.FirstPass).To(Equal(start.Add(-test.elapsed)))
				g.Expect(outcome.Elapsed).To(Equal(test.elapsed))
			}
			g.Expect(outcome.WaitsFor() != nil).To(Equal(test.isWaiting))
			turn := time.Time{}
			if test.mustRecord {
				turn = start.Add(-test.elapsed)
			}
			g.Expect(outcome.TurnStart).To(Equal(turn))
			if !test.isRefused {
				g.Expect(outcome.Refusal).To(BeNil())
				return
			}
			g.Expect(outcome.Refusal).To(HaveField("Reason", metav1.StatusReasonTimeout))
			g.Expect(outcome.Refusal.Message).To(And(ContainSubstring(`"team"`), ContainSubstring(`"quota"`), ContainSubstring("3s")))
		})
	}
}

// The first pass starts the turn.
func TestFirstPass(t *testing.T) {
	g := NewWithT(t)
	s := initializing(snapshotOf(nil)).with(applied{name: "a", revision: "b", change: func(t *v1alpha1.NamespaceTemplate) {
		t.Spec.Initialization.EffectiveTimeoutSeconds = ptr.To[int32](3)
	}})
	outcome, memory, _ := pass(s, Memory{}, nil)
	g.Expect(memory).To(And(HaveField("FirstPass", start), HaveField("FirstTurn", start)))
	g.Expect(outcome.TurnStart).To(Equal(start))
}

// A RoleBinding is effective when the API server grants its permissions, which is found after it was applied.
func TestWaitForRoleBindings(t *testing.T) {
	notGranted := template.Problemf(v1alpha1.ReasonPermissionsNotGranted, "x")
	binding, recorded := provisioned(RoleBindings.WithVersion("v1"), "admin", false)
	for name, test := range map[string]struct {
		isNew, isGranted bool
		elapsed          time.Duration
		answer           respond
		sent             []string
		isWaiting        bool
		isRefused        bool
	}{
		"a new one":                        {isNew: true, sent: []string{"Apply admin", "CheckGranted admin"}, isGranted: true},
		"a new one, not granted":           {isNew: true, answer: failing(CheckGranted, "admin", notGranted), sent: []string{"Apply admin", "CheckGranted admin"}, isWaiting: true},
		"a new one that cannot be applied": {isNew: true, answer: failing(Apply, "admin", errors.New("x")), sent: []string{"Apply admin"}},
		"not granted yet":                  {answer: failing(CheckGranted, "admin", notGranted), sent: []string{"CheckGranted admin"}, isWaiting: true},
		"granted":                          {sent: []string{"CheckGranted admin"}, isGranted: true},
		"known as granted":                 {isGranted: true},
		"not granted at the deadline":      {elapsed: time.Minute, answer: failing(CheckGranted, "admin", notGranted), sent: []string{"CheckGranted admin", "Confirm a"}, isWaiting: true, isRefused: true},
		"unknown at the deadline":          {elapsed: time.Minute, answer: failing(CheckGranted, "admin", errors.New("x")), sent: []string{"CheckGranted admin"}, isWaiting: true},
		"granted at the deadline":          {elapsed: time.Minute, sent: []string{"CheckGranted admin"}, isGranted: true},
	} {
		t.Run(name, func(t *testing.T) {
			g, memory := NewWithT(t), Memory{FirstTurn: start.Add(-test.elapsed)}
			object, state := binding, template.Record{"a": {Revision: "b", Objects: []template.ObjectState{recorded}}}
			if test.isNew {
				object.Current, state = nil, nil
			}
			if name == "known as granted" {
				memory.Granted = sets.New[types.UID](objectUID)
			}
			s := initializing(snapshotOf(state)).with(applied{name: "a", revision: "b", objects: []ObjectSnapshot{object}, change: func(t *v1alpha1.NamespaceTemplate) {
				t.Spec.Initialization.EffectiveTimeoutSeconds = ptr.To[int32](3)
				t.Spec.Initialization.EffectiveTimeoutPolicy = v1alpha1.FailurePolicyFail
			}})
			outcome, memory, sent := pass(s, memory, test.answer)
			g.Expect(sent).To(Equal(test.sent))
			g.Expect(outcome.Templates[0].Waiting).To(HaveLen(map[bool]int{true: 1}[test.isWaiting]))
			g.Expect(outcome.Refusal != nil).To(Equal(test.isRefused))
			g.Expect(memory.Granted.Has(objectUID)).To(Equal(test.isGranted))
		})
	}
}

// An initialized Namespace reports a RoleBinding whose role does not exist, and an object that is being deleted.
func TestObjectsOfInitializedNamespaces(t *testing.T) {
	for reason, change := range map[string]func(*ObjectSnapshot){
		v1alpha1.ReasonRoleNotFound:      func(o *ObjectSnapshot) { o.MissingRole = template.Problemf(v1alpha1.ReasonRoleNotFound, "x") },
		v1alpha1.ReasonObjectTerminating: func(o *ObjectSnapshot) { o.Current.IsTerminating = true },
		"":                               func(*ObjectSnapshot) {},
	} {
		g := NewWithT(t)
		binding, recorded := provisioned(RoleBindings.WithVersion("v1"), "admin", false)
		change(&binding)
		s := snapshotOf(template.Record{"a": {Revision: "b", Objects: []template.ObjectState{recorded}}}).
			with(applied{name: "a", revision: "b", objects: []ObjectSnapshot{binding}})
		outcome, _, sent := pass(s, Memory{}, nil)
		g.Expect(sent).To(BeEmpty())
		g.Expect(outcome.HasFailed()).To(Equal(reason != ""), reason)
	}
}

// A Namespace fails if the same failure lasts and waiting cannot help, but is never initialized without the object.
func TestExpire(t *testing.T) {
	const limit = 3 * time.Second
	known := func(object, reason string, since time.Duration) failures {
		return failures{{Template: "team", Object: object, Reason: reason}: start.Add(-since)}
	}
	const forbidden = v1alpha1.ReasonForbidden
	for name, test := range map[string]struct {
		reason, message string
		// failures are since when the Namespace has failures.
		failures      failures
		policy        v1alpha1.FailureTimeoutPolicy
		isInitialized bool
		answer        respond
		sent          []string
		isRefused     bool
		isForgotten   bool
		retry         time.Duration
	}{
		"new":             {retry: limit},
		"another object":  {failures: known("other", forbidden, limit), sent: []string{"Confirm team"}, retry: limit},
		"another reason":  {failures: known("binding", v1alpha1.ReasonInvalidObject, limit), sent: []string{"Confirm team"}, retry: limit},
		"shortly before":  {failures: known("binding", forbidden, limit-time.Second), retry: time.Second},
		"at the deadline": {failures: known("binding", forbidden, limit), sent: []string{"Confirm team"}, isRefused: true},
		"another message": {failures: known("binding", forbidden, limit), message: "y", sent: []string{"Confirm team"}, isRefused: true},
		"an expression": {
			reason: v1alpha1.ReasonExpressionFailed, failures: known("binding", v1alpha1.ReasonExpressionFailed, limit), sent: []string{"Confirm team"}, isRefused: true,
		},
		"Retry":            {failures: known("binding", forbidden, limit), policy: v1alpha1.FailureTimeoutRetry, isForgotten: true},
		"unknown policy":   {failures: known("binding", forbidden, limit), policy: "x", isForgotten: true},
		"waiting can help": {reason: v1alpha1.ReasonApplyFailed, failures: known("binding", v1alpha1.ReasonApplyFailed, limit), sent: []string{"Confirm team"}, isForgotten: true},
		"waiting can help now": {
			message: "exceeded quota: team", failures: known("binding", forbidden, limit), sent: []string{"Confirm team"}, isForgotten: true,
		},
		"initialized":   {failures: known("binding", forbidden, limit), isInitialized: true, isForgotten: true},
		"not confirmed": {failures: known("binding", forbidden, limit), answer: failing(Confirm, "team", errors.New("x")), sent: []string{"Confirm team"}, retry: unconfirmedRetry},
		"no ServiceAccount": {
			reason: v1alpha1.ReasonServiceAccountNotFound, failures: known("binding", v1alpha1.ReasonServiceAccountNotFound, limit),
			sent: []string{"Confirm team account"}, isRefused: true,
		},
		"a new ServiceAccount": { // The operator reads ServiceAccounts from a cache, which can be stale.
			reason: v1alpha1.ReasonServiceAccountNotFound, failures: known("binding", v1alpha1.ReasonServiceAccountNotFound, limit),
			answer: func(o Operation) *Response {
				response := answered(o)
				response.HasAccount = true
				return response
			},
			sent: []string{"Confirm team account"}, retry: unconfirmedRetry,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, reason := NewWithT(t), cmp.Or(test.reason, forbidden)
			other, binding := *wantConfigMap("other", "new"), *wantConfigMap("binding", "new")
			other.Unknown = template.Problemf(v1alpha1.ReasonKindNotFound, "x")
			binding.Unknown = template.Problemf(reason, "%s", cmp.Or(test.message, "x"))
			s := snapshotOf(nil)
			if !test.isInitialized {
				s = initializing(s)
			}
			s = s.with(applied{name: "team", revision: "b", objects: []ObjectSnapshot{other, binding}, change: func(t *v1alpha1.NamespaceTemplate) {
				t.Spec.Initialization.FailureTimeoutSeconds = int32(limit.Seconds())
				t.Spec.Initialization.FailureTimeoutPolicy = cmp.Or(test.policy, v1alpha1.FailureTimeoutFail)
			}})
			outcome, memory, sent := pass(s, Memory{Failures: test.failures, NextFullPass: start.Add(time.Hour)}, test.answer)
			g.Expect(sent).To(Equal(test.sent))
			g.Expect(outcome.WaitsFor()).NotTo(BeNil(), "the namespace is not initialized without the object")
			if !test.isInitialized {
				g.Expect(outcome.RetryAfter).To(Equal(test.retry))
			}
			key := template.Problem{Template: "team", Object: "binding", Reason: reason}
			switch since, ok := test.failures[key]; {
			case test.isForgotten:
				g.Expect(memory.Failures).To(BeEmpty())
			case ok:
				g.Expect(memory.Failures).To(Equal(failures{key: since}))
			default:
				g.Expect(memory.Failures).To(Equal(failures{key: start}))
			}
			if !test.isRefused {
				g.Expect(outcome.Refusal).To(BeNil())
				return
			}
			g.Expect(outcome.Refusal).To(HaveField("Reason", metav1.StatusReasonTimeout))
			g.Expect(outcome.Refusal.Message).To(And(ContainSubstring(`"team"`), ContainSubstring(`"binding"`), ContainSubstring("3s")))
		})
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	asOf        = " (as of 2026-03-01T12:01:00Z)"
	explainHint = "; for details, run: kubectl nslifecycle explain shop"

	deletionBlocked       = "nslifecycle.dev/DeletionBlocked"
	initializationBlocked = "nslifecycle.dev/InitializationBlocked"
)

func makeConfigMaps(names ...string) []Object {
	var objects []Object
	for _, name := range names {
		objects = append(objects, Object{Resource: "configmaps", Namespace: "shop", Name: name})
	}
	return objects
}

func TestComputeBlocked(t *testing.T) {
	held := Finding{
		Cause: CauseFinalizerOwnerNotFound, Message: "the owner of finalizer example.com/hold is not running.",
		Objects: makeConfigMaps("a", "b"), Count: 2,
		Remedies: []Remedy{Resolve("reinstall it."), Resolve("kubectl patch")},
	}
	const heldNote = "the owner of finalizer example.com/hold is not running; objects: configmaps/a, configmaps/b; " +
		"remedy: reinstall it"
	const heldMessage = heldNote + asOf + explainHint
	dead := Finding{Cause: CauseAPIServiceUnavailable, Message: "APIService v1.example.com is down"}
	long := Finding{Cause: CauseForbidden, Message: strings.Repeat("é", 2000)}
	more := Finding{Cause: CausePodNotTerminating, Message: "pods do not terminate", Objects: makeConfigMaps("a"), Count: 12}

	tests := map[string]struct {
		state    NamespaceState
		have     *corev1.NamespaceCondition
		findings []Finding
		want     []corev1.NamespaceCondition
	}{
		"one finding": {
			state: StateTerminating, findings: []Finding{held},
			want: []corev1.NamespaceCondition{makeCondition(deletionBlocked, "True", "FinalizerOwnerNotFound", heldMessage)},
		},
		"two findings": {
			state: StateTerminating, findings: []Finding{held, dead},
			want: []corev1.NamespaceCondition{makeCondition(deletionBlocked, "True", "FinalizerOwnerNotFound",
				heldNote+asOf+"; and 1 more finding"+explainHint)},
		},
		"three findings with many objects": {
			state: StateTerminating, findings: []Finding{more, held, dead},
			want: []corev1.NamespaceCondition{makeCondition(deletionBlocked, "True", "PodNotTerminating",
				"pods do not terminate; objects: configmaps/a, and 11 more"+asOf+"; and 2 more findings"+explainHint)},
		},
		"an object in the message is not repeated": {
			state: StateTerminating, findings: []Finding{{
				Cause: CausePodNotTerminating, Message: `configmaps "a" waits`, Objects: makeConfigMaps("a"), Count: 1,
			}},
			want: []corev1.NamespaceCondition{makeCondition(deletionBlocked, "True", "PodNotTerminating", `configmaps "a" waits`+asOf+explainHint)},
		},
		"the Namespace is not listed as an object": {
			state: StateInitializing, findings: []Finding{{
				Cause: CauseInitializerNotRunning, Message: "no initializer acts", Objects: []Object{{Resource: "namespaces", Name: "shop"}}, Count: 1,
			}},
			want: []corev1.NamespaceCondition{makeCondition(initializationBlocked, "True", "InitializerNotRunning", "no initializer acts"+asOf+explainHint)},
		},
		"a finding without objects and remedies": {
			state: StateInitializing, findings: []Finding{dead},
			want: []corev1.NamespaceCondition{makeCondition(initializationBlocked, "True", "APIServiceUnavailable", dead.Message+asOf+explainHint)},
		},
		"a long message is truncated": {
			state: StateTerminating, findings: []Finding{long, dead},
			want: []corev1.NamespaceCondition{makeCondition(deletionBlocked, "True", "Forbidden",
				strings.Repeat("é", 460)+"..."+asOf+"; and 1 more finding"+explainHint)},
		},
		"an unchanged finding": {
			state: StateTerminating, findings: []Finding{held},
			have: &corev1.NamespaceCondition{Status: "True", Reason: "FinalizerOwnerNotFound", Message: heldMessage},
		},
		"an unchanged finding with another duration": {
			state: StateTerminating, findings: []Finding{{Cause: CausePodNotTerminating, Message: "pod web-1 should have terminated 65s ago"}},
			have: &corev1.NamespaceCondition{Status: "True", Reason: "PodNotTerminating",
				Message: "pod web-1 should have terminated 2m5s ago (as of 2026-03-01T11:59:00Z)" + explainHint},
		},
		"a finding with another object": {
			state: StateTerminating, findings: []Finding{{Cause: CausePodNotTerminating, Message: "pod web-1 should have terminated 65s ago"}},
			have: &corev1.NamespaceCondition{Status: "True", Reason: "PodNotTerminating",
				Message: "pod web-2 should have terminated 65s ago" + asOf + explainHint},
			want: []corev1.NamespaceCondition{makeCondition(deletionBlocked, "True", "PodNotTerminating",
				"pod web-1 should have terminated 65s ago"+asOf+explainHint)},
		},
		"a finding with another message": {
			state: StateTerminating, findings: []Finding{held},
			have: &corev1.NamespaceCondition{Status: "True", Reason: "FinalizerOwnerNotFound", Message: "old"},
			want: []corev1.NamespaceCondition{makeCondition(deletionBlocked, "True", "FinalizerOwnerNotFound", heldMessage)},
		},
		"a finding with another cause": {
			state: StateTerminating, findings: []Finding{held},
			have: &corev1.NamespaceCondition{Status: "True", Reason: "FinalizerPending", Message: heldMessage},
			want: []corev1.NamespaceCondition{makeCondition(deletionBlocked, "True", "FinalizerOwnerNotFound", heldMessage)},
		},
		"a namespace that is blocked again": {
			state: StateTerminating, findings: []Finding{held},
			have: &corev1.NamespaceCondition{Status: "False", Reason: "Progressing"},
			want: []corev1.NamespaceCondition{makeCondition(deletionBlocked, "True", "FinalizerOwnerNotFound", heldMessage)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			now := metav1.NewTime(began.Add(time.Minute))
			namespace := wrappers.MakeNamespace("shop").Obj()
			wantSince := now
			if test.have != nil {
				have := *test.have
				have.Type, have.LastTransitionTime = BlockedCondition(test.state), metav1.NewTime(began)
				namespace.Status.Conditions = []corev1.NamespaceCondition{have}
				if have.Status == corev1.ConditionTrue {
					wantSince = have.LastTransitionTime
				}
			}
			changed := ComputeBlocked(namespace, &Diagnosis{Namespace: "shop", State: test.state, Findings: test.findings}, now)
			for i := range test.want {
				test.want[i].LastTransitionTime = wantSince
			}
			g.Expect(changed).To(Equal(test.want))
			for _, condition := range changed {
				g.Expect(len(condition.Message)).To(BeNumerically("<=", 1024))
				g.Expect(utf8.ValidString(condition.Message)).To(BeTrue())
			}
		})
	}
}

func TestComputeProgressing(t *testing.T) {
	blocked := func(conditionType string) corev1.NamespaceCondition {
		return makeCondition(conditionType, "True", "Forbidden", "forbidden")
	}
	progressing := func(conditionType, message string) corev1.NamespaceCondition {
		progressing := makeCondition(conditionType, "False", "Progressing", message)
		progressing.LastTransitionTime = metav1.NewTime(began)
		return progressing
	}
	tests := map[string]struct {
		namespace *wrappers.NamespaceWrapper
		blocked   NamespaceState
		want      []corev1.NamespaceCondition
	}{
		"a namespace that was never blocked": {namespace: wrappers.MakeNamespace("x").Terminating(began)},
		"a condition that is already False": {
			namespace: wrappers.MakeNamespace("x").Terminating(began).Condition(progressing(deletionBlocked, "old")),
		},
		"a deletion that is no longer blocked": {
			namespace: wrappers.MakeNamespace("x").Terminating(began).Condition(blocked(deletionBlocked)),
			want:      []corev1.NamespaceCondition{progressing(deletionBlocked, "The deletion is making progress again")},
		},
		"a deletion that is still blocked": {
			namespace: wrappers.MakeNamespace("x").Terminating(began).Condition(blocked(deletionBlocked)),
			blocked:   StateTerminating,
		},
		"an initialization that is no longer blocked": {
			namespace: wrappers.MakeNamespace("x").Initializers("a").Condition(blocked(initializationBlocked)),
			want:      []corev1.NamespaceCondition{progressing(initializationBlocked, "The initialization is making progress again")},
		},
		"an initialization that is still blocked": {
			namespace: wrappers.MakeNamespace("x").Initializers("a").Condition(blocked(initializationBlocked)),
			blocked:   StateInitializing,
		},
		"a completed initialization": {
			namespace: wrappers.MakeNamespace("x").Condition(blocked(initializationBlocked)),
			want:      []corev1.NamespaceCondition{progressing(initializationBlocked, "The initialization is complete")},
		},
		"a failed initialization": {
			namespace: wrappers.MakeNamespace("x").Initializers("a").Result(`{"status":"Failure"}`).Condition(blocked(initializationBlocked)),
			want:      []corev1.NamespaceCondition{progressing(initializationBlocked, "The initialization failed")},
		},
		"a blocked initialization of a namespace with a blocked deletion": {
			namespace: wrappers.MakeNamespace("x").Initializers("a").Terminating(began).
				Condition(blocked(initializationBlocked)).Condition(blocked(deletionBlocked)),
			blocked: StateTerminating,
			want:    []corev1.NamespaceCondition{progressing(initializationBlocked, "The namespace is being deleted")},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(ComputeProgressing(test.namespace.Obj(), test.blocked, metav1.NewTime(began))).To(Equal(test.want))
		})
	}
}

func TestFindingKey(t *testing.T) {
	base := Finding{Cause: CauseFinalizerPending, Message: "has waited since 12:00 for 3 objects", Objects: makeConfigMaps("a"), Count: 3}
	tests := map[string]struct {
		change func(*Finding)
		isSame bool
	}{
		"other numbers and times": {change: func(f *Finding) { f.Message = "has waited since 12:01 for 2 objects"; f.Count = 2 }, isSame: true},
		"another rank":            {change: func(f *Finding) { f.Rank = RankProven }, isSame: true},
		"another cause":           {change: func(f *Finding) { f.Cause = CauseFinalizerOwnerNotFound }},
		"other objects":           {change: func(f *Finding) { f.Objects = makeConfigMaps("b") }},
		"other words":             {change: func(f *Finding) { f.Message = "has waited for another object" }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			other := base
			test.change(&other)
			want := Equal(base.Key())
			if !test.isSame {
				want = Not(want)
			}
			NewWithT(t).Expect(other.Key()).To(want)
		})
	}
}

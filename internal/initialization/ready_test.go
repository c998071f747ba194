// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestReadyConditions(t *testing.T) {
	const failure = `{"status":"Failure","reason":"Forbidden","message":"no budget"}`
	condition := func(conditionType corev1.NamespaceConditionType, status corev1.ConditionStatus, reason string) corev1.NamespaceCondition {
		return corev1.NamespaceCondition{Type: conditionType, Status: status, Reason: reason, Message: strings.Repeat("x", 1024)}
	}
	namespace := func(names ...string) *wrappers.NamespaceWrapper {
		return wrappers.MakeNamespace("x").Initializers(names...)
	}
	tests := map[string]struct {
		namespace   *wrappers.NamespaceWrapper
		wantStatus  corev1.ConditionStatus
		wantReason  string
		wantMessage string
		wantStalled bool
	}{
		"initializing": {
			namespace: namespace(rbac, quota, mesh).Pending(quota, mesh), wantStatus: "False", wantReason: "Initializing",
			wantMessage: "only initializers can write to the namespace; waiting for initializer " + quota + " (2 of 3)",
		},
		"initializing, blocked": {
			namespace:  namespace(rbac).Condition(condition(v1alpha1.ConditionInitializationBlocked, "True", "InitializerNotRunning")),
			wantStatus: "False", wantReason: "Initializing",
			wantMessage: "only initializers can write to the namespace; waiting for initializer " + rbac + " (1 of 1); " +
				"no progress (InitializerNotRunning), see the condition nslifecycle.dev/InitializationBlocked",
		},
		"initializing, no longer blocked": {
			namespace:  namespace(rbac).Condition(condition(v1alpha1.ConditionInitializationBlocked, "False", "Progressing")),
			wantStatus: "False", wantReason: "Initializing",
			wantMessage: "only initializers can write to the namespace; waiting for initializer " + rbac + " (1 of 1)",
		},
		"initializing, with an ignored result": {
			namespace: namespace(rbac).Result(`{"status":"Success"}`), wantStatus: "False", wantReason: "Initializing",
			wantMessage: "only initializers can write to the namespace; waiting for initializer " + rbac + " (1 of 1); " +
				"the result is ignored, see the condition Initializing",
		},
		"failed": {
			namespace: namespace(rbac).Result(failure), wantStatus: "False", wantReason: "Failed", wantStalled: true,
			wantMessage: "only initializers can write to the namespace: " + messageFailed + "; the namespace will be deleted",
		},
		"failed, protected": {
			namespace:  namespace(rbac).Result(failure).Label(v1alpha1.LabelDeletionProtection, "true"),
			wantStatus: "False", wantReason: "Failed", wantStalled: true,
			wantMessage: "only initializers can write to the namespace: " + messageFailed + "; the namespace is not deleted: " +
				nsobject.ProtectionMessage(namespace().Label(v1alpha1.LabelDeletionProtection, "").Obj()),
		},
		"initialized": {
			namespace: namespace(rbac).Pending(), wantStatus: "True", wantReason: "Initialized", wantMessage: messageUsersCanWrite,
		},
		"initialized, with a skipped initializer": {
			namespace: namespace(rbac).Pending().Condition(corev1.NamespaceCondition{
				Type: rbac + "/Initialized", Status: "False", Reason: v1alpha1.ReasonTimedOut,
			}),
			wantStatus: "True", wantReason: "Initialized", wantMessage: messageUsersCanWrite,
		},
		"no initializers": {
			namespace: wrappers.MakeNamespace("x"), wantStatus: "True", wantReason: "Initialized",
			wantMessage: messageUsersCanWrite,
		},
		"terminating": {
			namespace: namespace(rbac).Result(failure).Terminating(now), wantStatus: "False", wantReason: "Terminating",
			wantMessage: messageTerminating,
		},
		"terminating, blocked": {
			namespace: wrappers.MakeNamespace("x").Terminating(now).
				Condition(condition(v1alpha1.ConditionDeletionBlocked, "True", "FinalizerPending")),
			wantStatus: "False", wantReason: "Terminating", wantMessage: messageTerminating +
				"; no progress (FinalizerPending), see the condition nslifecycle.dev/DeletionBlocked",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			object := test.namespace.Obj()
			state := ParseState(object)
			changed := computeReady(object, state, at)
			g.Expect(changed[0]).To(And(HaveField("Type", BeEquivalentTo(v1alpha1.ConditionReady)), HaveField("Status", test.wantStatus),
				HaveField("Reason", test.wantReason), HaveField("Message", test.wantMessage),
				HaveField("LastTransitionTime", at)))
			g.Expect(changed[1:]).To(HaveLen(map[bool]int{true: 1}[test.wantStalled]))

			// Once they are written, nothing changes, except that Stalled is removed in other states.
			stalled := condition(v1alpha1.ConditionStalled, "True", "")
			if test.wantStalled {
				stalled = changed[1]
				g.Expect(stalled).To(And(HaveField("Type", BeEquivalentTo(v1alpha1.ConditionStalled)), HaveField("Status", corev1.ConditionTrue),
					HaveField("Reason", "Failed"), HaveField("Message", messageFailed)))
			}
			object.Status.Conditions = append(object.Status.Conditions, changed[0], stalled)
			again := computeReady(object, state, at)
			if test.wantStalled {
				g.Expect(again).To(BeEmpty())
			} else {
				g.Expect(again).To(ConsistOf(And(HaveField("Type", BeEquivalentTo(v1alpha1.ConditionStalled)), HaveField("Status", BeEmpty()))))
			}
		})
	}
}

// Only the condition Initializing contains the text of a failure.
func TestConditionMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<14)
	for name, test := range map[string]struct {
		namespace *wrappers.NamespaceWrapper
		want      map[corev1.NamespaceConditionType]int
	}{
		"a failure": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"Failure","message":"` + long + `"}`),
			want:      map[corev1.NamespaceConditionType]int{v1alpha1.ConditionInitializing: maxMessage},
		},
		"an ignored result": {
			namespace: wrappers.MakeNamespace("x").Initializers(rbac).Result(`{"status":"` + long + `"}`),
			want:      map[corev1.NamespaceConditionType]int{v1alpha1.ConditionInitializing: maxMessage},
		},
		"a name": {
			namespace: wrappers.MakeNamespace("x").Initializers(long),
			want: map[corev1.NamespaceConditionType]int{
				v1alpha1.ConditionInitializing: maxMessage, v1alpha1.ConditionReady: maxMessage,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := test.namespace.Obj()
			for _, condition := range ComputeConditions(namespace, ParseState(namespace), at) {
				if length, ok := test.want[condition.Type]; ok {
					g.Expect(condition.Message).To(HaveLen(length), string(condition.Type))
				} else {
					g.Expect(len(condition.Message)).To(BeNumerically("<", 200), string(condition.Type))
				}
			}
		})
	}
}

func TestWithTerminating(t *testing.T) {
	ready := corev1.NamespaceCondition{Type: v1alpha1.ConditionReady, Status: "True", Reason: "Initialized"}
	stalled := corev1.NamespaceCondition{Type: v1alpha1.ConditionStalled, Status: "True", Reason: "Failed"}
	changed := []corev1.NamespaceCondition{{Type: v1alpha1.ConditionDeletionBlocked, Status: "True", Reason: "Unknown"}}
	message := messageTerminating
	want := func() corev1.NamespaceCondition {
		return corev1.NamespaceCondition{
			Type: v1alpha1.ConditionReady, Status: "False", Reason: "Terminating", Message: message, LastTransitionTime: at,
		}
	}
	terminated := want()
	message += "; no progress (Unknown), see the condition nslifecycle.dev/DeletionBlocked"
	blocked := want()
	terminating := func() *wrappers.NamespaceWrapper { return wrappers.MakeNamespace("x").Terminating(now) }
	for name, test := range map[string]struct {
		namespace     *wrappers.NamespaceWrapper
		changed, want []corev1.NamespaceCondition
	}{
		"terminating":                         {terminating().Condition(ready), changed, append(slices.Clone(changed), blocked)},
		"terminating, nothing else changes":   {terminating().Condition(ready), nil, []corev1.NamespaceCondition{terminated}},
		"terminating, and already reported":   {terminating().Condition(terminated), nil, nil},
		"terminating before the first report": {terminating(), changed, append(slices.Clone(changed), blocked)},
		"terminating after a failure": {
			terminating().Condition(stalled), nil, []corev1.NamespaceCondition{terminated, {Type: v1alpha1.ConditionStalled, LastTransitionTime: at}},
		},
		"not terminating": {wrappers.MakeNamespace("x").Condition(ready), changed, changed},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := test.namespace.Obj()
			g.Expect(WithTerminating(namespace, test.changed, at)).To(Equal(test.want))
			g.Expect(namespace).To(Equal(test.namespace.Obj()), "the argument must not change")
		})
	}
}

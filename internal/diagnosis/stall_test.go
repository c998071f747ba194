// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// began is the deletionTimestamp of the namespaces in these tests.
var began = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func makeCondition(conditionType, status, reason, message string) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{
		Type: corev1.NamespaceConditionType(conditionType), Status: corev1.ConditionStatus(status),
		Reason: reason, Message: message,
	}
}

func setCondition(conditionType, status, reason, message string) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) {
		if have := nsobject.FindCondition(namespace, corev1.NamespaceConditionType(conditionType)); have != nil {
			*have = makeCondition(conditionType, status, reason, message)
			return
		}
		namespace.Status.Conditions = append(namespace.Status.Conditions, makeCondition(conditionType, status, reason, message))
	}
}

const (
	contentRemaining = string(corev1.NamespaceContentRemaining)
	contentFailure   = string(corev1.NamespaceDeletionContentFailure)
	listedErrors     = `[Delete "https://10.0.0.1:443": dial tcp 10.0.0.1:43210: refused, webhook "a" denied it]`
)

func TestStallDetectorUpdate(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.Namespace)
		isNew  bool
	}{
		"no change":       {change: func(*corev1.Namespace) {}},
		"a changed label": {change: func(n *corev1.Namespace) { n.Labels["x"] = "y" }},
		"a changed phase": {change: func(n *corev1.Namespace) { n.Status.Phase = corev1.NamespaceActive }},
		"a changed annotation": {
			change: func(n *corev1.Namespace) { n.Annotations["x"] = "y" },
		},
		"a changed DeletionBlocked condition": {
			change: setCondition(v1alpha1.ConditionDeletionBlocked, "True", "Forbidden", "forbidden"),
		},
		"another message of Ready, which repeats the diagnosis": {
			change: setCondition(v1alpha1.ConditionReady, "False", "Terminating", "forbidden"),
		},
		"a changed InitializationBlocked condition": {
			change: setCondition(v1alpha1.ConditionInitializationBlocked, "False", "Progressing", "x"),
		},
		"a changed transition time": {change: func(n *corev1.Namespace) {
			n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(began)
		}},
		"reordered conditions": {change: func(n *corev1.Namespace) {
			n.Status.Conditions[0], n.Status.Conditions[1] = n.Status.Conditions[1], n.Status.Conditions[0]
		}},
		"reordered errors with different ports": {change: setCondition(contentFailure, "True", "ContentDeletionFailed",
			`[webhook "a" denied it, Delete "https://10.0.0.1:443": dial tcp 10.0.0.1:5: refused]`)},

		"another error": {
			change: setCondition(contentFailure, "True", "ContentDeletionFailed", "webhook denied it"), isNew: true,
		},
		"a decreased count": {
			change: setCondition(contentRemaining, "True", "SomeResourcesRemain", "configmaps. has 1 resource instances"),
			isNew:  true,
		},
		"a changed status of a condition": {change: setCondition(contentFailure, "False", "ContentDeletionFailed", listedErrors), isNew: true},
		"a changed reason of a condition": {change: setCondition(contentFailure, "True", "Other", listedErrors), isNew: true},
		"a new condition":                 {change: setCondition("x", "True", "X", ""), isNew: true},
		"a removed condition":             {change: func(n *corev1.Namespace) { n.Status.Conditions = nil }, isNew: true},
		"a removed namespace finalizer":   {change: func(n *corev1.Namespace) { n.Spec.Finalizers = nil }, isNew: true},
		"a removed finalizer":             {change: func(n *corev1.Namespace) { n.Finalizers = nil }, isNew: true},
		"a shorter pending list":          {change: func(n *corev1.Namespace) { n.Annotations[v1alpha1.AnnotationPendingInitializers] = "b" }, isNew: true},
		"a result of the initialization":  {change: func(n *corev1.Namespace) { n.Annotations[v1alpha1.AnnotationInitializationResult] = "{}" }, isNew: true},
		"another namespace":               {change: func(n *corev1.Namespace) { n.UID = "other" }, isNew: true},
		"another state":                   {change: func(n *corev1.Namespace) { n.DeletionTimestamp = nil }, isNew: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := wrappers.MakeNamespace("x").UID("x-uid").Terminating(began).Pending("a", "b").
				Condition(makeCondition(contentRemaining, "True", "SomeResourcesRemain", "configmaps. has 2 resource instances")).
				Condition(makeCondition(contentFailure, "True", "ContentDeletionFailed", listedErrors)).Obj()
			namespace.Finalizers = []string{"example.com/hold"}
			var detector StallDetector
			g.Expect(detector.IsStalled(namespace)).To(BeFalse())
			g.Expect(detector.Update(namespace, began)).To(BeTrue(), "the first time")
			g.Expect(detector.State()).To(Equal(StateTerminating))

			test.change(namespace)
			g.Expect(detector.IsStalled(namespace)).To(Equal(!test.isNew))
			g.Expect(detector.Update(namespace, began.Add(time.Second))).To(Equal(test.isNew))
			g.Expect(detector.IsStalled(namespace)).To(BeTrue())
			g.Expect(detector.UID()).To(Equal(namespace.UID))
			wantSince := began
			if test.isNew {
				wantSince = began.Add(time.Second)
			}
			g.Expect(detector.Since()).To(Equal(wantSince))
		})
	}
}

func TestStallDetectorIgnoresAlternatingStates(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("x").UID("x-uid").Terminating(began).Obj()
	var detector StallDetector
	isNew := []bool{}
	for i := range 6 {
		setCondition(contentRemaining, "True", "SomeResourcesRemain", fmt.Sprint("pods. has ", i%2))(namespace)
		isNew = append(isNew, detector.Update(namespace, began.Add(time.Duration(i)*time.Second)))
	}
	g.Expect(isNew).To(Equal([]bool{true, true, false, false, false, false}))
	g.Expect(detector.Since()).To(Equal(began.Add(time.Second)))
}

func TestStallDetectorForgetsOldStates(t *testing.T) {
	g := NewWithT(t)
	namespace := wrappers.MakeNamespace("x").UID("x-uid").Terminating(began).Obj()
	var detector StallDetector
	show := func(count int) bool {
		setCondition(contentRemaining, "True", "SomeResourcesRemain", fmt.Sprint("pods. has ", count))(namespace)
		return detector.Update(namespace, began)
	}
	for i := range 1000 {
		g.Expect(show(i)).To(BeTrue())
	}
	g.Expect(detector.seen).To(HaveLen(maxFingerprints))
	g.Expect(show(1000 - maxFingerprints)).To(BeFalse())
	g.Expect(show(999 - maxFingerprints)).To(BeTrue())
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package cases

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

type conditions = []corev1.NamespaceCondition

// ConditionUpdate is a write to the status of the Namespace StartCompleted, or of a terminating one.
type ConditionUpdate struct {
	User string
	// Change returns the conditions that the client sends, and Want those of the result; nil if they are unchanged. The
	// argument is the conditions before the request, which are not changed.
	Change, Want func(conditions) conditions
}

// Expected returns the result of the update.
func (u *ConditionUpdate) Expected(before []corev1.NamespaceCondition) []corev1.NamespaceCondition {
	if u.Want == nil {
		return before
	}
	return u.Want(before)
}

// Conditions returns those of the Namespace StartCompleted, without messages.
func Conditions() []corev1.NamespaceCondition {
	time := metav1.Unix(1780000000, 0)
	found := conditions{{Type: v1alpha1.ConditionInitializing, Status: "False", Reason: "Initialized", LastTransitionTime: time}}
	for _, name := range []string{"all", "not-a", "no-team", "not-shop", "named"} {
		found = append(found, corev1.NamespaceCondition{
			Type: initializedBy(name), Status: "True", Reason: "Initialized", LastTransitionTime: time,
		})
	}
	return append(found, corev1.NamespaceCondition{
		Type: v1alpha1.ConditionReady, Status: "True", Reason: "Initialized", LastTransitionTime: time,
	})
}

func initializedBy(name string) corev1.NamespaceConditionType {
	return corev1.NamespaceConditionType(name + domain + v1alpha1.ConditionInitializedSuffix)
}

func condition(conditionType corev1.NamespaceConditionType, status corev1.ConditionStatus, reason string) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{
		Type: conditionType, Status: status, Reason: reason, Message: "m", LastTransitionTime: metav1.Unix(1700000000, 0),
	}
}

func of(some ...corev1.NamespaceCondition) func(conditions) conditions {
	return func(conditions) conditions { return some }
}

func chain(changes ...func(conditions) conditions) func(conditions) conditions {
	return func(before conditions) conditions {
		for _, change := range changes {
			before = change(before)
		}
		return before
	}
}

func adding(some ...corev1.NamespaceCondition) func(conditions) conditions {
	return func(before conditions) conditions { return slices.Concat(before, some) }
}

func without(types ...corev1.NamespaceConditionType) func(conditions) conditions {
	return func(before conditions) conditions {
		return slices.DeleteFunc(slices.Clone(before), func(c corev1.NamespaceCondition) bool {
			return slices.Contains(types, c.Type)
		})
	}
}

// first moves conditions to the beginning.
func first(types ...corev1.NamespaceConditionType) func(conditions) conditions {
	return func(before conditions) conditions {
		return append(slices.DeleteFunc(slices.Clone(before), func(c corev1.NamespaceCondition) bool {
			return !slices.Contains(types, c.Type)
		}), without(types...)(before)...)
	}
}

// replacing replaces the condition with the same type.
func replacing(some corev1.NamespaceCondition) func(conditions) conditions {
	return func(before conditions) conditions {
		changed := slices.Clone(before)
		for i := range changed {
			if changed[i].Type == some.Type {
				changed[i] = some
			}
		}
		return changed
	}
}

func reversed(before conditions) conditions {
	changed := slices.Clone(before)
	slices.Reverse(changed)
	return changed
}

// ConditionUpdates returns the cases by description.
func ConditionUpdates() map[string]ConditionUpdate {
	const ready = v1alpha1.ConditionReady
	mine, forged := condition("corp.example.com/Mine", "True", "R"), condition(ready, "False", "Forged")
	timeless := corev1.NamespaceCondition{Type: mine.Type, Status: "True"}
	similar := condition("x.example.com/Initialized", "True", "Done")
	ordinary := func(change, want func(conditions) conditions) ConditionUpdate {
		return ConditionUpdate{User: Ordinary, Change: change, Want: want}
	}
	return map[string]ConditionUpdate{
		"no conditions":      ordinary(of(), nil),
		"the same":           ordinary(adding(), nil),
		"only another":       ordinary(of(mine), adding(mine)),
		"another, no time":   ordinary(of(timeless), adding(timeless)),
		"another":            ordinary(adding(mine), adding(mine)),
		"another first":      ordinary(func(before conditions) conditions { return append(conditions{mine}, before...) }, func(before conditions) conditions { return append(conditions{mine}, before...) }),
		"an older copy":      ordinary(chain(without(ready), adding(mine)), chain(adding(mine), first(ready))),
		"without several":    ordinary(without(ready, initializedBy("not-a"), v1alpha1.ConditionInitializing), first(v1alpha1.ConditionInitializing, initializedBy("not-a"), ready)),
		"another order":      ordinary(reversed, reversed),
		"a forged Ready":     ordinary(replacing(forged), nil),
		"only forged":        ordinary(of(forged), nil),
		"two Ready":          ordinary(adding(forged), first(ready)),
		"another twice":      ordinary(adding(mine, mine), adding(mine, mine)),
		"a forged failure":   ordinary(adding(condition(v1alpha1.ConditionStalled, "True", "Failed")), nil),
		"a forged finding":   ordinary(adding(condition(v1alpha1.ConditionDeletionBlocked, "True", "Unknown")), nil),
		"a forged skip":      ordinary(replacing(condition(initializedBy("all"), "False", v1alpha1.ReasonTimedOut)), nil),
		"a forged progress":  ordinary(replacing(condition(initializedBy("all"), "False", "Working")), nil),
		"an unknown skip":    ordinary(adding(condition("x.example.com/Initialized", "False", v1alpha1.ReasonDeregistered)), nil),
		"a similar type":     ordinary(adding(similar), adding(similar)),
		"an initializer":     {User: Initializer, Change: replacing(forged), Want: replacing(forged)},
		"initializer, fewer": {User: Initializer, Change: of(mine), Want: of(mine)},
	}
}

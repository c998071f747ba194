// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Phases of one initializer.
const (
	phaseDone    = "done"
	phaseTurn    = "working"
	phaseWaiting = "waiting"
	phaseFailed  = "failed"
	phaseSkipped = "skipped"
)

// progress is how far one initializer is with a namespace.
type progress struct {
	name  string
	phase string
	// message is what the initializer says of itself, if anything.
	message string
}

// computeProgress tells how far each initializer is, in order.
func computeProgress(namespace *corev1.Namespace, state *initialization.State) []progress {
	all := make([]progress, 0, len(state.All))
	skipped := initialization.SkippedInitializers(namespace, *state)
	for _, name := range state.All {
		one := progress{name: printable.Escape(name), phase: phaseDone}
		switch turn := slices.Index(state.Pending, name); {
		case turn == 0 && state.Failure != nil:
			one.phase = phaseFailed
		case turn == 0:
			one.phase = phaseTurn
		case turn > 0:
			one.phase = phaseWaiting
		case slices.Contains(skipped, name):
			one.phase = phaseSkipped
		}
		if one.phase == phaseTurn || one.phase == phaseFailed || one.phase == phaseSkipped {
			one.message = ownMessage(namespace, name)
		}
		all = append(all, one)
	}
	return all
}

// ownMessage returns what an initializer itself says in its condition. What the operator
// says there for it tells nothing that the list does not.
func ownMessage(namespace *corev1.Namespace, name string) string {
	conditionType := corev1.NamespaceConditionType(name + v1alpha1.ConditionInitializedSuffix)
	condition := nscondition.Find(namespace, conditionType)
	if condition == nil || condition.Reason == v1alpha1.ReasonPending || condition.Reason == v1alpha1.ReasonCompleted {
		return ""
	}
	if condition.Message == "" {
		return condition.Reason
	}
	// The phase says that it was skipped.
	return fmt.Sprintf("%s: %s", condition.Reason, strings.TrimPrefix(condition.Message, phaseSkipped+": "))
}

// progressLines makes one line for each initializer.
func progressLines(all []progress, width int, colours palette) []string {
	longest := 0
	for _, one := range all {
		longest = max(longest, len(one.name))
	}
	lines := make([]string, 0, len(all))
	for _, one := range all {
		name := fmt.Sprintf("%-*s", longest, one.name)
		line := fmt.Sprintf("  %s  %s", name, colourPhase(one.phase, colours))
		if room := width - longest - len(one.phase) - 6; one.message != "" && room > 0 {
			line += "  " + colours.faint(clip(one.message, room))
		}
		lines = append(lines, line)
	}
	return lines
}

func colourPhase(phase string, colours palette) string {
	switch phase {
	case phaseDone:
		return colours.green(phase)
	case phaseTurn:
		return colours.yellow(phase)
	case phaseFailed, phaseSkipped:
		return colours.red(phase)
	}
	return colours.faint(phase)
}

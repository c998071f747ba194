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
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// maxProgressMessage is the maximum length of an initializer's message.
const maxProgressMessage = 300

// initializerProgress is the progress of one initializer for a namespace.
type initializerProgress struct {
	name  string
	phase string
	// message contains the reason and the message of the initializer's condition, if the
	// initializer has set one.
	message string
}

// computeProgress returns the progress of each initializer, in the order in which they run.
func computeProgress(namespace *corev1.Namespace, state *initialization.State) []initializerProgress {
	all := make([]initializerProgress, 0, len(state.All))
	skipped := initialization.SkippedInitializers(namespace, *state)
	for _, name := range state.All {
		one := initializerProgress{name: printable.Escape(name), phase: phaseDone}
		switch index := slices.Index(state.Pending, name); {
		case index == 0 && state.Failure != nil:
			one.phase = phaseFailed
		case index == 0:
			one.phase = phaseRunning
		case index > 0:
			one.phase = phaseWaiting
		case slices.Contains(skipped, name):
			one.phase = phaseSkipped
		}
		if one.phase == phaseRunning || one.phase == phaseFailed || one.phase == phaseSkipped {
			one.message = initializerMessage(namespace, name)
		}
		all = append(all, one)
	}
	return all
}

// initializerMessage returns the reason and the message of an initializer's condition. It returns
// "" if the operator has set the condition.
func initializerMessage(namespace *corev1.Namespace, name string) string {
	conditionType := corev1.NamespaceConditionType(name + v1alpha1.ConditionInitializedSuffix)
	condition := nscondition.Find(namespace, conditionType)
	if condition == nil || condition.Reason == v1alpha1.ReasonPending || condition.Reason == v1alpha1.ReasonCompleted {
		return ""
	}
	if condition.Message == "" {
		return condition.Reason
	}
	// The phase already states that the initializer was skipped.
	return fmt.Sprintf("%s: %s", condition.Reason, strings.TrimPrefix(condition.Message, phaseSkipped+": "))
}

// progressLines returns the text for each initializer.
func progressLines(all []initializerProgress, columns int, colors printer.Palette) []string {
	longest := 0
	for _, one := range all {
		longest = max(longest, len(one.name))
	}
	lines := make([]string, 0, len(all))
	for _, one := range all {
		start := fmt.Sprintf("  %-*s  ", longest, one.name)
		line := start + one.phase
		if one.message != "" {
			line = printer.Wrap(line+"  "+printer.Shorten(one.message, maxProgressMessage), columns)
		}
		lines = append(lines, start+colorPhase(one.phase, colors)+strings.TrimPrefix(line, start+one.phase))
	}
	return lines
}

func colorPhase(phase string, colors printer.Palette) string {
	switch phase {
	case phaseDone:
		return colors.Green(phase)
	case phaseRunning:
		return colors.Yellow(phase)
	case phaseFailed, phaseSkipped:
		return colors.Red(phase)
	}
	return colors.Faint(phase)
}

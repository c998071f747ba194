// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the condition if the function does not specify one.
const (
	ReasonRetrying    = "Retrying"
	ReasonPanicked    = "Panicked"
	ReasonWaiting     = "Waiting"
	ReasonProgressing = "Progressing"
	ReasonWorking     = "Working"
)

const (
	// MessageWorking is the message of the condition with ReasonWorking.
	MessageWorking = "The function is running"
	// MessageNilError is the text of a nil pointer that is returned as an error. Such an error is not nil.
	MessageNilError = "the function returned a nil *FailedError or *NotYetError; to succeed, it must return nil"

	messageNoManager = "the manager is nil: create one with ctrl.NewManager"
)

// Help texts of the metrics.
const (
	helpCalls      = "Calls of the function of an initializer or finalizer, by result."
	helpCompletion = "Time from the turn of an initializer or finalizer in a namespace until its success or failure " +
		"is recorded, as seen by this process."
	helpPending = "Namespaces in which it is the turn of an initializer or finalizer."
)

// Messages of the log after a panic.
const (
	logPanicked      = "Recovered from a panic"
	logWatchPanicked = "Recovered from a panic in the function passed to WithWatch; the namespace is reconciled"
)

// PanicMessage returns the message of the condition with ReasonPanicked. It contains only the first
// line of the panic value, which can contain a stack.
func PanicMessage(value any) string {
	return fmt.Sprintf("panic: %s; this is a bug in the function passed to package initializer or finalizer; "+
		"the log contains the stack trace", panicLines(value)[0])
}

func missingPermissionsMessage(user string, missing, commands []string) string {
	return fmt.Sprintf("%s is not allowed to %s; as an administrator run: %s",
		user, strings.Join(missing, ", "), strings.Join(commands, "; "))
}

func invalidFinalizerMessage(name corev1.FinalizerName, problems []string) string {
	return fmt.Sprintf("invalid namespace finalizer %q: %s; use a qualified name with a domain that you own, "+
		"such as \"search.example.com/index\"", name, strings.Join(problems, "; "))
}

func duplicateNameMessage(name string) string {
	return fmt.Sprintf("%s is already registered in this process: add it once, "+
		"or set SkipNameValidation in the controller options of each manager that adds it", name)
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Errors of the flags.
const (
	messageInvalidDuration = "--hold-duration %s must be positive"
	messageInvalidLimits   = "--hold-max-writes and --hold-max-writes-per-user must be at least 1"
)

const messageNotAuthorized = "Failed to authorize a request after the initialization"

// maxNames is the number of initializers that a message names, as in the message of the gate.
const maxNames = 5

func pendingMessage(namespace *corev1.Namespace) string {
	names := initialization.ParseState(namespace).Pending
	more := ""
	if len(names) > maxNames {
		more = fmt.Sprintf(" and %d more", len(names)-maxNames)
		names = names[:maxNames]
	}
	return fmt.Sprintf("namespace %q is being initialized; only its initializers may write to it until the "+
		"initialization is complete; pending: %s%s. To see its state, run: kubectl get namespace %s --output=yaml; "+
		"repeat the request after the initialization",
		namespace.Name, strings.Join(names, ", "), more, namespace.Name)
}

func overLimitMessage(namespace *corev1.Namespace) string {
	return "too many writes wait for namespaces to be initialized: " + pendingMessage(namespace)
}

func resendMessage(namespace string) string {
	return fmt.Sprintf("namespace %q has just been created, initialized or deleted; send the request again", namespace)
}

func failedMessage(namespace *corev1.Namespace) string {
	return fmt.Sprintf("the initialization of namespace %q failed: %s", namespace.Name,
		printable.Escape(initialization.FailureText(initialization.ParseState(namespace).Failure)))
}

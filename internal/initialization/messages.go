// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// The reasons of Events.
const (
	eventFailed        = "InitializationFailed"
	eventInvalidResult = "InvalidInitializationResult"
	eventTimedOut      = "InitializerTimedOut"
	eventDeregistered  = "InitializerDeregistered"
	eventRepaired      = "InitializationRepaired"
)

// The actions of Events.
const (
	actionInitialize = "Initialize"
	actionRepair     = "Repair"
)

// Messages of the conditions Initializing and <initializer>/Initialized.
const (
	messageWithoutInitializers = "the namespace has no initializers"
	messageCompleted           = "all initializers completed"
	messageInitializerDone     = "the initializer completed"
	messageInitializerPending  = "the initializer has not removed its name from the pending list"
	messageInitializerWaiting  = "waiting for the initializers that precede this one"
	messageNoFailureReason     = "an initializer reported a failure without a reason or message"
	messageDeregistered        = "no NamespaceInitializerConfiguration registers the initializer"
)

// maxMessage is the maximum length of the messages of conditions of a Namespace in bytes, because every client that
// watches Namespaces receives them. Failures, names and lists of skipped initializers can be longer.
const maxMessage = 512

// Messages of the conditions Ready and Stalled of a Namespace.
const (
	messageUsersCanWrite    = "users can write to the namespace"
	messageUsersCannotWrite = "only initializers can write to the namespace"
	messageResultIgnored    = "; the result is ignored, see the condition " + v1alpha1.ConditionInitializing
	messageFailed           = "the initialization failed, see the condition " + v1alpha1.ConditionInitializing
	messageWillBeDeleted    = "; the namespace will be deleted"
	messageTerminating      = "users cannot create objects in the namespace: it is being deleted"
	messageBlocked          = "; no progress (%s), see the condition %s"
)

// messageNotVerified is the message of the Active condition before the set is verified.
const messageNotVerified = "the admission controller has not verified the set of initializers yet; if this lasts, " +
	"check that a manager with --controllers=admission runs, and its logs"

// Reasons why the operator does not delete a Namespace.
const (
	messageNotFailed     = "its initialization has not failed"
	messageExempt        = "it is exempt from initialization"
	messageNoLabel       = "it does not have the label " + v1alpha1.LabelInitializing
	messageNoInitializer = "it was not created with initializers: it does not have the annotation " +
		v1alpha1.AnnotationInitializers
)

// Notes of Events about repairs.
const (
	messageLabelSet = "Set the label " + v1alpha1.LabelInitializing + ` to "true": initializers are pending`
	// With the label, the gate policy would continue to treat the namespace as initializing.
	messageLabelRemoved = "Removed the label " + v1alpha1.LabelInitializing + ": no initializers are pending"
)

func pendingMessage(state State) string {
	return withProblem(waitingMessage(state), state.ResultProblem)
}

func waitingMessage(state State) string {
	return fmt.Sprintf("waiting for initializer %s (%d of %d)",
		state.Pending[0], len(state.All)-len(state.Pending)+1, len(state.All))
}

func initializedMessage(namespace *corev1.Namespace, state State) string {
	if len(state.All) == 0 {
		return messageWithoutInitializers
	}
	return completedMessage(SkippedInitializers(namespace, state))
}

func completedMessage(skipped []string) string {
	switch len(skipped) {
	case 0:
		return messageCompleted
	case 1:
		return fmt.Sprintf("%s except %s, which was skipped", messageCompleted, skipped[0])
	}
	return fmt.Sprintf("%s except %s, which were skipped", messageCompleted, joinNames(skipped))
}

func failedMessage(state State) string {
	return withProblem(FailureText(state.Failure), state.ResultProblem)
}

// failedOutcome returns what happens to a Namespace whose initialization has failed, as the end of a message.
// keepReason is why the Namespace is not deleted; empty if it is.
func failedOutcome(keepReason string) string {
	if keepReason == "" {
		return messageWillBeDeleted
	}
	return "; the namespace is not deleted: " + keepReason
}

// FailureText returns the reason and the message of a failure.
func FailureText(failure *metav1.Status) string {
	if failure.Message != "" && failure.Reason != "" {
		return fmt.Sprintf("%s: %s", failure.Reason, failure.Message)
	}
	return cmp.Or(failure.Message, string(failure.Reason), messageNoFailureReason)
}

func withProblem(message, problem string) string {
	if problem == "" {
		return message
	}
	return message + "; " + problem
}

func invalidResultMessage(err error) string {
	return fmt.Sprintf("annotation %s is not a metav1.Status in JSON: %v", v1alpha1.AnnotationInitializationResult, err)
}

// ignoredResultMessage returns why a result that is not a failure is ignored. err is the error of
// decoding the result, and status is the decoded status.
func ignoredResultMessage(err error, status string) string {
	ignored := "annotation " + v1alpha1.AnnotationInitializationResult + " is ignored because "
	switch {
	case err != nil:
		return ignored + fmt.Sprintf("it is not a metav1.Status in JSON: %v", err)
	case status == metav1.StatusFailure:
		return ignored + fmt.Sprintf(`it does not contain "status":%q, without escape sequences, at the top level and `+
			"before any text that contains braces", metav1.StatusFailure)
	}
	return ignored + fmt.Sprintf("its status is %q instead of %q; to report success, remove the name of the initializer "+
		"from the annotation %s", status, metav1.StatusFailure, v1alpha1.AnnotationPendingInitializers)
}

func timedOutMessage(timeout *Timeout) string {
	return fmt.Sprintf("it did not complete within %s, the timeout in NamespaceInitializerConfiguration %q",
		timeout.Duration, timeout.Configuration)
}

// skippedNote is the note of the Event about skipped initializers.
func skippedNote(names []string, cause string) string {
	noun := "initializer"
	if len(names) > 1 {
		noun = "initializers"
	}
	return fmt.Sprintf("Skipped %s %s: %s", noun, joinNames(names), cause)
}

func timeoutResultMessage(timeout *Timeout) string {
	return fmt.Sprintf("initializer %s failed: %s", timeout.Initializer, timedOutMessage(timeout))
}

// joinNames returns "a", "a and b" or "a, b and c".
func joinNames(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// Messages of the conditions of a NamespaceInitializerConfiguration.
const (
	messageNoInitializers  = "this configuration registers no initializers, so it does not change new namespaces"
	messageSelectorsApply  = "; an initializer with a namespaceSelector is added only to the namespaces that it selects"
	messageNothingToServe  = "this configuration registers no initializers"
	messageHealthUnknown   = "failed to determine which subjects are authorized to run the initializers: "
	configurationsTogether = "the configurations can contain at most %s in total, and this configuration exceeds the " +
		"limit; none of its initializers is enforced: %s"
)

func tooManyInitializersMessage() string {
	return fmt.Sprintf(configurationsTogether, fmt.Sprintf("%d initializers", internalv1alpha1.MaxInitializers),
		"remove initializers from this or another configuration")
}

func setTooLargeMessage() string {
	return fmt.Sprintf(configurationsTogether,
		fmt.Sprintf("%d KiB, %d KiB of subjects with a confinement and %d waitingSubjects, and each selector %d "+
			"requirements with those of --namespace-selector", maxSetBytes>>10, internalv1alpha1.MaxConfinedBytes>>10,
			internalv1alpha1.MaxWaitingSubjects, maxRequirements),
		"shorten the selectors of this or another configuration, or remove subjects")
}

// overriddenMessage returns the part of a message that lists the initializers for which the
// settings in this configuration are ignored. It is empty if there are none.
func overriddenMessage(entries []internalv1alpha1.EffectiveInitializer) string {
	if len(entries) == 0 {
		return ""
	}
	var texts []string
	for i, entry := range entries {
		if i == maxNamedOverridden {
			break
		}
		texts = append(texts, fmt.Sprintf("%s (from configuration %q)", entry.Name, entry.Configuration))
	}
	message := "; other configurations override the settings of " + strings.Join(texts, ", ")
	if more := len(entries) - len(texts); more > 0 {
		message += fmt.Sprintf(" and %d more", more)
	}
	return message
}

func healthyMessage() string {
	return fmt.Sprintf("at least one subject is authorized to run the initializers, and none of them has been "+
		"unresponsive for more than %s", UnresponsiveAfter)
}

func unauthorizedMessage(names []string) string {
	return fmt.Sprintf("only the control plane and cluster administrators are authorized to run %s: create a ClusterRole "+
		"with the verbs get, list, watch, patch and %s on namespaces, and a ClusterRoleBinding that grants it to the "+
		"initializer's ServiceAccount; a Role or a RoleBinding is not sufficient", joinNames(names), v1alpha1.VerbInitialize)
}

func unresponsiveMessage(name string, unresponsive Unresponsive) string {
	more := ""
	if unresponsive.Count > 1 {
		more = fmt.Sprintf(" and %d more", unresponsive.Count-1)
	}
	return fmt.Sprintf("%s has not responded in namespace %q since %s%s: check that its controller is running",
		name, unresponsive.Namespace, unresponsive.Since.UTC().Format(time.RFC3339), more)
}

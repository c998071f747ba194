// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/expiry"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/protection"
)

// life is what a Namespace object alone tells of where it is in its life.
type life struct {
	Metadata lifeMetadata    `json:"metadata"`
	Stage    diagnosis.Stage `json:"stage"`
	// Since is when the stage began.
	Since metav1.Time `json:"since"`
	// IsBlocked: the operator says that it does not get on, or its initialization failed.
	IsBlocked bool `json:"isBlocked"`
	// Cause is the leading one in the operator's condition, if it is blocked.
	Cause string `json:"cause,omitempty"`
	// WaitsFor are phrases, the most important first.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// PendingInitializers are in their order.
	PendingInitializers []string `json:"pendingInitializers,omitempty"`
	RequestedBy         string   `json:"requestedBy,omitempty"`
	// IsProtected: it has the label that keeps it from being deleted.
	IsProtected bool `json:"isProtected,omitempty"`
	// ExpiresAt is when it is to be deleted, if its annotations say that clearly.
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}

// lifeMetadata is the part of the metadata that tells one namespace from another.
type lifeMetadata struct {
	Name              string            `json:"name"`
	UID               types.UID         `json:"uid"`
	Labels            map[string]string `json:"labels,omitempty"`
	CreationTimestamp metav1.Time       `json:"creationTimestamp"`
	DeletionTimestamp *metav1.Time      `json:"deletionTimestamp,omitempty"`
}

// describeLife reads a Namespace.
func describeLife(namespace *corev1.Namespace) life {
	state := initialization.ParseState(namespace)
	described := life{
		Metadata: lifeMetadata{
			Name: namespace.Name, UID: namespace.UID, Labels: namespace.Labels,
			CreationTimestamp: namespace.CreationTimestamp, DeletionTimestamp: namespace.DeletionTimestamp,
		},
		Stage:               diagnosis.StageActive,
		Since:               namespace.CreationTimestamp,
		PendingInitializers: state.Pending,
		RequestedBy:         namespace.Annotations[v1alpha1.AnnotationRequestedBy],
		IsProtected:         protection.IsProtected(namespace),
		ExpiresAt:           expiryOf(namespace),
	}
	switch {
	case namespace.DeletionTimestamp != nil:
		described.Stage = diagnosis.StageTerminating
		described.Since = *namespace.DeletionTimestamp
		described.WaitsFor, described.IsBlocked = whatHoldsDeletion(namespace)
	case len(state.Pending) > 0:
		described.Stage = diagnosis.StageInitializing
		described.WaitsFor, described.IsBlocked = whatHoldsInitialization(namespace, &state)
	default:
		initializing := nscondition.Find(namespace, v1alpha1.ConditionInitializing)
		if initializing != nil && initializing.Reason == v1alpha1.ReasonCompleted {
			described.Since = initializing.LastTransitionTime
		}
	}
	if diagnosis.IsBlocked(namespace, described.Stage) {
		described.Cause = nscondition.Find(namespace, diagnosis.BlockedCondition(described.Stage)).Reason
	}
	return described
}

// expiryOf is when a Namespace is to be deleted, or nil where that is not clear.
func expiryOf(namespace *corev1.Namespace) *metav1.Time {
	if !expiry.Has(namespace) {
		return nil
	}
	expires, err := expiry.Read(namespace)
	if err != nil {
		return nil
	}
	return &metav1.Time{Time: expires.At}
}

// whatHoldsInitialization names the initializer whose turn it is, or the failure.
func whatHoldsInitialization(
	namespace *corev1.Namespace, state *initialization.State,
) (phrases []string, isBlocked bool) {
	if state.Failure != nil {
		return []string{"its deletion, since it failed: " + failureText(state.Failure)}, true
	}
	turn := len(state.All) - len(state.Pending) + 1
	phrases = []string{fmt.Sprintf("%s (%d of %d)", state.Pending[0], turn, len(state.All))}
	if blocked := findTrue(namespace, v1alpha1.ConditionInitializationBlocked); blocked != nil {
		phrases = append(phrases, blocked.Message)
		isBlocked = true
	}
	if state.ResultProblem != "" {
		phrases = append(phrases, state.ResultProblem)
	}
	return phrases, isBlocked
}

// failureText makes one phrase of the result that an initializer left.
func failureText(failure *metav1.Status) string {
	switch {
	case failure.Message != "" && failure.Reason != "":
		return fmt.Sprintf("%s: %s", failure.Reason, failure.Message)
	default:
		return cmp.Or(failure.Message, string(failure.Reason), "an initializer did not say why")
	}
}

// whatHoldsDeletion tells what the conditions and finalizers of a Namespace say of its
// end: what the operator found first, then errors, then finalizers, and last what is left.
func whatHoldsDeletion(namespace *corev1.Namespace) (phrases []string, isBlocked bool) {
	if blocked := findTrue(namespace, v1alpha1.ConditionDeletionBlocked); blocked != nil {
		phrases = append(phrases, blocked.Message)
		isBlocked = true
	}
	phrases = append(phrases, deletionFailures(namespace)...)
	phrases = append(phrases, deletionHolders(namespace)...)
	if remaining := findTrue(namespace, corev1.NamespaceContentRemaining); remaining != nil {
		phrases = append(phrases, describeRemaining(remaining.Message))
	}
	if len(phrases) == 0 && slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		phrases = append(phrases, "the namespace controller")
	}
	return phrases, isBlocked
}

// deletionFailures returns what the conditions of a Namespace say that goes wrong.
func deletionFailures(namespace *corev1.Namespace) []string {
	var phrases []string
	for _, failure := range []corev1.NamespaceConditionType{
		corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
		corev1.NamespaceDeletionContentFailure,
	} {
		if condition := findTrue(namespace, failure); condition != nil {
			phrases = append(phrases, condition.Message)
		}
	}
	return phrases
}

// deletionHolders returns the finalizers that hold objects or the Namespace itself.
func deletionHolders(namespace *corev1.Namespace) []string {
	var phrases []string
	if held := findTrue(namespace, corev1.NamespaceFinalizersRemaining); held != nil {
		phrases = append(phrases, describeFinalizers(held.Message))
	}
	for _, token := range namespace.Spec.Finalizers {
		if token != corev1.FinalizerKubernetes {
			phrases = append(phrases, fmt.Sprintf("token %s", token))
		}
	}
	for _, finalizer := range namespace.Finalizers {
		phrases = append(phrases, fmt.Sprintf("finalizer %s of the Namespace", finalizer))
	}
	return phrases
}

// The messages of the conditions NamespaceContentRemaining and NamespaceFinalizersRemaining,
// the same since Kubernetes 1.16.
var (
	remainingPattern  = regexp.MustCompile(`([^\s,]+) has (\d+) resource instances`)
	finalizersPattern = regexp.MustCompile(`([^\s,]+) in (\d+) resource instances`)
)

// describeRemaining makes a phrase of the message of condition NamespaceContentRemaining,
// with the types as kubectl calls them, or takes a message of another form as it is.
func describeRemaining(message string) string {
	matches := remainingPattern.FindAllStringSubmatch(message, -1)
	if len(matches) == 0 {
		return message
	}
	parts := make([]string, 0, len(matches))
	for _, match := range matches {
		parts = append(parts, match[2]+" "+strings.TrimSuffix(match[1], "."))
	}
	return strings.Join(parts, ", ")
}

// describeFinalizers does the same for condition NamespaceFinalizersRemaining.
func describeFinalizers(message string) string {
	matches := finalizersPattern.FindAllStringSubmatch(message, -1)
	if len(matches) == 0 {
		return message
	}
	parts := make([]string, 0, len(matches))
	for _, match := range matches {
		parts = append(parts, fmt.Sprintf("finalizer %s on %s", match[1], match[2]))
	}
	return strings.Join(parts, ", ")
}

// findTrue returns a Namespace's condition of a type if it is True.
func findTrue(
	namespace *corev1.Namespace, conditionType corev1.NamespaceConditionType,
) *corev1.NamespaceCondition {
	condition := nscondition.Find(namespace, conditionType)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return nil
	}
	return condition
}

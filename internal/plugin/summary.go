// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
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
	"github.com/nslifecycle/nslifecycle/internal/plugin/forcefinalize"
	"github.com/nslifecycle/nslifecycle/internal/protection"
)

// namespaceSummary is the state of a namespace. It is computed only from the Namespace object.
type namespaceSummary struct {
	Metadata summaryMetadata `json:"metadata"`
	Stage    diagnosis.Stage `json:"stage"`
	// Since is the time when the stage began.
	Since metav1.Time `json:"since"`
	// IsBlocked reports whether the initialization failed or the operator reports that the namespace
	// is stuck.
	IsBlocked bool `json:"isBlocked"`
	// Cause is the most likely cause that the operator has found.
	Cause string `json:"cause,omitempty"`
	// WaitsFor lists what the namespace is waiting for, most important first.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// PendingInitializers are in the order in which they run.
	PendingInitializers []string `json:"pendingInitializers,omitempty"`
	RequestedBy         string   `json:"requestedBy,omitempty"`
	// IsProtected reports whether a label protects the namespace from deletion.
	IsProtected bool `json:"isProtected,omitempty"`
	// ExpiresAt is the time when the namespace expires, if its annotations are valid.
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}

// summaryMetadata identifies a namespace.
type summaryMetadata struct {
	Name              string            `json:"name"`
	UID               types.UID         `json:"uid"`
	Labels            map[string]string `json:"labels,omitempty"`
	CreationTimestamp metav1.Time       `json:"creationTimestamp"`
	DeletionTimestamp *metav1.Time      `json:"deletionTimestamp,omitempty"`
}

// computeSummary returns the summary of a Namespace.
func computeSummary(namespace *corev1.Namespace) namespaceSummary {
	state := initialization.ParseState(namespace)
	summary := namespaceSummary{
		Metadata: summaryMetadata{
			Name: namespace.Name, UID: namespace.UID, Labels: namespace.Labels,
			CreationTimestamp: namespace.CreationTimestamp, DeletionTimestamp: namespace.DeletionTimestamp,
		},
		Stage:               diagnosis.StageActive,
		Since:               namespace.CreationTimestamp,
		PendingInitializers: state.Pending,
		RequestedBy:         namespace.Annotations[v1alpha1.AnnotationRequestedBy],
		IsProtected:         protection.IsProtected(namespace),
		ExpiresAt:           expirationTime(namespace),
	}
	switch {
	case namespace.DeletionTimestamp != nil:
		summary.Stage = diagnosis.StageTerminating
		summary.Since = *namespace.DeletionTimestamp
		summary.WaitsFor, summary.IsBlocked = deletionWaitsFor(namespace)
	case len(state.Pending) > 0:
		summary.Stage = diagnosis.StageInitializing
		summary.WaitsFor, summary.IsBlocked = initializationWaitsFor(namespace, &state)
	default:
		initializing := nscondition.Find(namespace, v1alpha1.ConditionInitializing)
		if initializing != nil && initializing.Reason == v1alpha1.ReasonCompleted {
			summary.Since = initializing.LastTransitionTime
		}
	}
	if diagnosis.IsBlocked(namespace, summary.Stage) {
		summary.Cause = nscondition.Find(namespace, diagnosis.BlockedCondition(summary.Stage)).Reason
	}
	return summary
}

// expirationTime returns the time when a Namespace expires. It returns nil if the Namespace does
// not expire or its annotations are invalid.
func expirationTime(namespace *corev1.Namespace) *metav1.Time {
	expires, err := expiry.Parse(namespace)
	if err != nil || !expiry.IsSet(namespace) {
		return nil
	}
	return &metav1.Time{Time: expires.At}
}

// initializationWaitsFor returns what the initialization of a Namespace is waiting for: the first
// pending initializer and known problems, or the deletion if the initialization failed.
func initializationWaitsFor(
	namespace *corev1.Namespace, state *initialization.State,
) (texts []string, isBlocked bool) {
	if state.Failure != nil {
		return []string{fmt.Sprintf(msgWaitsForDeletion, failureText(state.Failure))}, true
	}
	position := len(state.All) - len(state.Pending) + 1
	texts = []string{fmt.Sprintf(msgWaitsForInitializer, state.Pending[0], position, len(state.All))}
	if blocked := findTrueCondition(namespace, v1alpha1.ConditionInitializationBlocked); blocked != nil {
		texts = append(texts, blocked.Message)
		isBlocked = true
	}
	if state.ResultProblem != "" {
		texts = append(texts, state.ResultProblem)
	}
	return texts, isBlocked
}

// deletionWaitsFor returns what the deletion of a Namespace is waiting for: the cause that the
// operator has found, followed by errors, finalizers and remaining objects.
func deletionWaitsFor(namespace *corev1.Namespace) (texts []string, isBlocked bool) {
	if blocked := findTrueCondition(namespace, v1alpha1.ConditionDeletionBlocked); blocked != nil {
		texts = append(texts, blocked.Message)
		isBlocked = true
	}
	texts = append(texts, deletionFailures(namespace)...)
	texts = append(texts, deletionHolders(namespace)...)
	if remaining := findTrueCondition(namespace, corev1.NamespaceContentRemaining); remaining != nil {
		texts = append(texts, describeRemainingContent(remaining.Message))
	}
	if len(texts) == 0 && slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		texts = append(texts, textNamespaceController)
	}
	return texts, isBlocked
}

// deletionFailures returns the errors in the conditions of a Namespace.
func deletionFailures(namespace *corev1.Namespace) []string {
	var texts []string
	for _, failure := range []corev1.NamespaceConditionType{
		corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
		corev1.NamespaceDeletionContentFailure,
	} {
		if condition := findTrueCondition(namespace, failure); condition != nil {
			texts = append(texts, condition.Message)
		}
	}
	return texts
}

// deletionHolders returns the finalizers of the Namespace and of the objects in it.
func deletionHolders(namespace *corev1.Namespace) []string {
	var texts []string
	if held := findTrueCondition(namespace, corev1.NamespaceFinalizersRemaining); held != nil {
		texts = append(texts, describeRemainingFinalizers(held.Message))
	}
	for _, finalizer := range namespace.Spec.Finalizers {
		if finalizer != corev1.FinalizerKubernetes {
			texts = append(texts, forcefinalize.Removal{NamespaceFinalizer: string(finalizer)}.String())
		}
	}
	for _, finalizer := range namespace.Finalizers {
		texts = append(texts, forcefinalize.Removal{MetadataFinalizer: finalizer}.String())
	}
	return texts
}

// These patterns match parts of the messages of the NamespaceContentRemaining and
// NamespaceFinalizersRemaining conditions. The messages have not changed since Kubernetes 1.16.
var (
	remainingPattern  = regexp.MustCompile(`([^\s,]+) has (\d+) resource instances`)
	finalizersPattern = regexp.MustCompile(`([^\s,]+) in (\d+) resource instances`)
)

// describeRemainingContent shortens the message of the NamespaceContentRemaining condition. It
// returns a message in an unknown format unchanged.
func describeRemainingContent(message string) string {
	return describeMatches(message, remainingPattern, func(resource, count string) string {
		return count + " " + strings.TrimSuffix(resource, ".")
	})
}

// describeRemainingFinalizers shortens the message of the NamespaceFinalizersRemaining condition.
// It returns a message in an unknown format unchanged.
func describeRemainingFinalizers(message string) string {
	return describeMatches(message, finalizersPattern, func(finalizer, count string) string {
		return fmt.Sprintf(msgFinalizerOn, finalizer, count)
	})
}

func describeMatches(message string, pattern *regexp.Regexp, describe func(name, count string) string) string {
	matches := pattern.FindAllStringSubmatch(message, -1)
	if len(matches) == 0 {
		return message
	}
	parts := make([]string, 0, len(matches))
	for _, match := range matches {
		parts = append(parts, describe(match[1], match[2]))
	}
	return strings.Join(parts, ", ")
}

// findTrueCondition returns the condition of the given type, or nil if its status is not True.
func findTrueCondition(
	namespace *corev1.Namespace, conditionType corev1.NamespaceConditionType,
) *corev1.NamespaceCondition {
	condition := nscondition.Find(namespace, conditionType)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return nil
	}
	return condition
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Reasons of the conditions. Unless noted otherwise, upstream's namespace controller uses the same
// reasons.
const (
	ReasonResourcesDiscovered       = "ResourcesDiscovered"
	ReasonDiscoveryFailed           = "DiscoveryFailed"
	ReasonParsedGroupVersions       = "ParsedGroupVersions"
	ReasonGroupVersionParsingFailed = "GroupVersionParsingFailed"
	ReasonContentDeleted            = "ContentDeleted"
	ReasonContentDeletionFailed     = "ContentDeletionFailed"
	ReasonContentRemoved            = "ContentRemoved"
	ReasonSomeResourcesRemain       = "SomeResourcesRemain"
	ReasonContentHasNoFinalizers    = "ContentHasNoFinalizers"
	ReasonSomeFinalizersRemain      = "SomeFinalizersRemain"

	// ReasonContentDeletionOrdered means that no request failed, but that some objects are not deleted
	// yet. In this case, upstream uses the reason ContentDeleted.
	ReasonContentDeletionOrdered = "ContentDeletionOrdered"
	// ReasonContentUnknown means that no object was found, but that some types could not be listed. The
	// status is Unknown. In this case, upstream reports that all content was removed.
	ReasonContentUnknown = "ContentUnknown"
)

// maxMessage is the maximum length of a condition message in bytes. Messages quote responses of API
// servers, and the API server rejects a Namespace that is too large.
const maxMessage = 16 << 10

// ComputeConditions returns the conditions of a Namespace that must be updated according to a report,
// with upstream's types, reasons and messages.
func ComputeConditions(
	namespace *corev1.Namespace, report *Report, now metav1.Time,
) []corev1.NamespaceCondition {
	return computeChanged(namespace, []corev1.NamespaceCondition{
		discoveryCondition(report.Resources.DiscoveryError),
		parsingCondition(report.Resources.ParseError),
		contentCondition(report),
		remainingCondition(report),
		finalizersCondition(report),
	}, now)
}

// ComputeRefusal returns the condition of a Namespace whose content the operator refuses to delete. It
// returns no condition if the Namespace already has it.
func ComputeRefusal(namespace *corev1.Namespace, reason string, now metav1.Time) []corev1.NamespaceCondition {
	return computeChanged(namespace, []corev1.NamespaceCondition{newCondition(
		corev1.NamespaceDeletionContentFailure, corev1.ConditionTrue,
		ReasonContentDeletionFailed, fmt.Sprintf(messageDeletionRefused, reason),
	)}, now)
}

// computeChanged returns the wanted conditions that differ from the conditions of a Namespace, and sets
// their transition times.
func computeChanged(
	namespace *corev1.Namespace, wanted []corev1.NamespaceCondition, now metav1.Time,
) []corev1.NamespaceCondition {
	var result []corev1.NamespaceCondition
	for _, condition := range wanted {
		condition.Message = printable.Truncate(condition.Message, maxMessage)
		if nsobject.CompleteCondition(nsobject.FindCondition(namespace, condition.Type), &condition, now) {
			result = append(result, condition)
		}
	}
	return result
}

func newCondition(
	conditionType corev1.NamespaceConditionType, status corev1.ConditionStatus, reason, message string,
) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{Type: conditionType, Status: status, Reason: reason, Message: message}
}

func discoveryCondition(err error) corev1.NamespaceCondition {
	const conditionType = corev1.NamespaceDeletionDiscoveryFailure
	if err == nil {
		return newCondition(conditionType, corev1.ConditionFalse, ReasonResourcesDiscovered, messageResourcesDiscovered)
	}
	message := err.Error()
	var groups *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &groups) {
		message = fmt.Sprintf(messageDiscoveryFailed, len(groups.Groups), err)
	}
	return newCondition(conditionType, corev1.ConditionTrue, ReasonDiscoveryFailed, message)
}

func parsingCondition(err error) corev1.NamespaceCondition {
	const conditionType = corev1.NamespaceDeletionGVParsingFailure
	if err == nil {
		return newCondition(conditionType, corev1.ConditionFalse, ReasonParsedGroupVersions, messageParsed)
	}
	return newCondition(conditionType, corev1.ConditionTrue, ReasonGroupVersionParsingFailed, err.Error())
}

func contentCondition(report *Report) corev1.NamespaceCondition {
	const conditionType = corev1.NamespaceDeletionContentFailure
	switch {
	case len(report.Errors) > 0:
		texts := make([]string, 0, len(report.Errors))
		for _, err := range report.Errors {
			texts = append(texts, err.Error())
		}
		slices.Sort(texts)
		return newCondition(conditionType, corev1.ConditionTrue, ReasonContentDeletionFailed,
			fmt.Sprintf(messageDeletionFailed, len(texts), strings.Join(texts, ", ")))
	case report.WaitReason != "":
		return newCondition(conditionType, corev1.ConditionFalse, ReasonContentDeletionOrdered,
			fmt.Sprintf(messageDeletionOrdered, report.WaitReason))
	case report.Incomplete:
		return newCondition(conditionType, corev1.ConditionFalse, ReasonContentDeletionOrdered, messageDeletionInProgress)
	}
	return falseOrUnknown(report, conditionType, ReasonContentDeleted, messageContentDeleted)
}

func remainingCondition(report *Report) corev1.NamespaceCondition {
	const conditionType = corev1.NamespaceContentRemaining
	if len(report.Remaining) == 0 {
		return falseOrUnknown(report, conditionType, ReasonContentRemoved, messageContentRemoved)
	}
	texts := make([]string, 0, len(report.Remaining))
	for _, remaining := range report.Remaining {
		texts = append(texts, fmt.Sprintf(messageResourceInstances,
			remaining.Type.Resource, remaining.Type.Group, remaining.Count))
	}
	slices.Sort(texts)
	return newCondition(conditionType, corev1.ConditionTrue, ReasonSomeResourcesRemain,
		fmt.Sprintf(messageResourcesRemain, strings.Join(texts, ", ")))
}

// falseOrUnknown returns a condition with status False, or with status Unknown if the remaining
// objects of some types are not known.
func falseOrUnknown(
	report *Report, conditionType corev1.NamespaceConditionType, reason, message string,
) corev1.NamespaceCondition {
	switch {
	case len(report.Unknown) > 0:
		names := make([]string, 0, len(report.Unknown))
		for _, resource := range report.Unknown {
			names = append(names, resource.String())
		}
		message = fmt.Sprintf(messageUnknownUnlisted, joinSome(names))
	case !report.Resources.IsComplete():
		message = messageUnknownUndiscovered
	default:
		return newCondition(conditionType, corev1.ConditionFalse, reason, message)
	}
	return newCondition(conditionType, corev1.ConditionUnknown, ReasonContentUnknown, message)
}

func finalizersCondition(report *Report) corev1.NamespaceCondition {
	const conditionType = corev1.NamespaceFinalizersRemaining
	totals := map[string]int{}
	count, listed := 0, 0
	for _, remaining := range report.Remaining {
		count += remaining.Count
		listed += remaining.Listed
		for finalizer, number := range remaining.Finalizers {
			totals[finalizer] += number
		}
	}
	if len(totals) == 0 {
		return falseOrUnknown(report, conditionType, ReasonContentHasNoFinalizers, messageNoFinalizers)
	}
	texts := make([]string, 0, len(totals))
	for finalizer, number := range totals {
		texts = append(texts, fmt.Sprintf(messageFinalizerInstances, finalizer, number))
	}
	slices.Sort(texts)
	message := fmt.Sprintf(messageFinalizersRemain, strings.Join(texts, ", "))
	if listed < count {
		message += fmt.Sprintf(messageFinalizersOfSome, listed, count)
	}
	return newCondition(conditionType, corev1.ConditionTrue, ReasonSomeFinalizersRemain, message)
}

// TerminatingReason is why a Namespace is still Terminating, as reported in metrics.
type TerminatingReason string

const (
	// TerminatingDeleting means that its content is being deleted, and no obstacle is known.
	TerminatingDeleting TerminatingReason = "Deleting"
	// TerminatingObjectsRemain means that objects remain.
	TerminatingObjectsRemain TerminatingReason = "ObjectsRemain"
	// TerminatingFailing means that some types could not be discovered or some objects could not be deleted.
	TerminatingFailing TerminatingReason = "Failing"
	// TerminatingFinalizersRemain means that the namespace finalizer was removed, but other finalizers remain.
	TerminatingFinalizersRemain TerminatingReason = "FinalizersRemain"
)

// TerminatingReasons returns all reasons.
func TerminatingReasons() []TerminatingReason {
	return []TerminatingReason{
		TerminatingDeleting, TerminatingObjectsRemain, TerminatingFailing, TerminatingFinalizersRemain,
	}
}

// TerminatingReasonOf returns why a terminating Namespace still exists, based on its finalizers and conditions.
func TerminatingReasonOf(namespace *corev1.Namespace, finalizer corev1.FinalizerName) TerminatingReason {
	switch {
	case !HasFinalizer(namespace, finalizer):
		return TerminatingFinalizersRemain
	case hasTrueCondition(namespace, corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
		corev1.NamespaceDeletionContentFailure):
		return TerminatingFailing
	case hasTrueCondition(namespace, corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining):
		return TerminatingObjectsRemain
	}
	return TerminatingDeleting
}

func hasTrueCondition(namespace *corev1.Namespace, conditionTypes ...corev1.NamespaceConditionType) bool {
	for _, conditionType := range conditionTypes {
		condition := nsobject.FindCondition(namespace, conditionType)
		if condition != nil && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// Condition messages. Those that the namespace controller of kube-controller-manager also writes must
// stay identical.
const (
	messageResourcesDiscovered = "All resources successfully discovered"
	messageParsed              = "All legacy kube types successfully parsed"
	messageContentDeleted      = "All content successfully deleted, may be waiting on finalization"
	messageContentRemoved      = "All content successfully removed"
	messageNoFinalizers        = "All content-preserving finalizers finished"

	messageDiscoveryFailed     = "Discovery failed for some groups, %d failing: %v"
	messageDeletionFailed      = "Failed to delete all resource types, %d remaining: %s"
	messageResourcesRemain     = "Some resources are remaining: %s"
	messageResourceInstances   = "%s.%s has %d resource instances"
	messageFinalizersRemain    = "Some content in the namespace has finalizers remaining: %s"
	messageFinalizerInstances  = "%s in %d resource instances"
	messageFinalizersOfSome    = " (counted in %d of %d resource instances)" // appended to upstream's message
	messageDeletionOrdered     = "Content is deleted in order: %s"
	messageDeletionInProgress  = "Content is being deleted"
	messageDeletionRefused     = "The operator does not delete the content of the namespace: %s"
	messageUnknownUnlisted     = "Remaining objects are unknown: failed to list %s"
	messageUnknownUndiscovered = "Remaining objects are unknown: failed to discover some resource types"
)

// The parts of messageDeletionOrdered.
const (
	waitForDeletion = "waiting for the deletion of %s before deleting %s"
	waitForCalls    = "waiting until requests for %s succeed, or have failed for %s, before deleting %s"
	waitForList     = "failed to list %s, which must be deleted before %s"

	nextDefault      = "other resources"
	nextDependencies = "RBAC objects, ServiceAccounts, Secrets, ConfigMaps, NetworkPolicies and Leases"
)

const (
	refusalSystemNamespace = "namespace %q is required by the cluster"
	refusalOwnNamespace    = "namespace %q contains the running operator; to delete the namespace, run the operator " +
		"outside the cluster with `make run`, or enable the namespace controller of kube-controller-manager"

	invalidFinalizer      = "%q is not a valid namespace finalizer; use %q or a qualified name: %s"
	finalizerNeedsDomain  = "a domain prefix is required, such as example.com/agent"
	messageReplaced       = "the namespace was deleted, created again, or finalized by another controller"
	errNoCoreResourceType = "discovery returned no deletable resource type in the core group"
)

// The log messages of the Finalizer.
const (
	logStarted    = "Started finalization"
	logSuperseded = "Another controller finalized the namespace"
)

// maxNames is the maximum number of names in a message.
const maxNames = 3

// joinSome joins the first names and adds the number of further names.
func joinSome(names []string) string {
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:maxNames], ", ") + " and " + printable.Count(len(names)-maxNames, "other")
}

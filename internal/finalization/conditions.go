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

	"github.com/nslifecycle/nslifecycle/internal/nscondition"
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
		condition.Message = nscondition.Shorten(condition.Message, maxMessage)
		if nscondition.Complete(nscondition.Find(namespace, condition.Type), &condition, now) {
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

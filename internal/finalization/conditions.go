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

// Reasons of the conditions, as written by upstream's namespace controller.
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

	// ReasonContentDeletionOrdered means that nothing failed, but not all objects are deleted yet.
	// Upstream uses the reason ContentDeleted in this case.
	ReasonContentDeletionOrdered = "ContentDeletionOrdered"
	// ReasonContentUnknown, with status Unknown, means that no object was found, but not all types
	// could be listed. Upstream reports that all content is removed in this case.
	ReasonContentUnknown = "ContentUnknown"
)

// maxMessage is the longest message of a condition, in bytes. Messages quote API servers, and the
// API server refuses a Namespace that is too large.
const maxMessage = 16 << 10

// ComputeConditions returns the conditions of a Namespace that a report changes, with upstream's
// types, reasons and messages.
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

// ComputeRefusal returns the condition of a Namespace whose content is not deleted, if it changes.
func ComputeRefusal(namespace *corev1.Namespace, reason string, now metav1.Time) []corev1.NamespaceCondition {
	return computeChanged(namespace, []corev1.NamespaceCondition{{
		Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionTrue,
		Reason: ReasonContentDeletionFailed, Message: fmt.Sprintf(messageDeletionRefused, reason),
	}}, now)
}

// computeChanged returns the wanted conditions that differ from those of a Namespace, with their
// transition times.
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

func discoveryCondition(err error) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type: corev1.NamespaceDeletionDiscoveryFailure, Status: corev1.ConditionFalse,
		Reason: ReasonResourcesDiscovered, Message: messageResourcesDiscovered,
	}
	if err == nil {
		return condition
	}
	condition.Status, condition.Reason, condition.Message = corev1.ConditionTrue, ReasonDiscoveryFailed, err.Error()
	var groups *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &groups) {
		condition.Message = fmt.Sprintf(messageDiscoveryFailed, len(groups.Groups), err)
	}
	return condition
}

func parsingCondition(err error) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type: corev1.NamespaceDeletionGVParsingFailure, Status: corev1.ConditionFalse,
		Reason: ReasonParsedGroupVersions, Message: messageParsed,
	}
	if err != nil {
		condition.Status, condition.Reason = corev1.ConditionTrue, ReasonGroupVersionParsingFailed
		condition.Message = err.Error()
	}
	return condition
}

func contentCondition(report *Report) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionFalse,
		Reason:  ReasonContentDeleted,
		Message: messageContentDeleted,
	}
	switch {
	case len(report.Errors) > 0:
		texts := make([]string, 0, len(report.Errors))
		for _, err := range report.Errors {
			texts = append(texts, err.Error())
		}
		slices.Sort(texts)
		condition.Status, condition.Reason = corev1.ConditionTrue, ReasonContentDeletionFailed
		condition.Message = fmt.Sprintf(messageDeletionFailed,
			len(texts), strings.Join(texts, ", "))
	case report.WaitReason != "":
		condition.Reason = ReasonContentDeletionOrdered
		condition.Message = fmt.Sprintf(messageDeletionOrdered, report.WaitReason)
	case report.Incomplete:
		condition.Reason, condition.Message = ReasonContentDeletionOrdered, messageDeletionInProgress
	default:
		return orUnknown(&condition, report)
	}
	return condition
}

func remainingCondition(report *Report) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionFalse,
		Reason: ReasonContentRemoved, Message: messageContentRemoved,
	}
	texts := make([]string, 0, len(report.Remaining))
	for _, remaining := range report.Remaining {
		texts = append(texts, fmt.Sprintf(messageResourceInstances,
			remaining.Type.Resource, remaining.Type.Group, remaining.Count))
	}
	if len(texts) > 0 {
		slices.Sort(texts)
		condition.Status, condition.Reason = corev1.ConditionTrue, ReasonSomeResourcesRemain
		condition.Message = fmt.Sprintf(messageResourcesRemain, strings.Join(texts, ", "))
		return condition
	}
	return orUnknown(&condition, report)
}

// orUnknown returns a condition with status Unknown if the remaining objects of some types are not
// known, and otherwise the given one.
func orUnknown(condition *corev1.NamespaceCondition, report *Report) corev1.NamespaceCondition {
	switch {
	case len(report.Unknown) > 0:
		names := make([]string, 0, len(report.Unknown))
		for _, resource := range report.Unknown {
			names = append(names, resource.String())
		}
		condition.Message = fmt.Sprintf(messageUnknownUnlisted, joinSome(names))
	case !report.Resources.IsComplete():
		condition.Message = messageUnknownUndiscovered
	default:
		return *condition
	}
	condition.Status, condition.Reason = corev1.ConditionUnknown, ReasonContentUnknown
	return *condition
}

func finalizersCondition(report *Report) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionFalse,
		Reason: ReasonContentHasNoFinalizers, Message: messageNoFinalizers,
	}
	totals := map[string]int{}
	count, listed := 0, 0
	for _, remaining := range report.Remaining {
		count += remaining.Count
		listed += remaining.Listed
		for finalizer, number := range remaining.Finalizers {
			totals[finalizer] += number
		}
	}
	texts := make([]string, 0, len(totals))
	for finalizer, number := range totals {
		texts = append(texts, fmt.Sprintf(messageFinalizerInstances, finalizer, number))
	}
	if len(texts) > 0 {
		slices.Sort(texts)
		condition.Status, condition.Reason = corev1.ConditionTrue, ReasonSomeFinalizersRemain
		condition.Message = fmt.Sprintf(messageFinalizersRemain, strings.Join(texts, ", "))
		if listed < count {
			condition.Message += fmt.Sprintf(messageFinalizersOfSome, listed, count)
		}
		return condition
	}
	return orUnknown(&condition, report)
}

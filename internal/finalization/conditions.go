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

// Reasons of the conditions, those of upstream's namespace controller.
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

	// ReasonContentDeletionOrdered is ours: nothing has failed, but not everything has been
	// deleted yet. Upstream says ContentDeleted then.
	ReasonContentDeletionOrdered = "ContentDeletionOrdered"
	// ReasonContentUnknown is ours, with status Unknown: nothing is known to be left, but
	// not everything could be looked at. Upstream says that all content is removed then.
	ReasonContentUnknown = "ContentUnknown"
)

// maxMessage is the longest message of a condition, in bytes. Messages quote API servers, and the
// API server refuses a Namespace that is too large.
const maxMessage = 16 << 10

// ComputeConditions returns those conditions of a Namespace that a report changes, with
// upstream's types, reasons and messages. All others are left alone.
func ComputeConditions(
	namespace *corev1.Namespace, report *Report, now metav1.Time,
) []corev1.NamespaceCondition {
	return changed(namespace, []corev1.NamespaceCondition{
		discoveryCondition(report.Inventory.DiscoveryError),
		parsingCondition(report.Inventory.ParseError),
		contentCondition(report),
		remainingCondition(report),
		finalizersCondition(report),
	}, now)
}

// ComputeRefusal returns the condition of a Namespace that is not emptied, if that
// changes it.
func ComputeRefusal(namespace *corev1.Namespace, why string, now metav1.Time) []corev1.NamespaceCondition {
	return changed(namespace, []corev1.NamespaceCondition{{
		Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionTrue,
		Reason: ReasonContentDeletionFailed, Message: "Nothing is deleted: " + why,
	}}, now)
}

// changed returns those of the wanted conditions that differ from a Namespace's, with
// the time of their last transition.
func changed(
	namespace *corev1.Namespace, wanted []corev1.NamespaceCondition, now metav1.Time,
) []corev1.NamespaceCondition {
	var result []corev1.NamespaceCondition
	for _, condition := range wanted {
		condition.LastTransitionTime = now
		condition.Message = nscondition.Shorten(condition.Message, maxMessage)
		if old := nscondition.Find(namespace, condition.Type); old != nil {
			if old.Status == condition.Status {
				condition.LastTransitionTime = old.LastTransitionTime
			}
			if old.Status == condition.Status && old.Reason == condition.Reason && old.Message == condition.Message {
				continue
			}
		}
		result = append(result, condition)
	}
	return result
}

func discoveryCondition(err error) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type: corev1.NamespaceDeletionDiscoveryFailure, Status: corev1.ConditionFalse,
		Reason: ReasonResourcesDiscovered, Message: "All resources successfully discovered",
	}
	if err == nil {
		return condition
	}
	condition.Status, condition.Reason, condition.Message = corev1.ConditionTrue, ReasonDiscoveryFailed, err.Error()
	var groups *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &groups) {
		condition.Message = fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(groups.Groups), err)
	}
	return condition
}

func parsingCondition(err error) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type: corev1.NamespaceDeletionGVParsingFailure, Status: corev1.ConditionFalse,
		Reason: ReasonParsedGroupVersions, Message: "All legacy kube types successfully parsed",
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
		Message: "All content successfully deleted, may be waiting on finalization",
	}
	switch {
	case len(report.Errors) > 0:
		texts := make([]string, 0, len(report.Errors))
		for _, err := range report.Errors {
			texts = append(texts, err.Error())
		}
		slices.Sort(texts)
		condition.Status, condition.Reason = corev1.ConditionTrue, ReasonContentDeletionFailed
		condition.Message = fmt.Sprintf("Failed to delete all resource types, %d remaining: %s",
			len(texts), strings.Join(texts, ", "))
	case report.Wait != "":
		condition.Reason, condition.Message = ReasonContentDeletionOrdered, "Content is deleted in order: "+report.Wait
	case report.HasMore:
		condition.Reason, condition.Message = ReasonContentDeletionOrdered, "Content is being deleted"
	default:
		return orUnknown(&condition, report)
	}
	return condition
}

func remainingCondition(report *Report) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionFalse,
		Reason: ReasonContentRemoved, Message: "All content successfully removed",
	}
	texts := make([]string, 0, len(report.Remaining))
	for _, remaining := range report.Remaining {
		texts = append(texts, fmt.Sprintf("%s.%s has %d resource instances",
			remaining.Type.Resource, remaining.Type.Group, remaining.Count))
	}
	if len(texts) > 0 {
		slices.Sort(texts)
		condition.Status, condition.Reason = corev1.ConditionTrue, ReasonSomeResourcesRemain
		condition.Message = "Some resources are remaining: " + strings.Join(texts, ", ")
		return condition
	}
	return orUnknown(&condition, report)
}

// orUnknown makes a condition that says that all is well Unknown where that is not
// known.
func orUnknown(condition *corev1.NamespaceCondition, report *Report) corev1.NamespaceCondition {
	switch {
	case len(report.Unknown) > 0:
		names := make([]string, 0, len(report.Unknown))
		for _, resource := range report.Unknown {
			names = append(names, resource.String())
		}
		condition.Message = "It is not known what is left of " + joinSome(names) + ", which could not be listed"
	case !report.Inventory.IsComplete():
		condition.Message = "It is not known what is left of the types that could not be discovered"
	default:
		return *condition
	}
	condition.Status, condition.Reason = corev1.ConditionUnknown, ReasonContentUnknown
	return *condition
}

func finalizersCondition(report *Report) corev1.NamespaceCondition {
	condition := corev1.NamespaceCondition{
		Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionFalse,
		Reason: ReasonContentHasNoFinalizers, Message: "All content-preserving finalizers finished",
	}
	totals := map[string]int{}
	count, seen := 0, 0
	for _, remaining := range report.Remaining {
		count += remaining.Count
		seen += remaining.Seen
		for finalizer, number := range remaining.Finalizers {
			totals[finalizer] += number
		}
	}
	texts := make([]string, 0, len(totals))
	for finalizer, number := range totals {
		texts = append(texts, fmt.Sprintf("%s in %d resource instances", finalizer, number))
	}
	if len(texts) > 0 {
		slices.Sort(texts)
		condition.Status, condition.Reason = corev1.ConditionTrue, ReasonSomeFinalizersRemain
		condition.Message = "Some content in the namespace has finalizers remaining: " + strings.Join(texts, ", ")
		if seen < count {
			condition.Message += fmt.Sprintf(", among %d of %d that were looked at", seen, count)
		}
		return condition
	}
	return orUnknown(&condition, report)
}

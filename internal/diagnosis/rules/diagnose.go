// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// Diagnose applies all rules to the facts about a namespace.
func Diagnose(facts *diagnosis.Facts) *diagnosis.Diagnosis {
	result := &diagnosis.Diagnosis{
		Namespace: facts.Namespace.Name, UID: facts.Namespace.UID, Stage: diagnosis.StageOf(facts.Namespace),
	}
	for _, unread := range facts.Unread {
		result.Unread = append(result.Unread, unread.Why)
	}
	slices.Sort(result.Unread)
	result.Unread = slices.Compact(result.Unread)
	result.Since = stageBegan(facts.Namespace, result.Stage)
	result.Findings = view{facts}.find()
	slices.SortStableFunc(result.Findings, compareFindings)
	if facts.IsPublic {
		facts.Redact(result.Findings)
	}
	result.State, result.Summary = summarize(view{facts}, result)
	return result
}

// causeOrder lists each cause before its possible consequences.
var causeOrder = []diagnosis.Cause{
	diagnosis.CauseNamespaceControllerUnresponsive, diagnosis.CauseForbidden,
	diagnosis.CauseAPIServiceUnavailable, diagnosis.CauseDiscoveryStale, diagnosis.CauseDiscoveryFailing,
	diagnosis.CauseGroupVersionInvalid,
	diagnosis.CauseConversionWebhookFailing, diagnosis.CauseStorageUnreadable,
	diagnosis.CauseAdmissionWebhookFailing, diagnosis.CauseAdmissionRefused, diagnosis.CauseFinalizerRemovalInvalid,
	diagnosis.CauseDependencyMissing, diagnosis.CauseFinalizerOwnerFailing, diagnosis.CauseObjectPaused,
	diagnosis.CauseFinalizerOwnerInNamespace, diagnosis.CauseFinalizerOwnerNotRunning,
	diagnosis.CauseFinalizerOwnerForbidden, diagnosis.CauseFinalizerOwnerNotFound,
	diagnosis.CausePodOnUnreachableNode, diagnosis.CausePodNotTerminating, diagnosis.CausePodFinalizer,
	diagnosis.CauseCloudResource, diagnosis.CauseVolumeInUse, diagnosis.CauseForegroundDeletion,
	diagnosis.CauseFinalizerPending, diagnosis.CauseCRDTerminating,
	diagnosis.CauseThrottled, diagnosis.CauseTooManyObjects, diagnosis.CauseNamespaceFinalizer,
	diagnosis.CauseNamespaceMetadataFinalizer, diagnosis.CauseUnknown,
}

// rankOrder lists the ranks, best first.
var rankOrder = []diagnosis.Rank{diagnosis.RankProven, diagnosis.RankPublished, diagnosis.RankInferred}

// compareFindings sorts findings by rank, then by causeOrder, then by the number of objects.
func compareFindings(a, b diagnosis.Finding) int {
	return cmp.Or(cmp.Compare(slices.Index(rankOrder, a.Rank), slices.Index(rankOrder, b.Rank)),
		cmp.Compare(slices.Index(causeOrder, a.Cause), slices.Index(causeOrder, b.Cause)),
		cmp.Compare(b.Count, a.Count), cmp.Compare(a.Message, b.Message))
}

// stageBegan returns when the stage of a Namespace began.
func stageBegan(namespace *corev1.Namespace, stage diagnosis.Stage) time.Time {
	switch stage {
	case diagnosis.StageTerminating:
		return namespace.DeletionTimestamp.Time
	case diagnosis.StageActive:
		condition := nscondition.Find(namespace, v1alpha1.ConditionInitializing)
		if condition != nil && condition.Status == corev1.ConditionFalse && condition.Reason == v1alpha1.ReasonCompleted {
			return condition.LastTransitionTime.Time
		}
	}
	return namespace.CreationTimestamp.Time
}

func summarize(f view, result *diagnosis.Diagnosis) (diagnosis.State, string) {
	state := diagnosis.Progressing
	if f.isUnknown(result) {
		state = diagnosis.Unknown
	} else if len(result.Findings) > 0 {
		state = diagnosis.Blocked
	}
	switch {
	case len(result.Findings) > 0:
		return state, result.Findings[0].Message
	case result.Stage == diagnosis.StageInitializing:
		pending := diagnosis.PendingInitializers(f.Namespace)
		return state, fmt.Sprintf(summaryInitializing, pending[0], len(pending))
	case result.Stage == diagnosis.StageTerminating:
		return state, fmt.Sprintf(summaryDeleted, f.Ago(f.Namespace.DeletionTimestamp.Time)) +
			f.terminatingSummary()
	}
	return diagnosis.Healthy, summaryActive
}

// isUnknown reports whether the diagnosis has found no cause, and a cause might be among what could
// not be read. Until the progress deadline, only the content of the namespace is relevant.
func (f view) isUnknown(result *diagnosis.Diagnosis) bool {
	hasCause := slices.ContainsFunc(result.Findings, func(finding diagnosis.Finding) bool {
		return finding.Cause != diagnosis.CauseUnknown
	})
	if hasCause || result.Stage == diagnosis.StageActive || f.Progress.Observed() {
		return false
	}
	isContentUnread := !f.IsRead(diagnosis.SourceDiscovery, diagnosis.SourceContent) ||
		slices.ContainsFunc(f.Content, func(content resourcetypes.Content) bool { return content.Err != nil })
	return isContentUnread || len(f.Unread) > 0 && f.IsOverdue(result.Since)
}

func (f view) terminatingSummary() string {
	switch until := f.gracePeriodsEnd(); {
	case f.isEmptinessUnnoticed():
		return summaryEmptyUnnoticed
	case countOf(f.Content) == 0:
		return summaryEmpty
	case until.After(f.Now):
		return fmt.Sprintf(summaryGracePeriod, diagnosis.FormatTime(until), f.remainingText())
	case f.Progress.Observed():
		return fmt.Sprintf(summaryDecreasing, f.remainingText())
	}
	return f.remainingText()
}

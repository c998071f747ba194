// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Diagnose computes what is wrong with a namespace, if anything. It is a pure function: the
// same facts give the same diagnosis, to the word.
func Diagnose(facts *Facts) *Diagnosis {
	if facts == nil || facts.Namespace == nil {
		return &Diagnosis{Stage: StageActive, State: Healthy, Summary: "nothing is known of this namespace"}
	}
	diagnosis := &Diagnosis{
		Namespace: facts.Namespace.Name, UID: facts.Namespace.UID, Stage: stageOf(facts.Namespace),
	}
	for _, unread := range facts.Unread {
		diagnosis.Unread = append(diagnosis.Unread, unread.Why)
	}
	slices.Sort(diagnosis.Unread)
	diagnosis.Unread = slices.Compact(diagnosis.Unread)
	diagnosis.Since = since(facts.Namespace, diagnosis.Stage)
	diagnosis.Findings = find(facts, diagnosis.Stage)
	diagnosis.State, diagnosis.Summary = summarize(facts, diagnosis)
	return diagnosis
}

// families find the causes that hold a namespace that is being deleted. Each leaves to the
// others what follows from theirs.
var families = []func(*Facts) []Finding{
	findDiscovery, findDefinitions, findStorage, findAdmission, findFinalizers, findPods, findVolumes, findCloud,
	findForeground, findTokens, findSilence,
}

func find(facts *Facts, stage Stage) []Finding {
	var findings []Finding
	switch stage {
	case StageInitializing:
		findings = findInitializers(facts)
	case StageTerminating:
		for _, family := range families {
			findings = append(findings, family(facts)...)
		}
		if len(findings) == 0 {
			findings = findUnknown(facts)
		}
	}
	slices.SortStableFunc(findings, compareFindings)
	if facts.IsPublic {
		facts.publish(findings)
	}
	return findings
}

// order puts a cause before what may follow from it.
var order = []Cause{
	CauseNamespaceControllerUnresponsive, CauseForbidden,
	CauseAPIServiceUnavailable, CauseDiscoveryStale, CauseDiscoveryFailing, CauseGroupVersionInvalid,
	CauseConversionWebhookFailing, CauseStorageUnreadable,
	CauseAdmissionWebhookFailing, CauseAdmissionRefused, CauseFinalizerRemovalInvalid,
	CauseFinalizerOwnerInNamespace, CauseFinalizerOwnerGone, CauseFinalizerOwnerForbidden, CauseDependencyDeleted,
	CausePodOnUnreachableNode, CausePodNotTerminating, CausePodFinalizer,
	CauseCloudResource, CauseVolumeInUse, CauseForegroundDeletion, CauseFinalizerPending, CauseCRDTerminating,
	CauseThrottled, CauseTooManyObjects, CauseNamespaceFinalizer, CauseNamespaceMetadataFinalizer, CauseUnknown,
}

// compareFindings puts what is proven first, then the cause that others follow from, then
// what holds most.
func compareFindings(a, b Finding) int {
	rank := func(certainty Certainty) int {
		if certainty == Proven {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a.Certainty), rank(b.Certainty)),
		cmp.Compare(slices.Index(order, a.Cause), slices.Index(order, b.Cause)),
		cmp.Compare(b.Count, a.Count), cmp.Compare(a.Message, b.Message))
}

func stageOf(namespace *corev1.Namespace) Stage {
	switch {
	case namespace.DeletionTimestamp != nil:
		return StageTerminating
	case len(pendingInitializers(namespace)) > 0:
		return StageInitializing
	}
	return StageActive
}

// pendingInitializers returns the names of those that have not done their work, in order.
func pendingInitializers(namespace *corev1.Namespace) []string {
	var names []string
	for name := range strings.SplitSeq(namespace.Annotations[v1alpha1.AnnotationPendingInitializers], ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// since returns when a stage of a Namespace began.
func since(namespace *corev1.Namespace, stage Stage) time.Time {
	switch stage {
	case StageTerminating:
		return namespace.DeletionTimestamp.Time
	case StageActive:
		for _, condition := range namespace.Status.Conditions {
			if condition.Type == v1alpha1.ConditionInitializing && condition.Status == corev1.ConditionFalse &&
				condition.Reason == v1alpha1.ReasonCompleted {
				return condition.LastTransitionTime.Time
			}
		}
	}
	return namespace.CreationTimestamp.Time
}

// summarize returns how a namespace is getting on, in one word and in one sentence.
func summarize(facts *Facts, diagnosis *Diagnosis) (State, string) {
	if len(diagnosis.Findings) > 0 {
		return Blocked, diagnosis.Findings[0].Message
	}
	switch diagnosis.Stage {
	case StageInitializing:
		pending := pendingInitializers(facts.Namespace)
		return Progressing, fmt.Sprintf("waits for initializer %s, the next of %d", pending[0], len(pending))
	case StageTerminating:
		return Progressing, describeProgress(facts)
	}
	return Healthy, "in use"
}

// describeProgress says what a namespace that is being deleted waits for.
func describeProgress(facts *Facts) string {
	deleted := fmt.Sprintf("deleted %s ago", facts.ago(facts.Namespace.DeletionTimestamp.Time))
	switch until := facts.podsUntil(); {
	case facts.isUnnoticed():
		return deleted + "; nothing is left in it, which the namespace controller has not noticed yet"
	case countOf(facts.Content) == 0:
		return deleted + "; nothing is known to be left in it"
	case until.After(facts.Now):
		return fmt.Sprintf("%s; pods have until %s to end, and %s left", deleted, stamp(until), facts.whatIsLeft())
	case facts.Movement.IsSeen():
		return fmt.Sprintf("%s; %s left, and becoming less", deleted, facts.whatIsLeft())
	}
	return fmt.Sprintf("%s; %s left", deleted, facts.whatIsLeft())
}

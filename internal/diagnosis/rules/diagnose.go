// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// Diagnose applies all rules to the facts about a namespace.
func Diagnose(facts *diagnosis.Facts) *diagnosis.Diagnosis {
	result := &diagnosis.Diagnosis{
		Namespace: facts.Namespace.Name, UID: facts.Namespace.UID, State: diagnosis.StateOf(facts.Namespace),
	}
	for _, unread := range facts.Unread {
		result.Unread = append(result.Unread, unread.Why)
	}
	slices.Sort(result.Unread)
	result.Unread = slices.Compact(result.Unread)
	result.Since = stateBegan(facts.Namespace, result.State)
	result.Findings = view{facts}.find()
	slices.SortStableFunc(result.Findings, compareFindings)
	if facts.IsPublic {
		facts.Redact(result.Findings)
	}
	result.Result, result.Summary = summarize(view{facts}, result)
	return result
}

// rankOrder lists the ranks, best first.
var rankOrder = []diagnosis.Rank{diagnosis.RankProven, diagnosis.RankPublished, diagnosis.RankInferred}

// compareFindings sorts findings by rank, then by cause, then by the number of objects.
func compareFindings(a, b diagnosis.Finding) int {
	_, positionA := entryOf(a.Cause)
	_, positionB := entryOf(b.Cause)
	return cmp.Or(cmp.Compare(slices.Index(rankOrder, a.Rank), slices.Index(rankOrder, b.Rank)),
		cmp.Compare(positionA, positionB), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Message, b.Message))
}

func stateBegan(namespace *corev1.Namespace, state diagnosis.NamespaceState) time.Time {
	switch state {
	case diagnosis.StateTerminating:
		return namespace.DeletionTimestamp.Time
	case diagnosis.StateInitialized:
		if at := initialization.InitializedAt(namespace); at != nil {
			return at.Time
		}
	}
	return namespace.CreationTimestamp.Time
}

func summarize(f view, result *diagnosis.Diagnosis) (diagnosis.Health, string) {
	health := diagnosis.Progressing
	if f.isUnknown(result) {
		health = diagnosis.Unknown
	} else if len(result.Findings) > 0 {
		health = diagnosis.Blocked
	}
	switch {
	case len(result.Findings) > 0:
		return health, result.Findings[0].Message
	case result.State == diagnosis.StateInitializing:
		pending := diagnosis.PendingInitializers(f.Namespace)
		return health, fmt.Sprintf("Waiting for initializer %s, the first of %d pending", pending[0], len(pending))
	case result.State == diagnosis.StateFailed:
		return health, "The initialization failed"
	case result.State == diagnosis.StateTerminating:
		return health, fmt.Sprintf("Deleted %s ago; ", f.Ago(f.Namespace.DeletionTimestamp.Time)) + f.terminatingSummary()
	}
	return diagnosis.Healthy, "The namespace is initialized"
}

// isUnknown reports whether the diagnosis has found no cause, but might have missed a cause because
// some facts could not be read. Until the progress deadline, only the content of the namespace is relevant.
func (f view) isUnknown(result *diagnosis.Diagnosis) bool {
	hasCause := slices.ContainsFunc(result.Findings, func(finding diagnosis.Finding) bool {
		return finding.Cause != diagnosis.CauseUnknown
	})
	if hasCause || result.State == diagnosis.StateInitialized || f.Progress.Observed() {
		return false
	}
	isContentUnread := !f.IsRead(diagnosis.SourceDiscovery, diagnosis.SourceContent) ||
		slices.ContainsFunc(f.Content, func(content resourcetypes.Content) bool { return content.Err != nil })
	return isContentUnread || len(f.Unread) > 0 && f.IsOverdue(result.Since)
}

func (f view) terminatingSummary() string {
	switch until := f.gracePeriodsEnd(); {
	case f.isEmptinessUnnoticed():
		return "the namespace is empty, but the namespace controller has not observed this yet"
	case len(f.holders()) > 0:
		return fmt.Sprintf("waiting for %s", strings.Join(f.holders(), ", "))
	case countOf(f.Content) == 0:
		return "no remaining objects are known"
	case until.After(f.Now):
		return fmt.Sprintf("the grace periods of pods end at %s; %s", diagnosis.FormatTime(until), f.remainingText())
	case f.Progress.Observed():
		return fmt.Sprintf("%s, and their number is decreasing", f.remainingText())
	}
	return f.remainingText()
}

// holders returns the namespace finalizers of other controllers for which an empty namespace waits.
func (f view) holders() []string {
	if !f.IsEmpty() || slices.Contains(f.Namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return nil
	}
	var holders []string
	for _, finalizer := range f.ExternalNamespaceFinalizers() {
		holders = append(holders, "namespace finalizer "+finalizer)
	}
	return holders
}

// MayHaveFindings reports whether findings are possible, based only on the Namespace. If not, no facts are collected.
func MayHaveFindings(facts *diagnosis.Facts) bool {
	switch diagnosis.StateOf(facts.Namespace) {
	case diagnosis.StateTerminating:
		return true
	case diagnosis.StateInitializing, diagnosis.StateFailed:
		return view{facts}.isTurnOverdue()
	}
	return false
}

// view adds two kinds of methods to the facts: the rules, and queries that several rules share.
type view struct{ *diagnosis.Facts }

// find applies the rules for the state of the namespace.
func (f view) find() []diagnosis.Finding {
	var findings []diagnosis.Finding
	blocked := diagnosis.BlockedCondition(diagnosis.StateOf(f.Namespace))
	if MayHaveFindings(f.Facts) {
		applied := []*rule{ruleUnknown}
		for _, entry := range causes {
			if entry.Blocks() == blocked && !slices.Contains(applied, entry.rule) {
				applied = append(applied, entry.rule)
				findings = append(findings, entry.rule.find(f)...)
			}
		}
	}
	findings = append(findings, f.findPublished(findings)...)
	if len(findings) == 0 && blocked == ruleUnknown.blocks {
		findings = f.findUnknown()
	}
	return findings
}

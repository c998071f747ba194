// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// reportsAbout returns the failures that controllers published about objects: first those since the
// deletion of the object, and the latest first.
func (f view) reportsAbout(objects []diagnosis.RemainingObject) []diagnosis.Report {
	var since, before []diagnosis.Report
	for _, report := range f.Reports {
		at := slices.IndexFunc(objects, func(object diagnosis.RemainingObject) bool {
			return isAbout(report, object)
		})
		if at < 0 || !report.IsFailure {
			continue
		}
		if !report.At.Before(objects[at].DeletedAt()) {
			since = append(since, report)
		} else if !report.IsEvent() { // An old Event does not show whether the problem still exists.
			before = append(before, report)
		}
	}
	latestFirst := func(a, b diagnosis.Report) int { return b.At.Compare(a.At) }
	slices.SortStableFunc(since, latestFirst)
	slices.SortStableFunc(before, latestFirst)
	return append(since, before...)
}

// isSinceDeletion reports whether a report about one of the objects was published after its deletion was
// requested. An older report can be from a controller that no longer exists.
func (f view) isSinceDeletion(report diagnosis.Report, objects []diagnosis.RemainingObject) bool {
	return slices.ContainsFunc(objects, func(object diagnosis.RemainingObject) bool {
		return isAbout(report, object) && !report.At.Before(object.DeletedAt())
	})
}

func isAbout(report diagnosis.Report, object diagnosis.RemainingObject) bool {
	return object.Name == report.Name && object.GroupResource() == report.Type.GroupResource()
}

// quoteReports quotes at most MaxObjects reports.
func quoteReports(reports []diagnosis.Report) []string {
	var texts []string
	for _, report := range reports[:min(len(reports), diagnosis.MaxObjects)] {
		texts = append(texts, quoteReport(report))
	}
	return texts
}

// quoteReport quotes a condition or an Event about an object.
func quoteReport(report diagnosis.Report) string {
	at := ""
	if !report.At.IsZero() {
		at = " at " + diagnosis.FormatTime(report.At)
	}
	return fmt.Sprintf(evidenceReport, report.Source, report.Type, strings.TrimSpace(report.Name), at,
		diagnosis.OneLine(report.Text))
}

// findPublished quotes the finding that the manager published on the Namespace. If much could not be
// read, the other findings can lack it.
func (f view) findPublished(found []diagnosis.Finding) []diagnosis.Finding {
	stage := diagnosis.StageOf(f.Namespace)
	if f.IsPublic || len(f.Unread) == 0 || !diagnosis.IsBlocked(f.Namespace, stage) {
		return nil
	}
	condition := f.Condition(diagnosis.BlockedCondition(stage))
	if slices.ContainsFunc(found, func(finding diagnosis.Finding) bool {
		return string(finding.Cause) == condition.Reason
	}) {
		return nil
	}
	return []diagnosis.Finding{f.aboutNamespace(diagnosis.Finding{
		Cause: diagnosis.Cause(condition.Reason), Rank: diagnosis.RankPublished, Message: condition.Message,
		Evidence: diagnosis.Published(quoteCondition(condition)),
		Remedies: []diagnosis.Remedy{diagnosis.Inspect(remedyReadMore)},
	})}
}

// missingDependency returns a text if a report names an object that does not exist in the namespace,
// according to the API server. Whether the object ever existed is unknown.
func (f view) missingDependency(report diagnosis.Report, objects []diagnosis.RemainingObject) string {
	match := notFound.FindStringSubmatch(report.Text)
	if match == nil || f.ResourceTypes == nil {
		return ""
	}
	missing := ""
	for _, candidate := range f.ResourceTypes.Types { // Several types can have the same name.
		isSelf := slices.ContainsFunc(objects, func(object diagnosis.RemainingObject) bool {
			return object.GroupResource() == candidate.GroupResource() && object.Name == match[2]
		})
		if !candidate.IsNamed(strings.ToLower(match[1])) || isSelf {
			continue
		}
		for _, content := range f.Content {
			if content.Type.GroupResource() == candidate.GroupResource() &&
				(content.Err != nil || len(content.Objects) < content.Count) {
				return "" // The object may be among those that were not listed.
			}
		}
		if f.exists(candidate.GroupResource(), match[2]) {
			return ""
		}
		if missing == "" {
			missing = fmt.Sprintf(evidenceDependency, candidate, match[2])
		}
	}
	return missing
}

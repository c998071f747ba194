// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

func quoteCondition(condition *corev1.NamespaceCondition) string {
	return fmt.Sprintf("condition %s=%s, %s since %s: %s", condition.Type, condition.Status, condition.Reason,
		diagnosis.FormatTime(condition.LastTransitionTime.Time), diagnosis.OneLine(condition.Message))
}

// quoteConditions quotes the given conditions of the Namespace that have status True.
func (f view) quoteConditions(conditionTypes ...corev1.NamespaceConditionType) []diagnosis.Evidence {
	var texts []string
	for _, conditionType := range conditionTypes {
		if condition := f.Condition(conditionType); condition != nil && condition.Status == corev1.ConditionTrue {
			texts = append(texts, quoteCondition(condition))
		}
	}
	return diagnosis.Published(texts...)
}

// finalizerEvidence describes the object that has been terminating for the longest time. It returns ""
// for a finalizer of the Namespace itself.
func finalizerEvidence(finalizer string, objects []diagnosis.RemainingObject) string {
	if len(objects) == 0 {
		return ""
	}
	first := oldest(objects)
	return fmt.Sprintf("%s %q has deletionTimestamp %s and finalizer %s",
		first.Type, first.Name, diagnosis.FormatTime(first.DeletedAt()), finalizer)
}

// unlistedObjects describes the types with objects that were not listed. In that case, the number
// of objects in a finding is a lower bound.
func (f view) unlistedObjects(objects []diagnosis.RemainingObject) []string {
	var texts []string
	for _, content := range f.Content {
		listed := len(content.Objects)
		if listed < content.Count && slices.Contains(typesOf(objects), content.Type.String()) {
			texts = append(texts, fmt.Sprintf(evidenceUnlisted, listed, content.Count, content.Type))
		}
	}
	return texts
}

func typesOf(objects []diagnosis.RemainingObject) []string {
	var names []string
	for _, object := range objects {
		names = append(names, object.Type.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// describe names one object, or counts several: `configmaps "a"`, "3 configmaps", "4 objects
// (configmaps, secrets)".
func describe(objects []diagnosis.RemainingObject) string {
	names := typesOf(objects)
	switch {
	case len(objects) == 1:
		return fmt.Sprintf("%s %q", names[0], objects[0].Name)
	case len(names) == 1:
		return fmt.Sprintf("%d %s", len(objects), names[0])
	}
	return fmt.Sprintf("%d objects (%s)", len(objects), diagnosis.JoinNames(names))
}

// oldest returns the object with the earliest deletionTimestamp. There must be at least one object.
func oldest(objects []diagnosis.RemainingObject) diagnosis.RemainingObject {
	return slices.MinFunc(objects, func(a, b diagnosis.RemainingObject) int {
		return a.DeletedAt().Compare(b.DeletedAt())
	})
}

// firstDeletedAt returns the earliest deletionTimestamp of the given terminating objects, or the zero
// time if there are none.
func firstDeletedAt(objects []diagnosis.RemainingObject) time.Time {
	if len(objects) == 0 {
		return time.Time{}
	}
	return oldest(objects).DeletedAt()
}

// remainingText counts the remaining objects by type.
func (f view) remainingText() string {
	var texts []string
	count, isAtLeast := 0, false
	for _, content := range f.Content {
		if content.Count == 0 {
			continue
		}
		count += content.Count
		isAtLeast = isAtLeast || content.IsAtLeast
		texts = append(texts, fmt.Sprintf("%d %s", content.Count, content.Type))
	}
	switch {
	case count == 0:
		return "an unknown number of objects still exist"
	case count == 1:
		return fmt.Sprintf("%s still exists", texts[0])
	case isAtLeast:
		return fmt.Sprintf("at least %s still exist", diagnosis.JoinNames(texts))
	}
	return fmt.Sprintf("%s still exist", diagnosis.JoinNames(texts))
}

// countOf returns the number of remaining objects of all types.
func countOf(contents []resourcetypes.Content) int {
	count := 0
	for _, content := range contents {
		count += content.Count
	}
	return count
}

// inspectCommand returns the command that prints an object with its finalizers and managedFields.
func (f view) inspectCommand(object diagnosis.RemainingObject) string {
	return shell.Command("kubectl get %s %s --namespace=%s --output=yaml --show-managed-fields",
		object.Type, object.Name, f.Namespace.Name)
}

// These patterns match the messages of errors from the API server. Conditions contain only the
// messages.
var (
	conversion = regexp.MustCompile(`conversion webhook for ([^,\s]+), Kind=(\w+)`)
	throttled  = regexp.MustCompile(`(?i)too many requests|client rate limiter|please try again later`)
	timedOut   = regexp.MustCompile(`(?i)the server was unable to return a response in the time allotted|` +
		`etcdserver: request timed out|request did not complete within|context deadline exceeded|Timeout: `)
	unreadable = regexp.MustCompile(`(?i)StorageReadError|failed to decrypt|unable to transform key|` +
		`no kind "[^"]*" is registered|proto: |illegal wireType|json: cannot unmarshal|corrupt object|` +
		`couldn't get version/kind|error decoding|invalid character`)
	notFound = regexp.MustCompile(`(?i)([a-z][\w.-]*)\s+"([^"]+)"\s+(?:was\s+)?not found`)
)

// isInvalid reports whether an error is a validation error that does not come from a policy.
func isInvalid(err error) bool {
	return apierrors.IsInvalid(err) && !denial.IsFromAdmission(err.Error())
}

// isDenied reports whether admission control, not the authorizer, denied a request.
func isDenied(err error) bool {
	return denial.IsFromAdmission(err.Error()) || apierrors.IsForbidden(err) && !denial.IsMissingPermission(err)
}

// isStoreReadError reports whether the API server cannot read stored objects.
func isStoreReadError(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonStoreReadError || unreadable.MatchString(err.Error())
}

func isServerError(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err)
}

func isStale(err error) bool {
	_, ok := err.(discovery.StaleGroupVersionError) //nolint:errorlint // discovery never wraps it
	return ok
}

// reportsAbout returns the failures that controllers published about objects: first the failures since the
// deletion of the object, each time the latest first.
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
	return fmt.Sprintf("%s of %s %s%s: %s", report.Source, report.Type, strings.TrimSpace(report.Name), at,
		diagnosis.OneLine(report.Text))
}

// findPublished quotes the finding that the manager published on the Namespace. If much could not be
// read, the other findings can lack it.
func (f view) findPublished(found []diagnosis.Finding) []diagnosis.Finding {
	state := diagnosis.StateOf(f.Namespace)
	if f.IsPublic || len(f.Unread) == 0 || !diagnosis.IsBlocked(f.Namespace, state) {
		return nil
	}
	condition := f.Condition(diagnosis.BlockedCondition(state))
	if slices.ContainsFunc(found, func(finding diagnosis.Finding) bool {
		return string(finding.Cause) == condition.Reason
	}) {
		return nil
	}
	return []diagnosis.Finding{f.aboutNamespace(diagnosis.Finding{
		Cause: diagnosis.Cause(condition.Reason), Rank: diagnosis.RankPublished, Message: condition.Message,
		Evidence: diagnosis.Published(quoteCondition(condition)),
		Remedies: []diagnosis.Remedy{diagnosis.Inspect(
			"Some objects could not be read: ask an administrator to run kubectl nslifecycle explain")},
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
			missing = fmt.Sprintf("%s %q does not exist in the namespace", candidate, match[2])
		}
	}
	return missing
}

// BackendsNeeded returns the Services of webhooks and aggregated API servers that might have failed.
func BackendsNeeded(facts *diagnosis.Facts) []types.NamespacedName {
	f := view{facts}
	var names []types.NamespacedName
	for i := range f.APIServices {
		if f.isUnavailable(&f.APIServices[i]) {
			names = append(names, f.APIServices[i].Service)
		}
	}
	for _, webhook := range f.Webhooks {
		if webhook.Service != nil {
			names = append(names, *webhook.Service)
		}
	}
	for i := range f.CRDs {
		if service := conversionService(&f.CRDs[i]); service != nil {
			names = append(names, *service)
		}
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(names)
}

func (f view) addBackendProblem(finding *diagnosis.Finding, name types.NamespacedName) bool {
	problem := f.ServiceName(name)
	backend, ok := f.Backends[name]
	switch {
	case !ok, backend.HasReadyEndpoint:
		return false
	case backend.Exists:
		problem += evidenceBackendNotReady
	case name.Namespace == f.Namespace.Name:
		problem += evidenceBackendDeleted
	default:
		problem += " does not exist"
	}
	finding.Message += ": " + problem
	finding.Evidence = append(finding.Evidence, diagnosis.Proven(problem)...)
	return true
}

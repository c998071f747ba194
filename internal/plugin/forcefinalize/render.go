// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
)

// Flags of the finalize command.
const (
	FlagNamespaceFinalizer = "namespace-finalizer"
	FlagMetadataFinalizer  = "metadata-finalizer"
	FlagFinalizer          = "finalizer"
	FlagOrphan             = "orphan"
	FlagAllowUnread        = "allow-unread"
	FlagIgnoreActiveOwner  = "ignore-active-owner"
)

const commandPrefix = "kubectl nslifecycle finalize"

func describeNamespaceFinalizer(name string) string { return "namespace finalizer " + name }

func describeMetadataFinalizer(name string) string {
	return "finalizer " + name + " of the Namespace"
}

// orphanConsequences describes the consequences of orphaning objects, by resource type.
var orphanConsequences = map[string]string{
	"persistentvolumeclaims":      "their volumes and data remain and continue to incur costs",
	"pods":                        "their containers keep running on their nodes",
	"services":                    "their load balancers outside the cluster remain and continue to incur costs",
	"ingresses.networking.k8s.io": "their load balancers and DNS names outside the cluster remain",
	"secrets":                     "their data remains readable for users who can read Secrets in all namespaces",
	"rolebindings.rbac.authorization.k8s.io": "they become effective again in the next namespace with the same " +
		"name",
}

// textResult describes the state of the Namespace and its targets after the removal.
func textResult(plan *Plan) string {
	switch {
	case len(plan.HeldBy) > 0 && len(plan.Targets) > 0:
		objects := "the object is deleted unless it has other finalizers"
		if len(plan.Targets) > 1 {
			objects = "the objects are deleted unless they have other finalizers"
		}
		return fmt.Sprintf("%s; the Namespace still has: %s", objects, strings.Join(plan.HeldBy, ", "))
	case len(plan.HeldBy) > 0:
		return "the Namespace still has: " + strings.Join(plan.HeldBy, ", ")
	}
	return "the Namespace has no finalizers and is deleted immediately"
}

// Render returns the diagnosis and the plan as text.
func Render(plan *Plan, colors printer.Palette, now time.Time) string {
	var out strings.Builder
	out.WriteString(printer.RenderDiagnosis(plan.Diagnosis, colors, now))
	out.WriteString("\n")
	heading, branches := "Plan", planBranches
	if plan.Removal == nil {
		heading, branches = "Finalizers that can be removed by force, least harmful first", candidateBranches
	}
	out.WriteString(heading + "\n\n")
	out.WriteString(printer.RenderTree(branches(plan)))
	return out.String()
}

func candidateBranches(plan *Plan) []printer.Branch {
	if len(plan.Candidates) == 0 {
		return []printer.Branch{{Text: "None: neither the Namespace nor the objects found in it have a finalizer."}}
	}
	var branches []printer.Branch
	for _, candidate := range plan.Candidates {
		branches = append(branches, printer.Branch{
			Label: printer.Capitalize(candidate.String()), Text: candidate.Effect,
			Children: []printer.Branch{{Text: candidate.Command, IsVerbatim: true}},
		})
	}
	return branches
}

func planBranches(plan *Plan) []printer.Branch {
	remove := printer.Branch{Label: "Remove", Text: plan.Removal.String()}
	for _, group := range groupByType(plan.Targets) {
		remove.Children = append(remove.Children, printer.Branch{Text: "from " + listGroup(group)})
	}
	branches := []printer.Branch{remove}
	if len(plan.NotDeleted) > 0 {
		branches = append(branches, printer.Branch{
			Label: "Kept on objects that are not being deleted", Text: ListObjects(plan.NotDeleted),
		})
	}
	branches = append(branches, printer.Branch{Label: "Result", Text: textResult(plan)})
	if len(plan.Orphans) > 0 {
		orphans := printer.Branch{Label: fmt.Sprintf("Orphaned objects (%d)", len(plan.Orphans))}
		for _, group := range groupByType(plan.Orphans) {
			orphans.Children = append(orphans.Children, printer.Branch{Text: listGroup(group)})
		}
		branches = append(branches, orphans)
	}
	if len(plan.Losses) > 0 {
		losses := printer.Branch{Label: "Consequences"}
		for _, loss := range plan.Losses {
			losses.Children = append(losses.Children, printer.Branch{Text: loss})
		}
		branches = append(branches, losses)
	}
	return branches
}

// maxNamedObjects is the maximum number of objects of each type that a message names. Further
// objects are only counted.
const maxNamedObjects = 3

// computeLosses returns sentences that describe what is lost or left behind if a plan is applied.
func computeLosses(plan *Plan) []string {
	var losses []string
	add := func(text string) {
		if text = printer.Sentence(text); text != "" && !slices.Contains(losses, text) {
			losses = append(losses, text)
		}
	}
	findings := matchingFindings(plan.Diagnosis, plan.Removal)
	if len(plan.Orphans) > 0 {
		// All findings are about objects that the removal orphans.
		findings = plan.Diagnosis.Findings
		add("the orphaned objects remain in etcd after the namespace is deleted; they become visible again when a " +
			"namespace with the same name is created")
		for _, group := range groupByType(plan.Orphans) {
			if consequence := orphanConsequences[group[0].Resource]; consequence != "" {
				add(fmt.Sprintf("%d %s: %s", len(group), group[0].Resource, consequence))
			}
		}
	}
	for i := range findings {
		add(findings[i].Loss)
	}
	if len(plan.Targets) > 0 && len(findings) == 0 {
		add("resources that the owner of the finalizer would have cleaned up are left behind, inside or outside the cluster")
	}
	return losses
}

// groupByType returns objects grouped by type. Groups and objects are sorted.
func groupByType(objects []RemainingObject) [][]RemainingObject {
	sorted := slices.SortedStableFunc(slices.Values(objects), compareObjects)
	var groups [][]RemainingObject
	for start := 0; start < len(sorted); {
		end := start
		for end < len(sorted) && sorted[end].Resource == sorted[start].Resource {
			end++
		}
		groups = append(groups, sorted[start:end])
		start = end
	}
	return groups
}

func compareObjects(a, b RemainingObject) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
}

// listGroup names the first objects of one type and counts the others.
func listGroup(group []RemainingObject) string {
	named := make([]diagnosis.Object, 0, maxNamedObjects)
	for _, object := range group[:min(len(group), maxNamedObjects)] {
		named = append(named, diagnosis.Object{Resource: object.Resource, Name: object.Name})
	}
	return printer.ListObjects(named, len(group), "")
}

// ListObjects names the first objects of each type and counts the others.
func ListObjects(objects []RemainingObject) string {
	var texts []string
	for _, group := range groupByType(objects) {
		texts = append(texts, listGroup(group))
	}
	return strings.Join(texts, "; ")
}

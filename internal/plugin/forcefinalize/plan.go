// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// Removal selects the finalizer to remove. At most one of the first three fields is set.
type Removal struct {
	// NamespaceFinalizer is an entry of spec.finalizers of the Namespace.
	NamespaceFinalizer string `json:"namespaceFinalizer,omitempty"`
	// MetadataFinalizer is an entry of metadata.finalizers of the Namespace.
	MetadataFinalizer string `json:"metadataFinalizer,omitempty"`
	// Finalizer is an entry of metadata.finalizers of objects in the namespace.
	Finalizer string `json:"finalizer,omitempty"`
	// Resources limits the removal of Finalizer to resource types or objects, for example pods or
	// pods/name. If it is empty, the removal applies to all objects.
	Resources []string `json:"resources,omitempty"`
}

func (r Removal) name() string {
	return cmp.Or(r.NamespaceFinalizer, r.MetadataFinalizer, r.Finalizer)
}

// String describes the selected finalizer.
func (r Removal) String() string {
	switch {
	case r.NamespaceFinalizer != "":
		return describeNamespaceFinalizer(r.NamespaceFinalizer)
	case r.MetadataFinalizer != "":
		return describeMetadataFinalizer(r.MetadataFinalizer)
	}
	return "finalizer " + r.Finalizer
}

// command returns the command line for the removal, with additional flags.
func (r Removal) command(namespace string, flags ...string) string {
	flag := FlagFinalizer
	switch {
	case r.NamespaceFinalizer != "":
		flag = FlagNamespaceFinalizer
	case r.MetadataFinalizer != "":
		flag = FlagMetadataFinalizer
	}
	words := append([]string{commandPrefix, "%s", "--" + flag + "=%s"}, flags...)
	return shell.Command(strings.Join(words, " "), namespace, r.name())
}

// Permissions are the flags with which the user overrides objections.
type Permissions struct {
	Orphan, AllowUnread, IgnoreActiveOwner bool
}

// RemainingObject is an object in the namespace.
type RemainingObject struct {
	Resource        string    `json:"resource"`
	Kind            string    `json:"kind"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
	Finalizers      []string  `json:"finalizers,omitempty"`
	// IsTerminating reports whether the object has a deletionTimestamp.
	IsTerminating bool `json:"terminating"`

	resourceType resourcetypes.Type
}

// String returns the type and the name in the format of kubectl arguments.
func (o *RemainingObject) String() string { return o.Resource + "/" + printable.Name(o.Name) }

// identity returns the UID, or the type and the name of an object without one: an aggregated API server can omit it.
func (o *RemainingObject) identity() string { return cmp.Or(string(o.UID), o.String()) }

// clusterState is the input of a plan.
type clusterState struct {
	namespace *corev1.Namespace
	diagnosis *diagnosis.Diagnosis
	// objects are all objects that could be read, sorted by resource type and name.
	objects []RemainingObject
	// types are all types that the API server serves, also types without objects.
	types []resourcetypes.Type
	// unread lists what could not be read and why.
	unread []string
}

// Plan describes a removal and its effects.
type Plan struct {
	Namespace       string    `json:"namespace"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
	// Removal is nil if the user has not selected a finalizer. Candidates lists the choices.
	Removal    *Removal    `json:"removal,omitempty"`
	Candidates []Candidate `json:"candidates,omitempty"`
	// Targets are the terminating objects from which the finalizer is removed. NotDeleted are objects
	// that keep the finalizer because they have no deletionTimestamp.
	Targets    []RemainingObject `json:"targets,omitempty"`
	NotDeleted []RemainingObject `json:"notDeleted,omitempty"`
	// HeldBy lists the finalizers that the Namespace still has after the removal.
	HeldBy []string `json:"heldBy,omitempty"`
	// Orphans are objects that outlive the Namespace because no controller deletes them.
	Orphans []RemainingObject `json:"orphans,omitempty"`
	// Losses describe the consequences, including those outside the cluster.
	Losses []string `json:"losses,omitempty"`
	Unread []string `json:"unread,omitempty"`
	// Objections are the reasons for a refusal. Each objection names the flag, if any, that
	// overrides it.
	Objections []string             `json:"objections,omitempty"`
	IsDryRun   bool                 `json:"dryRun"`
	Diagnosis  *diagnosis.Diagnosis `json:"diagnosis"`

	// DryRunUnsupported is set if the removal could not be tested, because a webhook or the server of a type
	// does not support dry runs.
	DryRunUnsupported error `json:"-"`
	// Rejection is the error with which the API server rejected the dry run. No flag overrides it.
	Rejection error `json:"-"`
}

// computePlan returns the effects of a removal and the objections to it. It returns an error if the
// removal is impossible or if no flag can permit it.
func computePlan(state *clusterState, wanted Removal, allowed Permissions) (*Plan, error) {
	if err := checkNamespace(state); err != nil {
		return nil, err
	}
	plan := &Plan{
		Namespace: state.namespace.Name, UID: state.namespace.UID, ResourceVersion: state.namespace.ResourceVersion,
		Unread: state.unread, Diagnosis: state.diagnosis,
	}
	if wanted.name() == "" {
		plan.Candidates = computeCandidates(state)
		return plan, nil
	}
	plan.Removal = &wanted
	plan.HeldBy = namespaceHolders(state.namespace)
	if wanted.Finalizer != "" {
		if err := plan.selectTargets(state, wanted); err != nil {
			return nil, err
		}
	} else if err := plan.releaseNamespace(state, wanted); err != nil {
		return nil, err
	}
	plan.Losses = computeLosses(plan)
	plan.Objections = computeObjections(plan, allowed)
	return plan, nil
}

// checkNamespace returns an error if the namespace does not allow a removal.
func checkNamespace(state *clusterState) error {
	name := state.namespace.Name
	switch {
	case slices.Contains(initialization.RequiredNamespaces, name): // The operator never initializes system namespaces.
		return fmt.Errorf("namespace %q is a system namespace; its finalizers must not be removed by force", name)
	case state.diagnosis.UID != state.namespace.UID:
		return fmt.Errorf("namespace %q was recreated during the diagnosis; run the command again", name)
	case state.namespace.DeletionTimestamp == nil:
		return fmt.Errorf("namespace %q is not being deleted; delete it first", name)
	}
	return nil
}

// namespaceHolders describes the finalizers of a Namespace without duplicates. The API server
// accepts duplicates, and a removal removes all of them.
func namespaceHolders(namespace *corev1.Namespace) []string {
	var holders []string
	for _, finalizer := range unique(namespace.Finalizers) {
		holders = append(holders, describeMetadataFinalizer(finalizer))
	}
	for _, finalizer := range unique(namespace.Spec.Finalizers) {
		holders = append(holders, describeNamespaceFinalizer(string(finalizer)))
	}
	return holders
}

// unique returns the elements of a list without duplicates, in the original order.
func unique[T comparable](list []T) []T {
	var once []T
	for _, element := range list {
		if !slices.Contains(once, element) {
			once = append(once, element)
		}
	}
	return once
}

func (p *Plan) releaseNamespace(state *clusterState, wanted Removal) error {
	index := slices.Index(p.HeldBy, wanted.String())
	if index < 0 {
		return fmt.Errorf("namespace %q does not have the %s; it has: %s",
			p.Namespace, wanted, cmp.Or(strings.Join(p.HeldBy, ", "), "no finalizers"))
	}
	p.HeldBy = slices.Delete(p.HeldBy, index, index+1)
	if p.endsContentDeletion() {
		p.Orphans = state.objects
	}
	return nil
}

// endsContentDeletion reports whether the content of the namespace is no longer deleted after the
// removal. The namespace finalizer "kubernetes" belongs to the controller that deletes the content.
func (p *Plan) endsContentDeletion() bool {
	return p.Removal.Finalizer == "" &&
		!slices.Contains(p.HeldBy, describeNamespaceFinalizer(string(corev1.FinalizerKubernetes)))
}

func (p *Plan) selectTargets(state *clusterState, wanted Removal) error {
	matched := map[string]bool{}
	for _, object := range state.objects {
		selectors := state.matchResources(&object, wanted.Resources)
		if len(selectors) == 0 && len(wanted.Resources) > 0 || !slices.Contains(object.Finalizers, wanted.Finalizer) {
			continue
		}
		for _, selector := range selectors {
			matched[selector] = true
		}
		if object.IsTerminating {
			p.Targets = append(p.Targets, object)
		} else {
			p.NotDeleted = append(p.NotDeleted, object)
		}
	}
	for _, resource := range wanted.Resources {
		if !matched[resource] {
			return fmt.Errorf("no readable object in namespace %q matches --resource=%s and has the finalizer %s",
				p.Namespace, resource, wanted.Finalizer)
		}
	}
	switch {
	case len(p.Targets)+len(p.NotDeleted) == 0:
		return fmt.Errorf("no readable object in namespace %q has the finalizer %s; to remove a finalizer of the Namespace "+
			"itself, use --%s or --%s", p.Namespace, wanted.Finalizer, FlagMetadataFinalizer, FlagNamespaceFinalizer)
	case len(p.Targets) == 0:
		return fmt.Errorf("no object with the finalizer %s is being deleted (%s)",
			wanted.Finalizer, ListObjects(p.NotDeleted))
	}
	return nil
}

// matchResources returns the values of --resource that select an object.
func (s *clusterState) matchResources(object *RemainingObject, resources []string) []string {
	var matching []string
	for _, resource := range resources {
		typeName, name, hasName := strings.Cut(resource, "/")
		if s.isNamed(object.resourceType, typeName) && (!hasName || name == object.Name) {
			matching = append(matching, resource)
		}
	}
	return matching
}

// isNamed reports whether a name selects a type. As in kubectl, services selects only the type with this full name
// and not services in other groups.
func (s *clusterState) isNamed(one resourcetypes.Type, name string) bool {
	return one.String() == name || one.IsNamed(name) &&
		!slices.ContainsFunc(s.types, func(other resourcetypes.Type) bool { return other.String() == name })
}

// Candidate is a removal that the user can select.
type Candidate struct {
	Removal
	// Command tests the removal with a dry run.
	Command string `json:"command"`
	Effect  string `json:"effect"`
}

// computeCandidates returns all possible removals, least harmful first: finalizers of objects, then
// finalizers of the Namespace. The namespace finalizer "kubernetes" is last, because its owner
// deletes the content of the namespace.
func computeCandidates(state *clusterState) []Candidate {
	name := state.namespace.Name
	var candidates []Candidate
	add := func(removal Removal, effect string, flags ...string) {
		candidates = append(candidates, Candidate{Removal: removal, Command: removal.command(name, flags...), Effect: effect})
	}
	terminating := map[string][]RemainingObject{}
	for _, object := range state.objects {
		for _, finalizer := range unique(object.Finalizers) {
			if object.IsTerminating {
				terminating[finalizer] = append(terminating[finalizer], object)
			}
		}
	}
	for _, finalizer := range slices.Sorted(maps.Keys(terminating)) {
		add(Removal{Finalizer: finalizer}, "removes the finalizer from "+ListObjects(terminating[finalizer]))
	}
	for _, finalizer := range unique(state.namespace.Finalizers) {
		add(Removal{MetadataFinalizer: finalizer}, "removes the finalizer from metadata.finalizers of the Namespace")
	}
	for _, finalizer := range unique(state.namespace.Spec.Finalizers) {
		if finalizer != corev1.FinalizerKubernetes {
			add(Removal{NamespaceFinalizer: string(finalizer)}, "removes the finalizer from spec.finalizers of the Namespace")
		}
	}
	if !slices.Contains(state.namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return candidates
	}
	kubernetes := Removal{NamespaceFinalizer: string(corev1.FinalizerKubernetes)}
	if len(state.objects) == 0 {
		add(kubernetes, "allows the API server to delete the namespace, which contains no readable objects")
	} else {
		add(kubernetes, "orphans the remaining objects ("+ListObjects(state.objects)+")", "--"+FlagOrphan)
	}
	return candidates
}

// computeObjections returns the objections to a plan, except those that the permissions override.
func computeObjections(plan *Plan, allowed Permissions) []string {
	var objections []string
	if number := len(plan.Orphans); number > 0 && !allowed.Orphan {
		objections = append(objections, fmt.Sprintf("%s would be orphaned, because no controller would delete the content "+
			"of the namespace; use --%s to accept this", printable.Count(number, "object"), FlagOrphan))
	}
	if len(plan.Unread) > 0 && !allowed.AllowUnread {
		objections = append(objections, fmt.Sprintf("some objects could not be read and might be missing from the plan "+
			"(%s); use --%s to accept this", printer.SummarizeErrors(plan.Unread), FlagAllowUnread))
	}
	if reason := activeOwnerReason(plan.Diagnosis, plan.Removal); reason != "" && !allowed.IgnoreActiveOwner {
		objections = append(objections, fmt.Sprintf("%s; use --%s to remove the finalizer anyway",
			reason, FlagIgnoreActiveOwner))
	}
	return objections
}

// activeOwnerReason returns why the owner of a finalizer might still be active, or "" if it provably does
// not exist. That no owner was found is not sufficient, because it can run outside the cluster.
func activeOwnerReason(found *diagnosis.Diagnosis, wanted *Removal) string {
	matching := matchingFindings(found, wanted)
	switch {
	case found.Result != diagnosis.Blocked:
		return fmt.Sprintf("the deletion is not known to be blocked (%s)", found.Summary)
	case len(matching) == 0:
		return fmt.Sprintf("there is no finding for the %s, so its owner might still be active", wanted)
	}
	for i := range matching {
		if matching[i].OwnerState != diagnosis.OwnerAbsent {
			return fmt.Sprintf("the owner of the %s is not proven to be absent (%s: %s)",
				wanted, matching[i].Cause, matching[i].Message)
		}
	}
	return ""
}

// matchingFindings returns the findings for the finalizer that a removal selects. It also compares
// the fields that contain the finalizers, because different finalizers can have the same name.
func matchingFindings(found *diagnosis.Diagnosis, wanted *Removal) []diagnosis.Finding {
	var matching []diagnosis.Finding
	for i := range found.Findings {
		name := wanted.Finalizer
		switch found.Findings[i].Cause {
		case diagnosis.CauseNamespaceFinalizer:
			name = wanted.NamespaceFinalizer
		case diagnosis.CauseNamespaceMetadataFinalizer:
			name = wanted.MetadataFinalizer
		}
		if name != "" && name == found.Findings[i].Finalizer {
			matching = append(matching, found.Findings[i])
		}
	}
	return matching
}

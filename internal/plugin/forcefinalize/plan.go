// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
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

// name returns the selected finalizer, or "" if the removal is empty.
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
	IsTerminating bool `json:"isTerminating"`

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
	// types are all types that the API server serves, also those without objects.
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
	// Remaining are all objects that are currently in the namespace.
	Remaining []RemainingObject `json:"remaining,omitempty"`
	// Losses describe the consequences, including those outside the cluster.
	Losses []string `json:"losses,omitempty"`
	Unread []string `json:"unread,omitempty"`
	// Objections are the reasons for a refusal. Each objection names the flag, if any, that
	// overrides it.
	Objections []string             `json:"objections,omitempty"`
	Backup     string               `json:"backup,omitempty"`
	IsDryRun   bool                 `json:"isDryRun"`
	Diagnosis  *diagnosis.Diagnosis `json:"diagnosis"`

	// DryRunUnsupported is set if the API server could not test the removal because a webhook does
	// not support dry runs.
	DryRunUnsupported error `json:"-"`
}

// computePlan returns the effects of a removal and the objections to it. It returns an error if the
// removal is impossible or if no flag can permit it.
func computePlan(state *clusterState, wanted Removal, allowed Permissions) (*Plan, error) {
	if err := checkNamespace(state); err != nil {
		return nil, err
	}
	plan := &Plan{
		Namespace: state.namespace.Name, UID: state.namespace.UID, ResourceVersion: state.namespace.ResourceVersion,
		Remaining: state.objects, Unread: state.unread, Diagnosis: state.diagnosis,
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
	case initialization.IsExempt(name, ""): // The operator never initializes system namespaces.
		return errSystemNamespace(name)
	case state.diagnosis.UID != state.namespace.UID:
		return errRecreated(name)
	case state.namespace.DeletionTimestamp == nil:
		return errNotTerminating(name)
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

// releaseNamespace plans the removal of a finalizer from the Namespace.
func (p *Plan) releaseNamespace(state *clusterState, wanted Removal) error {
	index := slices.Index(p.HeldBy, wanted.String())
	if index < 0 {
		return errNoSuchFinalizer(p.Namespace, wanted, p.HeldBy)
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

// selectTargets plans the removal of a finalizer from objects.
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
			return errNoObjectSelected(p.Namespace, wanted.Finalizer, resource)
		}
	}
	switch {
	case len(p.Targets)+len(p.NotDeleted) == 0:
		return errNoObjectWithFinalizer(p.Namespace, wanted.Finalizer)
	case len(p.Targets) == 0:
		return errNoObjectTerminating(wanted.Finalizer, p.NotDeleted)
	}
	return nil
}

// matchResources returns those of the given values of --resource that select an object.
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

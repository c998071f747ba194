// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/inventory"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// Flags that lift an objection.
const (
	flagOrphan      = "--orphan"
	flagAllowUnread = "--allow-unread"
	flagEvenIfAlive = "--ignore-active-owner"
)

// removal says which one thing is to be removed: a token, a finalizer of the Namespace, or
// a finalizer of the objects in it.
type removal struct {
	Token              string `json:"token,omitempty"`
	NamespaceFinalizer string `json:"namespaceFinalizer,omitempty"`
	Finalizer          string `json:"finalizer,omitempty"`
	// Resources limit a finalizer to a type, or to an object: pods, or pods/name.
	Resources []string `json:"resources,omitempty"`
}

// name is the token or finalizer itself, empty if nothing is to be removed.
func (r removal) name() string {
	return cmp.Or(r.Token, r.NamespaceFinalizer, r.Finalizer)
}

// String says what is removed from what.
func (r removal) String() string {
	switch {
	case r.Token != "":
		return fmt.Sprintf("token %s in spec.finalizers of the Namespace", r.Token)
	case r.NamespaceFinalizer != "":
		return fmt.Sprintf("finalizer %s in metadata.finalizers of the Namespace", r.NamespaceFinalizer)
	}
	return "finalizer " + r.Finalizer
}

// command returns the command that requests the removal, with flags that override objections.
func (r removal) command(namespace string, lifting ...string) string {
	flag := "--finalizer"
	switch {
	case r.Token != "":
		flag = "--namespace-finalizer"
	case r.NamespaceFinalizer != "":
		flag = "--metadata-finalizer"
	}
	words := append([]string{displayName, "finalize %s", flag + "=%s"}, lifting...)
	return shell.Command(strings.Join(words, " "), namespace, r.name())
}

// permits are the flags that lift objections.
type permits struct {
	isOrphaning, allowsUnread, isEvenIfAlive bool
}

// remnant is an object that remains in a namespace.
type remnant struct {
	Resource        string    `json:"resource"`
	Kind            string    `json:"kind"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
	Finalizers      []string  `json:"finalizers,omitempty"`
	// IsTerminating: it has a deletionTimestamp.
	IsTerminating bool `json:"isTerminating"`

	served inventory.Type
}

func (r *remnant) String() string { return r.Resource + "/" + printable.Name(r.Name) }

// predicament is all that a plan is made from.
type predicament struct {
	namespace *corev1.Namespace
	diagnosis *diagnosis.Diagnosis
	// remnants are all objects that could be found, sorted by type and name.
	remnants []remnant
	// unread says what could not be, and why.
	unread []string
}

// plan is what finalize would do, as far as it can be known beforehand.
type plan struct {
	Namespace       string    `json:"namespace"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
	// Removal is empty where the user has not chosen yet; Candidates says among what.
	Removal    *removal    `json:"removal,omitempty"`
	Candidates []candidate `json:"candidates,omitempty"`
	// Targets are the objects that lose a finalizer. NotDeleted have it as well and keep
	// it, since nobody has deleted them yet.
	Targets    []remnant `json:"targets,omitempty"`
	NotDeleted []remnant `json:"notDeleted,omitempty"`
	// HeldBy are the tokens and finalizers that hold the Namespace afterwards.
	HeldBy []string `json:"heldBy,omitempty"`
	// Orphans are objects that nobody deletes any more and that outlive the Namespace.
	Orphans []remnant `json:"orphans,omitempty"`
	// Remaining are all objects that there are now.
	Remaining []remnant `json:"remaining,omitempty"`
	// Losses say what it means, outside of the cluster too.
	Losses []string `json:"losses,omitempty"`
	Unread []string `json:"unread,omitempty"`
	// Objections say why it is refused; each names the flag that lifts it, if one does.
	Objections []string             `json:"objections,omitempty"`
	Backup     string               `json:"backup,omitempty"`
	IsDryRun   bool                 `json:"isDryRun"`
	Diagnosis  *diagnosis.Diagnosis `json:"diagnosis"`
}

// newPlan returns a plan that removes nothing yet.
func newPlan(facts *predicament) *plan {
	return &plan{
		Namespace: facts.namespace.Name, UID: facts.namespace.UID,
		ResourceVersion: facts.namespace.ResourceVersion,
		Remaining:       facts.remnants, Unread: facts.unread, Diagnosis: facts.diagnosis,
	}
}

// planFinalize computes what a removal does. It fails where nothing may be removed,
// whatever flags are given; all else that speaks against it is among the Objections.
func planFinalize(facts *predicament, wanted removal, allowed permits) (*plan, error) {
	if err := whyNotFinalize(facts); err != nil {
		return nil, err
	}
	planned := newPlan(facts)
	planned.Removal = &wanted
	planned.HeldBy = whatHolds(facts.namespace)
	if wanted.Finalizer != "" {
		if err := planned.chooseTargets(facts, wanted); err != nil {
			return nil, err
		}
	} else if err := planned.release(facts, wanted); err != nil {
		return nil, err
	}
	planned.Losses = lossesOf(planned)
	planned.Objections = objectionsTo(planned, allowed)
	return planned, nil
}

// whyNotFinalize returns why nothing at all may be removed from a namespace by force.
func whyNotFinalize(facts *predicament) error {
	name := facts.namespace.Name
	switch {
	case initialization.IsExempt(name, ""): // The same ones as at their birth.
		return fmt.Errorf("namespace %q is one that no cluster can do without; nothing is ever removed from it by force",
			name)
	case facts.diagnosis.UID != facts.namespace.UID:
		return fmt.Errorf("namespace %q was created anew while it was looked at; look again", name)
	case facts.namespace.DeletionTimestamp == nil:
		return fmt.Errorf("namespace %q is not being deleted, so nothing blocks its deletion; "+
			"to delete it, run: %s", name, shell.Command("kubectl delete namespace %s", name))
	}
	return nil
}

// whatHolds names the tokens and finalizers of a Namespace, each once: the API server takes
// a list that has the same one twice, and a removal removes both.
func whatHolds(namespace *corev1.Namespace) []string {
	var holders []string
	for _, finalizer := range unique(namespace.Finalizers) {
		holders = append(holders, "finalizer "+finalizer)
	}
	for _, token := range unique(namespace.Spec.Finalizers) {
		holders = append(holders, "token "+string(token))
	}
	return holders
}

// unique returns the elements of a list in their order, each once.
func unique[T comparable](list []T) []T {
	var once []T
	for _, element := range list {
		if !slices.Contains(once, element) {
			once = append(once, element)
		}
	}
	return once
}

// release plans to take a token or a finalizer off the Namespace itself.
func (p *plan) release(facts *predicament, wanted removal) error {
	held := "token " + wanted.Token
	if wanted.Token == "" {
		held = "finalizer " + wanted.NamespaceFinalizer
	}
	index := slices.Index(p.HeldBy, held)
	if index < 0 {
		return fmt.Errorf("the Namespace %q has no %s; it has %s", p.Namespace, wanted, listOrNothing(p.HeldBy))
	}
	p.HeldBy = slices.Delete(p.HeldBy, index, index+1)
	if p.endsDeletion() {
		p.Orphans = facts.remnants
	}
	return nil
}

// endsDeletion tells whether nobody deletes anything in the namespace any more after a
// removal: those who do hold the token kubernetes for as long as something is left.
func (p *plan) endsDeletion() bool {
	return p.Removal.Finalizer == "" && !slices.Contains(p.HeldBy, "token "+string(corev1.FinalizerKubernetes))
}

// chooseTargets plans to take a finalizer off objects.
func (p *plan) chooseTargets(facts *predicament, wanted removal) error {
	isFound := map[string]bool{}
	for _, object := range facts.remnants {
		selector, isSelected := selectedBy(&object, wanted.Resources)
		if !isSelected || !slices.Contains(object.Finalizers, wanted.Finalizer) {
			continue
		}
		isFound[selector] = true
		if object.IsTerminating {
			p.Targets = append(p.Targets, object)
		} else {
			p.NotDeleted = append(p.NotDeleted, object)
		}
	}
	for _, resource := range wanted.Resources {
		if !isFound[resource] {
			return fmt.Errorf("nothing that could be read in namespace %q has finalizer %s and is selected by --resource=%s",
				p.Namespace, wanted.Finalizer, resource)
		}
	}
	switch {
	case len(p.Targets)+len(p.NotDeleted) == 0:
		return fmt.Errorf("no object that could be read in namespace %q has finalizer %s; "+
			"finalizers of the Namespace itself are removed with --metadata-finalizer or --namespace-finalizer",
			p.Namespace, wanted.Finalizer)
	case len(p.Targets) == 0:
		return fmt.Errorf("none of the objects with finalizer %s is being deleted yet, so it holds nothing: %s",
			wanted.Finalizer, nameRemnants(p.NotDeleted))
	}
	return nil
}

// selectedBy returns the first of the flags --resource that selects an object. Without
// any, every object is selected.
func selectedBy(object *remnant, resources []string) (selector string, isSelected bool) {
	if len(resources) == 0 {
		return "", true
	}
	for _, resource := range resources {
		typeName, name, isNamed := strings.Cut(resource, "/")
		if object.served.IsNamed(typeName) && (!isNamed || name == object.Name) {
			return resource, true
		}
	}
	return "", false
}

// objectionsTo returns what speaks against a plan and was not permitted.
func objectionsTo(planned *plan, allowed permits) []string {
	var objections []string
	if number := len(planned.Orphans); number > 0 && !allowed.isOrphaning {
		objections = append(objections, fmt.Sprintf(
			"%s would be left without a namespace, and nobody would delete what is left; %s accepts that",
			count(number, "object"), flagOrphan))
	}
	if number := len(planned.Unread); number > 0 && !allowed.allowsUnread {
		objections = append(objections, fmt.Sprintf(
			"not everything in the namespace can be read, so there may be objects that are neither shown here nor in "+
				"the backup (%s); %s accepts that", summarize(planned.Unread), flagAllowUnread))
	}
	if reason := whyMaybeAlive(planned.Diagnosis, planned.Removal); reason != "" && !allowed.isEvenIfAlive {
		objections = append(objections, fmt.Sprintf("%s; %s removes it all the same", reason, flagEvenIfAlive))
	}
	return objections
}

// whyMaybeAlive returns why somebody may still do what is to be forced. Where the
// findings do not tell, somebody may.
func whyMaybeAlive(found *diagnosis.Diagnosis, wanted *removal) string {
	if found.State != diagnosis.Blocked {
		return fmt.Sprintf("nothing is known to be wrong (%s), so it may go by itself", found.Summary)
	}
	if wanted.Token == string(corev1.FinalizerKubernetes) {
		return "" // It waits for all the others, and one of them is blocked.
	}
	concerned := findingsAbout(found, wanted)
	if len(concerned) == 0 {
		return fmt.Sprintf("no finding says that %s is stuck, so whoever has put it there may be at work", wanted)
	}
	for _, finding := range concerned {
		if !finding.IsOwnerGone {
			return fmt.Sprintf("the findings do not say that nobody will remove %s (%s: %s)",
				wanted, finding.Cause, finding.Message)
		}
	}
	return ""
}

// findingsAbout returns the findings that are about what is to be removed. A token and a
// finalizer may have the same name.
func findingsAbout(found *diagnosis.Diagnosis, wanted *removal) []diagnosis.Finding {
	var about []diagnosis.Finding
	for _, finding := range found.Findings {
		name := wanted.Finalizer
		switch finding.Cause {
		case diagnosis.CauseNamespaceFinalizer:
			name = wanted.Token
		case diagnosis.CauseNamespaceMetadataFinalizer:
			name = wanted.NamespaceFinalizer
		}
		if name != "" && name == finding.Finalizer {
			about = append(about, finding)
		}
	}
	return about
}

// listOrNothing names things, or says that there are none.
func listOrNothing(names []string) string {
	return cmp.Or(strings.Join(names, ", "), "none")
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// ErrUnconfirmed means that the cache is stale, so nothing is deleted or adopted.
var ErrUnconfirmed = errors.New("the namespace or the template has changed")

// removal is what happens to the recorded objects that a template no longer contains, after all objects of the template
// were applied. Otherwise, they remain recorded.
type removal struct {
	*v1alpha1.NamespaceTemplate
	// isKept is true if everything remains recorded of a template that no longer applies.
	isKept bool
	// obsolete are all of the objects.
	obsolete []template.ObjectState
	// remaining remain recorded, and forgotten are no longer recorded, because the operator has not created them.
	remaining, forgotten []template.ObjectState
	// deleted are deleted, in this order.
	deleted []deletion
	// confirmation is the operation that confirms the removal.
	confirmation int
}

// deletion is the deletion of an object, and the operation that performs it.
type deletion struct {
	template.ObjectState
	operation int
}

// remove decides which recorded objects are deleted, after all objects of all templates: an object can move from one
// template to another.
func (p *Plan) remove() {
	for i := range p.templates {
		if p.templates[i].removal != nil {
			p.removeObsolete(i)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.State)) {
		index := slices.IndexFunc(p.Templates, func(t v1alpha1.NamespaceTemplate) bool { return t.Name == name })
		isApplicable := slices.ContainsFunc(p.templates, func(t templatePlan) bool { return t.Name == name })
		if index >= 0 && !isApplicable {
			p.removeDeselected(&p.Templates[index])
		}
	}
}

// removeObsolete removes the recorded objects that a template no longer contains, unless an object cannot be applied.
// If the template contains no object at all, which is more likely to be a mistake, all remain. Objects that are
// retained are no longer recorded.
func (p *Plan) removeObsolete(index int) {
	t := &p.templates[index]
	t.removal.obsolete = p.unneeded(p.State[t.Name])
	var required []int
	canApply := p.hasApplied(index, func(o object) bool {
		if o.write != none {
			required = append(required, o.write)
		}
		return o.err == nil
	})
	if !canApply || p.isUnclaimed {
		t.removal.remaining = t.removal.obsolete
		return
	}
	desired := 0
	for _, o := range t.objects {
		if !o.IsMetadata() {
			desired++
		}
	}
	var removable, deleted []template.ObjectState
	removable, t.removal.remaining = p.removable(t.Name, t.Contents, t.removal.obsolete)
	for _, object := range removable {
		switch {
		case template.MayRemove(t.NamespaceTemplate, object.Kind, desired):
			deleted = append(deleted, object)
		case desired == 0:
			t.removal.remaining = append(t.removal.remaining, object)
		}
	}
	p.schedule(t.removal, p.operation(t.NamespaceTemplate, t.Choice), deleted, required)
}

// removeDeselected removes the objects of a template that no longer applies to the Namespace.
func (p *Plan) removeDeselected(tmpl *v1alpha1.NamespaceTemplate) {
	policy := template.RetentionPolicy(tmpl)
	removed := removal{NamespaceTemplate: tmpl, confirmation: none}
	isLongEnough := tmpl.DeletionTimestamp != nil || p.isAbsent(absenceKey{template: tmpl.Name})
	switch {
	case !isLongEnough, policy == v1alpha1.RetentionDelete && p.isUnclaimed:
		removed.isKept = true
	case policy == v1alpha1.RetentionDelete:
		var removable []template.ObjectState
		removable, removed.remaining = p.removable(tmpl.Name, nil, p.unneeded(p.State[tmpl.Name]))
		p.schedule(&removed, p.operation(tmpl, Choice{}), removable, nil)
	}
	p.deselected = append(p.deselected, removed)
}

// schedule plans the deletion of objects after the required operations, and after the API server has confirmed the
// decision. Adopted objects are not deleted, only their records.
func (p *Plan) schedule(r *removal, operation Operation, objects []template.ObjectState, required []int) {
	for _, object := range slices.SortedFunc(slices.Values(objects), compareDeletion) {
		if object.IsAdopted {
			r.forgotten = append(r.forgotten, object)
			continue
		}
		if r.confirmation == none {
			confirmation := operation.sendConfirm(confirm)
			confirmation.After = required
			r.confirmation = p.add(confirmation)
		}
		deleted := operation.remove(object)
		deleted.After = []int{r.confirmation}
		r.deleted = append(r.deleted, deletion{object, p.add(deleted)})
		if template.IsMetadata(object.Kind) {
			p.changes[object.Key()] = nil
		}
	}
}

// unneeded returns the recorded objects that no template contains.
func (p *Plan) unneeded(recorded template.Entry) (found []template.ObjectState) {
	for _, object := range recorded.Objects {
		if _, isClaimed := p.claims[object.Key()]; !isClaimed {
			found = append(found, object)
		}
	}
	return found
}

// removable separates obsolete objects that may be removed now from objects that must remain. An object remains for a
// delay if the revision contains it and only the labels or parameters of the Namespace exclude it. An object also
// remains if it moves to another template whose rollout has not reached the Namespace.
func (p *Plan) removable(
	name string, contents Contents, obsolete []template.ObjectState,
) (removable, absent []template.ObjectState) {
	for _, object := range obsolete {
		key := object.Key()
		if p.isPlanned(name, key) || contents.has(key) && !p.isAbsent(absenceKey{template: name, object: key}) {
			absent = append(absent, object)
		} else {
			removable = append(removable, object)
		}
	}
	return removable, absent
}

// isPlanned reports whether the Namespace can get an object later with another template.
func (p *Plan) isPlanned(name string, key template.ObjectKey) bool {
	for other, contents := range p.planned {
		if other != name && contents.has(key) {
			return true
		}
	}
	return false
}

// compareDeletion orders deletions by kind, in the reverse order of application: users lose their permissions before
// the restrictions are deleted.
func compareDeletion(a, b template.ObjectState) int {
	return cmp.Or(render.Rank(b.Kind)-render.Rank(a.Kind),
		strings.Compare(a.Kind.String(), b.Kind.String()), strings.Compare(a.Name, b.Name))
}

// concludeRemoval returns what remains recorded of the obsolete objects, and why objects could not be deleted.
func (c *conclusion) concludeRemoval(
	r *removal, hasApplied bool,
) (remaining []template.ObjectState, problems []template.Problem) {
	if !hasApplied {
		return r.obsolete, nil
	}
	remaining = slices.Clone(r.remaining)
	for _, object := range r.forgotten {
		c.forget(r.Name, object, keptNotCreated)
	}
	for _, deleted := range r.deleted {
		confirmation, isConfirmed := c.result(r.confirmation)
		result, isExecuted := c.result(deleted.operation)
		err := cmp.Or(confirmation.Err, result.Err)
		switch {
		case errors.Is(err, ErrUnconfirmed):
			err = c.retryUnconfirmed(deleted.Key())
		case err != nil:
			err = fmt.Errorf("failed to delete %s %q: %w", deleted.Kind.Kind, deleted.Name, err)
		case isConfirmed && isExecuted:
			c.write(r.Name, result)
			if result.Kept != "" {
				c.forget(r.Name, deleted.ObjectState, result.Kept)
			}
			continue
		}
		remaining = append(remaining, deleted.ObjectState)
		if err != nil {
			problems = append(problems, template.ToProblem(r.Name, "", err))
		}
	}
	return remaining, problems
}

// forget reports an object that is no longer recorded, but remains.
func (c *conclusion) forget(name string, object template.ObjectState, reason string) {
	c.outcome.Kept = append(c.outcome.Kept, template.Problem{
		Template: name, Reason: v1alpha1.ReasonObjectRetained,
		Message: fmt.Sprintf("the template no longer contains %s %q, which is not deleted because %s",
			object.Kind.Kind, object.Name, reason),
	})
}

// A removal requires the record on the Namespace and the mark on the object, which different clients write. With only
// one of them, a client that can forge it could make the operator delete any object.

const (
	keptNotCreated = "the operator has not created it"
	keptRecreated  = "another client has created it again"
)

// checkMark returns why an object is kept that the Namespace records with a UID; empty if its metadata prove that the
// operator has written it for the template. The managedFields, or the label with the annotation, suffice: users of the
// namespace can remove some of these and fill the object, so that the operator can restore it only by replacing it.
func checkMark(tmpl string, namespace, recorded types.UID, live *metav1.ObjectMeta) string {
	isApplied := slices.ContainsFunc(live.ManagedFields, claimsOf(tmpl))
	isLabeled := live.Labels[v1alpha1.LabelManagedByTemplate] == tmpl &&
		live.Annotations[v1alpha1.AnnotationNamespaceUID] == string(namespace)
	switch {
	case recorded == "":
		return keptNotCreated
	case live.UID != recorded:
		return keptRecreated
	case !isApplied && !isLabeled:
		return fmt.Sprintf("it has neither field manager %q nor label %s=%s with annotation %s",
			template.FieldManager(tmpl), v1alpha1.LabelManagedByTemplate, tmpl, v1alpha1.AnnotationNamespaceUID)
	}
	return ""
}

// checkMetadataMark returns why a label or annotation is kept that the Namespace records; empty if the managedFields
// prove that the operator has set it for the template. The policy inject sets values that have no field manager: for
// them, the evidence is the list of templates that the Namespace has had since its creation, which is immutable.
func checkMetadataMark(
	tmpl *v1alpha1.NamespaceTemplate, recorded template.ObjectState, live *corev1.Namespace,
) string {
	manager, owner := template.FieldManager(tmpl.Name), ""
	for _, entry := range live.ManagedFields {
		if owner != manager && ownsMetadata(entry, recorded.Key()) {
			owner = entry.Manager
		}
	}
	switch {
	case template.MetadataHash(live, recorded.Key()) != recorded.Fields:
		return "another client has changed it"
	case owner == manager, owner == "" && template.HasSelected(tmpl, live):
		return ""
	case owner == "":
		return fmt.Sprintf("its managedFields do not contain %q", manager)
	}
	return fmt.Sprintf("field manager %q has set it", owner)
}

// ownsMetadata reports whether a field manager has set a label or annotation.
func ownsMetadata(entry metav1.ManagedFieldsEntry, key template.ObjectKey) bool {
	var fields struct {
		Metadata struct {
			Labels      map[string]any `json:"f:labels"`
			Annotations map[string]any `json:"f:annotations"`
		} `json:"f:metadata"`
	}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}
	owned := fields.Metadata.Annotations
	if key.Kind == template.KindLabel {
		owned = fields.Metadata.Labels
	}
	_, ok := owned["f:"+key.Name]
	return ok
}

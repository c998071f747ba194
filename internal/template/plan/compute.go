// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// Compute decides which template each object of a Namespace belongs to, which objects the operator writes, which
// objects the initialization waits for, and which objects the operator deletes afterwards.
func Compute(snapshot Snapshot, memory Memory) Plan {
	p := Plan{
		Snapshot: snapshot, Memory: memory.clone(), isInitializing: template.AwaitsTemplates(snapshot.Namespace),
		planned: map[string]Contents{}, claims: map[template.ObjectKey]int{}, changes: MetadataChanges{},
	}
	if p.isInitializing {
		p.startTurn()
	} else {
		p.startFullPassIfDue()
	}
	if p.Refusal != nil {
		return p
	}
	for i := range snapshot.Applicable {
		p.addTemplate(&snapshot.Applicable[i])
	}
	if p.Unsynced = p.checkSynced(); p.Unsynced != nil {
		return p
	}
	for i := range p.templates {
		p.writeMetadata(&p.templates[i])
		p.writeObjects(&p.templates[i])
	}
	for i := range p.templates {
		p.confirmFailures(&p.templates[i])
		p.checkAllEffective(&p.templates[i])
	}
	p.remove()
	return p
}

// startTurn determines when the first pass over a new Namespace started. If a template has a deadline, startTurn also
// determines when the turn of the initializer started.
func (p *Plan) startTurn() {
	p.elapsed = startOnce(&p.Memory.FirstPass, p.Now)
	if !slices.ContainsFunc(p.Applicable, func(s TemplateSnapshot) bool {
		return s.Template.Spec.Initialization.EffectiveTimeoutSeconds != nil
	}) {
		return
	}
	p.turnStart = initialization.TurnStart(p.Namespace, v1alpha1.TemplatesInitializer, p.ServerNow)
	if p.isNewTurn = p.turnStart.IsZero(); p.isNewTurn { // The turn, or the first deadline, is new.
		p.turnStart = p.ServerNow.Add(-startOnce(&p.Memory.FirstTurn, p.Now))
	}
}

// startFullPassIfDue determines whether the pass over an initialized Namespace is a full one.
func (p *Plan) startFullPassIfDue() {
	due := p.Memory.untilNextFullPass(p.Namespace.UID, p.FullPassInterval, p.Now)
	p.isFullPass = due == 0
	p.retry(due)
}

// addTemplate decides which objects of a template the Namespace contains.
func (p *Plan) addTemplate(s *TemplateSnapshot) {
	tmpl, recorded := s.Template, p.State[s.Template.Name]
	p.templates = append(p.templates, templatePlan{
		NamespaceTemplate: tmpl, TemplateSnapshot: s, failureCheck: none, outcome: TemplateOutcome{
			Template: tmpl.Name, UID: tmpl.UID, Generation: tmpl.Generation, Revision: s.Choice.Revision,
			IsCanary: IsCanary(&tmpl.Spec.Rollout, p.Namespace),
		},
	})
	added := &p.templates[len(p.templates)-1]
	if s.Choice.Revision != s.Latest && !isDone(tmpl, recorded) {
		p.planned[tmpl.Name] = s.LatestContents
	}
	p.retry(s.Choice.Delay)
	unknown := s.Unknown
	if unknown == nil && MustKeep(tmpl, s.Choice, recorded, p.isInitializing) {
		p.keep(len(p.templates) - 1)
		return
	}
	if unknown == nil {
		p.count += len(s.Objects)
		unknown = template.CheckCount(p.count)
	}
	if unknown != nil {
		p.isUnclaimed = true
		p.keep(len(p.templates) - 1)
		added.addProblem("", unknown)
		return
	}
	added.removal = &removal{NamespaceTemplate: tmpl, confirmation: none}
	for _, observed := range s.Objects {
		added.objects = append(added.objects, p.planObject(len(p.templates)-1, observed))
	}
}

// MustKeep reports whether the record of a template in a Namespace remains unchanged, because the Namespace gets no
// revision yet, or because the template is applied only once.
func MustKeep(tmpl *v1alpha1.NamespaceTemplate, choice Choice, recorded template.Entry, isInitializing bool) bool {
	return !isInitializing && (choice.Revision == "" || isDone(tmpl, recorded))
}

// isDone reports whether a template is applied only once, and the Namespace already records it.
func isDone(tmpl *v1alpha1.NamespaceTemplate, recorded template.Entry) bool {
	return recorded.Revision != "" && tmpl.Spec.Sync.Mode == v1alpha1.SyncOnce
}

// keep leaves the record of a template in the Namespace unchanged.
func (p *Plan) keep(index int) {
	recorded := p.State[p.templates[index].Name]
	for _, object := range recorded.Objects {
		p.claims[object.Key()] = index
	}
	p.count += len(recorded.Objects)
}

// planObject plans one object of a template. If two templates contain the object, both report an error, and the object
// of the template whose name sorts first is applied.
func (p *Plan) planObject(index int, observed ObjectSnapshot) object {
	o, key, selected := object{ObjectSnapshot: observed, write: none, wait: none}, observed.Key(), &p.templates[index]
	if winner, isClaimed := p.claims[key]; isClaimed {
		describe := func(with string) error {
			return template.Problemf(v1alpha1.ReasonClaimedByTemplate,
				"template %q also contains %s %q; template %q is applied, because its name is first",
				with, o.Manifest.GetKind(), o.Manifest.GetName(), p.templates[winner].Name)
		}
		o.err = describe(p.templates[winner].Name)
		p.templates[winner].addProblem("", describe(selected.Name))
	} else {
		p.claims[key] = index
		o.recorded, o.err = p.State[selected.Name].Find(key), observed.Unknown
		o.own = Ownership{
			Namespace: p.Namespace.UID, IsInitializing: p.isInitializing, Recorded: o.recorded,
			Earlier: p.State.Earlier(key, selected.Name), Created: p.Memory.Created[key], Current: observed.Current,
		}
		if o.action = o.own.decide(o.Content); o.err == nil && o.action == WaitForDeletion {
			o.err = template.Problemf(v1alpha1.ReasonObjectTerminating,
				"the current %s %q is being deleted", o.Manifest.GetKind(), o.Manifest.GetName())
		}
	}
	if o.err != nil {
		selected.addProblem(o.Name, o.err)
	}
	return o
}

// checkSynced returns an error while a watch has not listed all objects, because nothing can be decided yet. After
// syncTimeout, the error becomes a problem of the template, and other templates are applied.
func (p *Plan) checkSynced() error {
	isUnsynced := slices.ContainsFunc(p.templates, func(t templatePlan) bool { return t.outcome.isUnsynced() })
	if !isUnsynced || startOnce(&p.Memory.UnsyncedSince, p.Now) >= syncTimeout {
		return nil
	}
	p.RetryAfter = SyncRetry
	return template.ErrNotSynced
}

// writeMetadata plans one request that sets the labels and annotations of a template. Keys that already have the value
// are only recorded.
func (p *Plan) writeMetadata(t *templatePlan) {
	changes := MetadataChanges{}
	for i := range t.objects {
		o := &t.objects[i]
		if !o.IsMetadata() || o.err != nil || o.action == NoAction {
			continue
		}
		if o.err = p.checkMetadata(t.NamespaceTemplate, o); o.err != nil {
			t.addProblem(o.Name, named(o.Manifest, o.err))
		} else if current := o.own.Current; current == nil || current.Fields != o.Content {
			changes[o.Key()], p.changes[o.Key()] = &o.Value, &o.Value
			o.write = len(p.Operations)
		}
	}
	if len(changes) == 0 {
		return
	}
	// The resourceVersion makes the request fail if another client has changed the Namespace meanwhile. A new Namespace
	// needs no such check: other values are always replaced, and its conditions change often.
	version := p.Namespace.ResourceVersion
	if p.isInitializing {
		version = ""
	}
	p.add(p.operation(t.NamespaceTemplate, t.Choice).setMetadata(changes, version))
}

// checkMetadata returns a problem if a label or annotation of the Namespace must not be set. The reasons are an earlier
// value that the template does not adopt, an invalid value because of parameters, or repeated changes: by another
// client, or by templates that depend on each other's labels.
func (p *Plan) checkMetadata(tmpl *v1alpha1.NamespaceTemplate, o *object) error {
	kind, name, own := strings.ToLower(o.Manifest.GetKind()), o.Manifest.GetName(), o.own
	exists := own.Current != nil && own.Created != own.Current.UID && !p.isInitializing
	if o.action == ActionCreate && exists {
		switch adopt := tmpl.Spec.Sync.AdoptionPolicy; {
		case adopt == v1alpha1.AdoptNever:
			return template.Problemf(v1alpha1.ReasonAlreadyExists,
				"%s %q exists already, and the template does not adopt it", kind, name)
		case adopt != v1alpha1.AdoptAlways && own.Current.Fields != o.Content:
			return template.Problemf(v1alpha1.ReasonConflict, "%s %q exists already with another value", kind, name)
		}
	}
	problems := validation.IsValidLabelValue(o.Value)
	if o.Key().Kind == template.KindLabel && len(problems) > 0 {
		return template.Problemf(v1alpha1.ReasonInvalidParameter,
			"the parameters make the value of %s %q invalid: %s", kind, name, strings.Join(problems, "; "))
	}
	o.restoration = p.Memory.Restorations.checkChanged(o.Key(), tmpl.Spec.Sync.ConflictPolicy, p.Now)
	if p.retry(o.restoration.delay); o.restoration.delay > 0 {
		return template.Problemf(v1alpha1.ReasonConflict,
			"%s %q was set %d times, and then changed again by another client or template", kind, name,
			o.restoration.count)
	}
	return nil
}

// writeObjects plans the operations for objects that differ from their template. A full pass also includes objects
// whose managedFields show no change, because clients can forge managedFields.
func (p *Plan) writeObjects(t *templatePlan) {
	for i := range t.objects {
		o := &t.objects[i]
		if o.err != nil || o.IsMetadata() {
			continue
		}
		mustCompare := p.isFullPass || p.Memory.mustCompare(o.recorded, p.Now)
		if o.action == NoAction && !mustCompare {
			continue
		}
		operation := p.operation(t.NamespaceTemplate, t.Choice)
		operation.Object, operation.own, operation.action = o.ObjectSnapshot, o.own, o.action
		operation.restoration = p.Memory.Restorations.check(o.Key(), o.own, t.Spec.Sync.ConflictPolicy, p.Now)
		operation.owner = t.Name
		if o.own.Recorded == nil && o.own.Created == "" { // The object moves from another template.
			operation.owner = p.State.Other(o.Key(), t.Name)
		}
		if err := render.CheckManifest(o.Manifest, p.Namespace.Name); err != nil {
			operation = operation.done(template.Problemf(v1alpha1.ReasonInvalidObject, "%w", err))
		} else {
			operation = operation.begin()
		}
		o.write = p.add(operation)
	}
}

// describeObject returns the kind and the name of an object.
func describeObject(o *ObjectSnapshot) string {
	return fmt.Sprintf("%s %q", o.Manifest.GetKind(), o.Manifest.GetName())
}

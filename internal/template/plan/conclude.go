// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// conclusion is a plan and the results of its operations.
type conclusion struct {
	Plan
	results []Result
	outcome Outcome
	// failures maps each failure of this pass to the time when it was first seen. unconfirmed maps each write or deletion
	// that a concurrent change prevents to the time when this was first seen.
	failures    failures
	unconfirmed map[template.ObjectKey]time.Time
}

// Conclude computes the outcome of a plan from the results of its operations: the records and problems of the
// Namespace, the objects that it waits for, and the time until the next pass. If the execution has stopped, there are
// fewer results than operations.
func Conclude(p Plan, results []Result) (Outcome, Memory) {
	c := &conclusion{Plan: p, results: results}
	c.Memory, c.templates, c.absent = p.Memory.clone(), slices.Clone(p.templates), maps.Clone(p.absent)
	c.outcome = Outcome{State: template.Record{}, Refusal: p.Refusal, Elapsed: p.elapsed, Namespace: p.Namespace}
	if p.isNewTurn {
		c.outcome.TurnStart = p.turnStart
	}
	if p.Refusal != nil || p.Unsynced != nil {
		c.outcome.RetryAfter = p.RetryAfter
		return c.outcome, c.Memory
	}
	for i := range c.templates {
		t := &c.templates[i]
		t.objects, t.outcome.Problems = slices.Clone(t.objects), slices.Clone(t.outcome.Problems)
		for j := range t.objects {
			c.concludeWrite(t, &t.objects[j])
		}
	}
	for i := range c.templates {
		c.expire(&c.templates[i])
		for j := range c.templates[i].objects {
			c.concludeWait(&c.templates[i], &c.templates[i].objects[j])
		}
	}
	for _, result := range results {
		if result.Namespace != nil {
			changed := *c.outcome.Namespace
			changed.ResourceVersion = result.Namespace.ResourceVersion
			changed.Labels, changed.Annotations = result.Namespace.Labels, result.Namespace.Annotations
			c.outcome.Namespace = &changed
		}
	}
	for i := range c.templates {
		c.recordTemplate(i)
	}
	for i := range c.deselected {
		c.recordDeselected(&c.deselected[i])
	}
	c.remember()
	return c.outcome, c.Memory
}

// result returns the result of an operation, and whether it was executed.
func (c *conclusion) result(index int) (Result, bool) {
	if index == none || index >= len(c.results) || !c.Operations[index].IsReady(c.results) {
		return Result{}, false
	}
	return c.results[index], true
}

// write adds the writes of an operation to the outcome.
func (c *conclusion) write(name string, result Result) {
	for _, action := range result.Writes {
		c.outcome.Writes = append(c.outcome.Writes, Write{name, action})
	}
}

// concludeWrite records an applied object, or adds the problem that prevented the write.
func (c *conclusion) concludeWrite(t *templatePlan, o *object) {
	if o.err != nil {
		return
	}
	result, isExecuted := c.result(o.write)
	switch {
	case o.write != none && !isExecuted:
		o.err = ErrUnconfirmed // The execution has stopped.
		return
	case o.IsMetadata():
		c.concludeMetadata(t, o, result)
		return
	}
	c.write(t.Name, result)
	if result.Created != "" {
		template.Put(&c.Memory.Created, o.Key(), result.Created)
		o.own.Created = result.Created
	}
	if result.restoration.conflict != "" && result.Err != nil {
		c.Memory.Restorations.setConflict(o.Key(), result.restoration.conflict)
		c.retry(result.restoration.delay)
	}
	if result.Err != nil {
		c.fail(t, o, result.Err)
		return
	}
	if result.Applied != nil {
		c.record(o, result)
	}
	if result.IsCompared {
		c.recordDifference(o, result.Different)
	}
	c.reportDifference(t, o)
	if o.own.Current != nil && o.own.Current.IsTerminating {
		c.fail(t, o, template.Problemf(v1alpha1.ReasonObjectTerminating,
			"%s has the content of the template, but is being deleted", describeObject(&o.ObjectSnapshot)))
	}
	if o.err == nil && o.MissingRole != nil {
		c.fail(t, o, o.MissingRole)
	}
}

// record records an object that was applied.
func (c *conclusion) record(o *object, result Result) {
	key, current := o.Key(), ObservedOf(&result.Applied.ObjectMeta)
	if slices.Contains(result.Writes, ActionRestore) {
		c.Memory.Restorations.record(key, current, result.restoration, c.Now)
	}
	o.recorded = &template.ObjectState{
		Kind: key.Kind, Name: key.Name, UID: current.UID, Content: o.Content, Fields: current.Fields,
		IsAdopted: o.own.IsAdopted(result.Applied),
	}
	o.own.Current = current
}

// concludeMetadata records a label or annotation that has the value of the template.
func (c *conclusion) concludeMetadata(t *templatePlan, o *object, result Result) {
	switch {
	case o.action == NoAction:
		return
	case result.Err != nil:
		c.fail(t, o, result.Err)
		return
	}
	key, own := o.Key(), &o.own
	applied := &Observed{UID: c.Namespace.UID, NamespaceUID: c.Namespace.UID, Fields: o.Content}
	if o.write != none {
		c.outcome.Writes = append(c.outcome.Writes, Write{t.Name, o.action})
		c.Memory.Restorations.record(key, applied, o.restoration, c.Now)
		if own.Current == nil {
			template.Put(&c.Memory.Created, key, applied.UID)
			own.Created = applied.UID
		}
	}
	isAdopted := own.Created == "" && !c.isInitializing
	if recorded := own.record(); recorded != nil {
		isAdopted = recorded.IsAdopted
	}
	o.recorded = &template.ObjectState{
		Kind: key.Kind, Name: key.Name, UID: applied.UID, Content: o.Content, Fields: applied.Fields, IsAdopted: isAdopted,
	}
	o.own.Current = applied
}

// fail adds the problem that prevented the write of an object. If the cache is stale, another pass repeats the
// decision, and a new Namespace waits for this pass.
func (c *conclusion) fail(t *templatePlan, o *object, err error) {
	if o.err = err; !errors.Is(err, ErrUnconfirmed) {
		t.addProblem(o.Name, named(o.Manifest, err))
		return
	}
	lasting := c.retryUnconfirmed(o.Key())
	switch {
	case c.isInitializing:
		t.outcome.Waiting = append(t.outcome.Waiting, template.ToProblem(t.Name, o.Name, err))
	case lasting != nil:
		t.addProblem(o.Name, lasting)
	}
}

// named adds an object to an error without its name, such as the denial of a webhook.
func named(manifest *unstructured.Unstructured, err error) error {
	name := strconv.Quote(manifest.GetName())
	if strings.Contains(err.Error(), name) {
		return err
	}
	return fmt.Errorf("%s %s: %w", manifest.GetKind(), name, err)
}

// retryUnconfirmed makes another pass repeat a write or deletion. If other clients have prevented the request for too
// long, it returns a problem: users who change a Namespace all the time must neither hide this nor stop a rollout.
func (c *conclusion) retryUnconfirmed(key template.ObjectKey) error {
	c.retry(unconfirmedRetry)
	if c.Now.Sub(rememberSince(c.Memory.Unconfirmed, &c.unconfirmed, key, c.Now)) < unconfirmedTimeout {
		return nil
	}
	return template.Problemf(v1alpha1.ReasonConflict, "other clients change %s %q, or the namespace, in each attempt to "+
		"apply or delete it", key.Kind.Kind, key.Name)
}

// concludeWait adds an object that a new Namespace waits for.
func (c *conclusion) concludeWait(t *templatePlan, o *object) {
	if o.err != nil || !c.mustWaitUntilEffective(t.NamespaceTemplate) {
		return
	}
	result, isExecuted := c.result(o.wait)
	switch o.Key().Kind {
	case Quotas.GroupKind():
		if !o.own.Current.IsCounted {
			c.waitFor(t, o, notCounted(&o.ObjectSnapshot), result.isConfirmed)
		}
	case RoleBindings:
		switch {
		case !isExecuted:
		case result.Err != nil:
			c.waitFor(t, o, result.Err, result.isConfirmed)
		default:
			template.Put(&c.Memory.Granted, o.own.Current.UID, sets.Empty{})
		}
	}
}

// recordTemplate computes the record of a template in the Namespace.
func (c *conclusion) recordTemplate(index int) {
	t := &c.templates[index]
	recorded, isRecorded := c.State[t.Name]
	if t.removal != nil {
		hasApplied := c.hasApplied(index, func(object) bool { return false })
		objects, problems := c.concludeRemoval(t.removal, hasApplied)
		isComplete := hasApplied && len(problems) == 0 && len(objects) == len(t.removal.remaining)
		t.outcome.Problems = append(t.outcome.Problems, problems...)
		slices.SortStableFunc(t.outcome.Problems, func(a, b template.Problem) int {
			return strings.Compare(a.Object, b.Object)
		})
		for _, o := range t.objects {
			if o.recorded != nil {
				objects = append(objects, *o.recorded)
			}
		}
		isComplete = isComplete && !template.IsIncomplete(t.outcome.Problems) && !t.IsPartial
		recorded, isRecorded = recorded.Next(t.outcome.Revision, objects, isComplete), true
	}
	if isRecorded {
		c.outcome.State[t.Name] = recorded.WithLock(t.NamespaceTemplate, c.outcome.Namespace)
	}
	c.outcome.Templates = append(c.outcome.Templates, t.outcome)
}

// recordDeselected computes the record of a template that no longer applies to the Namespace.
func (c *conclusion) recordDeselected(r *removal) {
	c.outcome.Deselected = append(c.outcome.Deselected, r.UID)
	if r.isKept {
		c.outcome.State[r.Name] = c.State[r.Name]
		return
	}
	objects, problems := c.concludeRemoval(r, true)
	if len(objects) > 0 {
		c.outcome.State[r.Name] = template.Entry{Revision: c.State[r.Name].Revision, Objects: objects}
		c.outcome.Templates = append(c.outcome.Templates, TemplateOutcome{Template: r.Name, Problems: problems})
	}
}

// remember determines the memory, and the time until the next pass.
func (c *conclusion) remember() {
	if c.isInitializing {
		c.waitForSelection()
	}
	m := &c.Memory
	m.Absences, m.Failures, m.Unconfirmed = c.absent, c.failures, c.unconfirmed
	var late []string
	for i := range c.Templates {
		if template.IsLate(&c.Templates[i], c.outcome.Namespace, c.outcome.State) {
			late = append(late, c.Templates[i].Name)
		}
	}
	c.outcome.Late = m.Late.Update(c.outcome.Namespace, late, c.Start)
	if c.isFullPass {
		m.NextFullPass = c.Now.Add(c.FullPassInterval)
		c.retry(c.FullPassInterval)
	}
	if !slices.ContainsFunc(c.outcome.Templates, TemplateOutcome.isUnsynced) {
		m.UnsyncedSince = time.Time{}
	}
	c.outcome.RetryAfter = c.RetryAfter
}

// waitForSelection makes a new Namespace wait for templates that selected it at its creation but do not select it now.
// If a label is absent only for a moment, the Namespace must not become Initialized without the template.
func (c *conclusion) waitForSelection() {
	for i := range c.Templates {
		tmpl := &c.Templates[i]
		if tmpl.DeletionTimestamp != nil || !template.HasSelected(tmpl, c.outcome.Namespace) ||
			template.Selects(tmpl, c.outcome.Namespace) || c.isAbsent(absenceKey{template: tmpl.Name}) {
			continue
		}
		c.outcome.Templates = append(c.outcome.Templates, TemplateOutcome{Template: tmpl.Name, Waiting: []template.Problem{{
			Template: tmpl.Name, Reason: v1alpha1.ReasonNotSelected,
			Message: "the template does not select the namespace any more",
		}}})
	}
	isBlocked := c.outcome.WaitsFor() != nil
	for i := range c.outcome.Templates {
		c.outcome.Templates[i].IsInitializing = isBlocked
	}
}

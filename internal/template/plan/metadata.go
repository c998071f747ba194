// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// checkMetadata returns a problem if a label or annotation of the Namespace must not be set: if it existed before
// with another value, which the template does not adopt, if its parameters make it invalid, or if it changes again
// and again, because of another client or because templates depend on each other's labels.
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
	delay, count := p.Memory.Rounds.next(o.Key(), tmpl.Spec.Sync.ConflictPolicy, p.Now)
	if p.retry(delay); delay > 0 {
		return template.Problemf(v1alpha1.ReasonConflict,
			"%s %q was set %d times, and then changed again by another client or template", kind, name, count)
	}
	return nil
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
		c.Memory.Rounds.record(key, applied, true, c.Now)
		if own.Current == nil {
			put(&c.Memory.Created, key, applied.UID)
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

// Of returns the changes of labels or annotations.
func (m MetadataChanges) Of(kind string) map[string]*string {
	changes := map[string]*string{}
	for key, value := range m {
		if key.Kind.Kind == kind {
			changes[key.Name] = value
		}
	}
	return changes
}

// isExpected reports whether labels or annotations differ from the earlier ones by nothing but some of the changes.
func (m MetadataChanges) isExpected(kind string, before, now map[string]string) bool {
	expected := maps.Collect(maps.All(before))
	for key, value := range m.Of(kind) {
		switch current, exists := now[key]; {
		case value == nil && !exists:
			delete(expected, key)
		case value != nil && exists && current == *value:
			expected[key] = current
		}
	}
	return maps.Equal(expected, now)
}

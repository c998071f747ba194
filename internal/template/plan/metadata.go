// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// CheckMetadata returns a problem if a label or annotation of the Namespace must not be set: if it existed before with
// another value, which the template does not adopt, or if another client keeps changing it.
func (p *Pass) CheckMetadata(tmpl *v1alpha1.NamespaceTemplate, object *Object, now time.Time) error {
	kind, name, current := object.Manifest.GetKind(), object.Manifest.GetName(), object.Own.Current
	switch adopt := tmpl.Spec.Sync.AdoptionPolicy; {
	case object.Action == ActionCreate && p.IsInitializing, current == nil && object.Action != ActionRestore:
	case object.Action == ActionCreate && adopt == v1alpha1.AdoptNever:
		return template.Problemf(v1alpha1.ReasonAlreadyExists,
			"%s %q exists already, and the template does not adopt it", kind, name)
	case object.Action == ActionCreate && adopt != v1alpha1.AdoptAlways && current.Fields != object.Content:
		return template.Problemf(v1alpha1.ReasonConflict, "%s %q exists already with another value", kind, name)
	case object.Action == ActionRestore && !p.IsInitializing:
		delay, count := p.Memory.Rounds.Next(object.Key(), tmpl.Spec.Sync.ConflictPolicy, now)
		if p.Retry(delay); delay > 0 {
			return template.Problemf(v1alpha1.ReasonConflict,
				"%s %q was restored %d times, and another client changes it again", kind, name, count)
		}
	}
	return nil
}

// AppliedMetadata records that a label or annotation has the value of the template.
func (p *Pass) AppliedMetadata(object *Object, now time.Time) {
	key, own := object.Key(), object.Own
	isAdopted := own.record() == nil && own.Current != nil && !p.IsInitializing
	if recorded := own.record(); recorded != nil {
		isAdopted = recorded.IsAdopted
	}
	applied := &Observed{UID: p.Namespace.UID, NamespaceUID: p.Namespace.UID, Fields: object.Content}
	if object.Action == ActionRestore {
		p.Memory.Rounds.Record(key, applied, true, now)
	}
	object.Recorded = &template.ObjectState{
		Kind: key.Kind, Name: key.Name, UID: applied.UID, Content: object.Content, Fields: applied.Fields,
		IsAdopted: isAdopted,
	}
	object.Own.Current = applied
}

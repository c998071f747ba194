// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// CheckMetadata returns a problem if a label or annotation of the Namespace must not be set: if it existed before
// with another value, which the template does not adopt, if its parameters make it invalid, or if it changes again
// and again, because of another client or because templates depend on each other's labels.
func (p *Pass) CheckMetadata(tmpl *v1alpha1.NamespaceTemplate, object *Object, now time.Time) error {
	kind, name, own := strings.ToLower(object.Manifest.GetKind()), object.Manifest.GetName(), object.Own
	exists := own.Current != nil && own.Created != own.Current.UID && !p.IsInitializing
	if object.Action == ActionCreate && exists {
		switch adopt := tmpl.Spec.Sync.AdoptionPolicy; {
		case adopt == v1alpha1.AdoptNever:
			return template.Problemf(v1alpha1.ReasonAlreadyExists,
				"%s %q exists already, and the template does not adopt it", kind, name)
		case adopt != v1alpha1.AdoptAlways && own.Current.Fields != object.Content:
			return template.Problemf(v1alpha1.ReasonConflict, "%s %q exists already with another value", kind, name)
		}
	}
	problems := validation.IsValidLabelValue(object.Value)
	if object.Key().Kind == template.KindLabel && len(problems) > 0 {
		return template.Problemf(v1alpha1.ReasonInvalidParameter,
			"the parameters make the value of %s %q invalid: %s", kind, name, strings.Join(problems, "; "))
	}
	delay, count := p.Memory.Rounds.Next(object.Key(), tmpl.Spec.Sync.ConflictPolicy, now)
	if p.Retry(delay); delay > 0 {
		return template.Problemf(v1alpha1.ReasonConflict,
			"%s %q was set %d times, and then changed again by another client or template", kind, name, count)
	}
	return nil
}

// AppliedMetadata records that a label or annotation has the value of the template, and whether it was changed.
func (p *Pass) AppliedMetadata(object *Object, isChanged bool, now time.Time) {
	key, own := object.Key(), object.Own
	applied := &Observed{UID: p.Namespace.UID, NamespaceUID: p.Namespace.UID, Fields: object.Content}
	if isChanged {
		p.Memory.Rounds.Record(key, applied, true, now)
		if own.Current == nil {
			p.Memory.AddCreation(key, applied.UID)
			own.Created = applied.UID
		}
	}
	isAdopted := own.Created == "" && !p.IsInitializing
	if recorded := own.record(); recorded != nil {
		isAdopted = recorded.IsAdopted
	}
	object.Recorded = &template.ObjectState{
		Kind: key.Kind, Name: key.Name, UID: applied.UID, Content: object.Content, Fields: applied.Fields,
		IsAdopted: isAdopted,
	}
	object.Own.Current = applied
}

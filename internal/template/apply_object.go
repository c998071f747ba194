// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

// applyObject applies one object if necessary. It returns its state, or the recorded state after an
// error.
func (p *pass) applyObject(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, position int, want desired, recorded *ObjectState,
) (*ObjectState, error) {
	key := keyOf(want.manifest)
	if other, ok := p.claims[key]; ok {
		return nil, p.claimed(other, template.Name, want)
	}
	p.claims[key] = position
	if want.err != nil {
		return recorded, want.err
	}
	kind := want.manifest.GroupVersionKind()
	if _, err := p.Writer.mapping(kind); err != nil {
		return recorded, err
	}
	if err := p.Objects.ensure(ctx, kind); err != nil {
		return recorded, err
	}
	current, err := p.Objects.get(ctx, kind, p.namespace.Name, key.name)
	if err != nil {
		return recorded, err
	}
	applied, decided := recorded, decide(p.namespace.UID, want, recorded, current)
	if decided == actionNone && p.isFull {
		if decided, err = p.compare(ctx, template, want, recorded); err != nil {
			return recorded, err
		}
	}
	switch decided {
	case actionNone:
	case actionWait:
		return recorded, problemf(ReasonTerminating, "the current %s %q is being deleted", kind.Kind, key.name)
	default:
		if applied, current, err = p.write(ctx, template, want, recorded, current, decided); err != nil {
			return recorded, err
		}
	}
	p.checkReadiness(ctx, template, position, want, current)
	return applied, nil
}

// claimed reports on both templates that they contain the same object. The first by name is applied.
func (p *pass) claimed(other int, name string, want desired) error {
	winner := &p.result.Templates[other]
	describe := func(with, applied string) string {
		return fmt.Sprintf("template %q also contains %s %q; template %q is applied, because its name is first",
			with, want.manifest.GetKind(), want.manifest.GetName(), applied)
	}
	winner.Problems = append(winner.Problems, Problem{
		Template: winner.Template, Reason: ReasonClaimed, Message: describe(name, winner.Template),
	})
	return problemf(ReasonClaimed, "%s", describe(winner.Template, winner.Template))
}

// write applies an object, unless other clients keep changing it.
func (p *pass) write(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, want desired, recorded *ObjectState,
	previous *observed, decided Action,
) (*ObjectState, *observed, error) {
	target := target{template: template, namespace: p.namespace, isLocked: want.isLocked}
	adopt := template.Spec.Sync.Adopt
	isForced := decided != ActionCreate || adopt == v1alpha1.AdoptAlways
	round := roundKey{namespace: p.namespace.UID, object: keyOf(want.manifest)}
	wasChanged := decided == ActionRestore && !p.rounds.isUnrecorded(round, recorded, previous)
	var err error
	switch {
	case wasChanged:
		err = p.checkRounds(ctx, target, want, round)
	case decided == ActionCreate && adopt == v1alpha1.AdoptNever:
		err = p.checkAbsent(ctx, target, want)
	}
	if err != nil {
		return nil, nil, err
	}
	response, existed, err := p.Writer.apply(ctx, target, want.manifest, metav1.PatchOptions{Force: &isForced})
	if err != nil {
		return nil, nil, err
	}
	p.Recorder.Wrote(template.Name, decided)
	for _, other := range otherOwners(response, template.Name) {
		// The object has moved from another template, whose fields must not remain.
		if response, err = p.Writer.release(ctx, target, other, want.manifest); err != nil {
			return nil, nil, fmt.Errorf("failed to take over the object of template %q: %w", other, err)
		}
	}
	current := p.Objects.record(want.manifest.GroupVersionKind(), p.namespace.Name, response)
	if decided == ActionRestore {
		p.rounds.record(round, current, wasChanged, p.Clock.Now())
	}
	state := &ObjectState{
		Name: want.name, APIVersion: want.manifest.GetAPIVersion(), Kind: want.manifest.GetKind(),
		ObjectName: want.manifest.GetName(), UID: current.uid, Content: want.content, Fields: current.fields,
		IsAdopted: p.isAdopted(round.object, recorded, previous, response, existed),
	}
	return state, current, nil
}

// isAdopted reports whether an object existed before the operator applied it for the first time.
func (p *pass) isAdopted(
	key objectKey, recorded *ObjectState, previous *observed, response *metav1.PartialObjectMetadata, existed bool,
) bool {
	if recorded == nil && previous != nil {
		recorded = p.state[previous.template].find(key) // The object has moved from another template.
	}
	if recorded != nil && recorded.UID == response.UID {
		return recorded.IsAdopted
	}
	return existed && (!previous.isOwn(p.namespace.UID) || hasOtherManagers(response))
}

// checkRounds returns a problem if other clients keep changing an object.
func (p *pass) checkRounds(ctx context.Context, target target, want desired, round roundKey) error {
	delay, count := p.rounds.next(round, target.template.Spec.Sync.Conflicts, p.Clock.Now())
	if p.result.retry(delay); delay == 0 {
		return nil
	}
	message := p.rounds.conflict(round, func() string { return p.conflict(ctx, target, want, count) })
	return problemf(ReasonConflict, "%s", message)
}

// releasedFields are the fields that a template has after Writer.release.
const releasedFields = `{"f:metadata":{"f:annotations":{"f:` + v1alpha1.AnnotationNamespaceUID + `":{}}}}`

// otherOwners returns the other templates that have set fields of an object.
func otherOwners(object *metav1.PartialObjectMetadata, template string) []string {
	var names []string
	for _, entry := range object.ManagedFields {
		name, ok := strings.CutPrefix(entry.Manager, fieldManagerPrefix)
		if ok && name != template && entry.FieldsV1 != nil && entry.FieldsV1.GetRawString() != releasedFields {
			names = append(names, name)
		}
	}
	return names
}

// hasOtherManagers reports whether another client has written an object, which then may have existed
// before the template. Controllers that write the status do not count.
func hasOtherManagers(response *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(response.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Subresource == "" && !strings.HasPrefix(entry.Manager, fieldManagerPrefix)
	})
}

// checkAbsent returns a problem if an object exists.
func (p *pass) checkAbsent(ctx context.Context, target target, want desired) error {
	options := metav1.PatchOptions{Force: ptr.To(true), DryRun: []string{metav1.DryRunAll}}
	_, existed, err := p.Writer.apply(ctx, target, want.manifest, options)
	if err == nil && existed {
		return problemf(ReasonAlreadyExists, "%s %q exists already, and the template does not adopt objects",
			want.manifest.GetKind(), want.manifest.GetName())
	}
	return err
}

// conflict describes which other clients change an object. The API server names them if the operator
// does not force the change.
func (p *pass) conflict(ctx context.Context, target target, want desired, count int) string {
	options := metav1.PatchOptions{Force: ptr.To(false), DryRun: []string{metav1.DryRunAll}}
	_, _, err := p.Writer.apply(ctx, target, want.manifest, options)
	detail := "another client deletes it or removes fields"
	if nswrite.IsConflict(err) {
		detail = err.Error()
	}
	return nscondition.Shorten(fmt.Sprintf("%s %q was restored %d times, and another client changes it again: %s",
		want.manifest.GetKind(), want.manifest.GetName(), count, detail), maxFailureMessage)
}

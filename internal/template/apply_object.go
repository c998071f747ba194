// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	resource, err := p.Writer.mapping(kind)
	if err != nil {
		return recorded, err
	}
	if err := p.permitWatch(ctx, template, resource.GroupResource(), key.name); err != nil {
		return recorded, err
	}
	if err := p.Objects.ensure(ctx, kind); err != nil {
		return recorded, err
	}
	current, err := p.Objects.get(ctx, kind, p.namespace.Name, key.name)
	if err != nil {
		return recorded, err
	}
	own := ownership{
		namespace: p.namespace.UID, isInitializing: p.isInitializing, recorded: recorded,
		earlier: p.state.earlier(key, template.Name), created: p.creations.get(p.namespace.UID, key), current: current,
	}
	applied, decided := recorded, own.decide(want.content)
	if decided == actionNone && p.isFull {
		if decided, err = p.compare(ctx, template, want, recorded, current); err != nil {
			return recorded, err
		}
	}
	switch decided {
	case actionNone:
	case actionWait:
		return recorded, problemf(ReasonTerminating, "the current %s %q is being deleted", kind.Kind, key.name)
	default:
		if applied, current, err = p.write(ctx, template, position, want, own, decided); err != nil {
			return recorded, err
		}
	}
	if current != nil && current.isTerminating {
		return applied, problemf(ReasonTerminating, "%s %q has the content of the template, but is being deleted", kind.Kind,
			key.name)
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
	ctx context.Context, template *v1alpha1.NamespaceTemplate, position int, want desired, own ownership, decided Action,
) (*ObjectState, *observed, error) {
	target := target{template: template, namespace: p.namespace, isLocked: want.isLocked}
	adopt := template.Spec.Sync.Adopt
	round := roundKey{namespace: p.namespace.UID, object: keyOf(want.manifest)}
	wasChanged := decided == ActionRestore && !p.rounds.isUnrecorded(round, own.recorded, own.current)
	if wasChanged {
		if err := p.checkRounds(ctx, target, want, round, own.current); err != nil {
			return nil, nil, err
		}
	}
	if err := p.checkExisting(ctx, target, want, own, decided); err != nil {
		return nil, nil, err
	}
	isForced := decided != ActionCreate || adopt == v1alpha1.AdoptAlways
	response, existed, err := p.Writer.apply(ctx, target, want.manifest, metav1.PatchOptions{Force: &isForced})
	switch {
	case apierrors.IsInvalid(err):
		response, existed, err = p.replace(ctx, target, p.result.Templates[position].Revision, want, own, err)
	case decided == ActionCreate && adopt == v1alpha1.AdoptIfEqual && nswrite.IsConflict(err):
		response, err = p.adoptEqual(ctx, target, want, err)
	}
	if err != nil {
		return nil, nil, err
	}
	p.Recorder.Wrote(template.Name, decided)
	if !existed {
		own.created = response.UID
		p.creations.add(p.namespace.UID, round.object, response.UID)
	}
	if own.recorded == nil {
		if response, err = p.release(ctx, target, want, response); err != nil {
			return nil, nil, err
		}
	}
	current := p.Objects.record(want.manifest.GroupVersionKind(), p.namespace.Name, response)
	if decided == ActionRestore {
		p.rounds.record(round, current, wasChanged, p.Clock.Now())
	}
	state := &ObjectState{
		Name: want.name, APIVersion: want.manifest.GetAPIVersion(), Kind: want.manifest.GetKind(),
		ObjectName: want.manifest.GetName(), UID: current.uid, Content: want.content, Fields: current.fields,
		IsAdopted: own.isAdopted(response),
	}
	return state, current, nil
}

// checkRounds returns a problem if other clients keep changing an object.
func (p *pass) checkRounds(
	ctx context.Context, target target, want desired, round roundKey, current *observed,
) error {
	delay, count := p.rounds.next(round, target.template.Spec.Sync.Conflicts, p.Clock.Now())
	if p.result.retry(delay); delay == 0 {
		return nil
	}
	message := p.rounds.conflict(round, func() string { return p.conflict(ctx, target, want, count, current) })
	return problemf(ReasonConflict, "%s", message)
}

// releasedFields are the fields that a template has after Writer.release.
const releasedFields = `{"f:metadata":{"f:annotations":{"f:` + v1alpha1.AnnotationNamespaceUID + `":{}}}}`

// maxReleases limits the requests because of the managedFields of one object. An object moves from one template to
// another, but a user can write as many field managers as the object has space for.
const maxReleases = 4

// release removes the fields that other templates have set, when a template applies an object for the first time. The
// object has moved from them. Later, other field managers of templates are like those of any other client.
func (p *pass) release(
	ctx context.Context, target target, want desired, applied *metav1.PartialObjectMetadata,
) (*metav1.PartialObjectMetadata, error) {
	others := otherOwners(applied, target.template.Name)
	if len(others) > maxReleases {
		return nil, problemf(ReasonConflict, "%s %q has fields of %d other templates in its managedFields, more than the %d "+
			"that it can have moved from: remove these entries", want.manifest.GetKind(), want.manifest.GetName(), len(others),
			maxReleases)
	}
	for _, other := range others {
		var err error
		if applied, err = p.Writer.release(ctx, target, other, want.manifest); err != nil {
			return nil, fmt.Errorf("failed to take over the object of template %q: %w", other, err)
		}
	}
	return applied, nil
}

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

// conflict describes which other clients change an object. The API server names them if the operator
// does not force the change.
func (p *pass) conflict(ctx context.Context, target target, want desired, count int, current *observed) string {
	detail := "another client deletes it or removes fields"
	if current != nil && !current.isCrowded {
		options := metav1.PatchOptions{Force: ptr.To(false), DryRun: []string{metav1.DryRunAll}}
		if _, _, err := p.Writer.apply(ctx, target, want.manifest, options); nswrite.IsConflict(err) {
			detail = err.Error()
		}
	}
	return nscondition.Shorten(fmt.Sprintf("%s %q was restored %d times, and another client changes it again: %s",
		want.manifest.GetKind(), want.manifest.GetName(), count, detail), maxFailureMessage)
}

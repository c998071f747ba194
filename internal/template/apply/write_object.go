// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// write applies all metadata and objects for which this is necessary. It returns errors that concern the whole pass.
func (p *pass) write(ctx context.Context) error {
	for _, selected := range p.Selected {
		if err := p.writeMetadata(ctx, selected); err != nil {
			return err
		}
		for _, object := range selected.Objects {
			if object.Err != nil || object.IsMetadata() {
				continue
			}
			if err := p.wrote(selected, object, p.writeObject(ctx, selected, object)); err != nil {
				return err
			}
		}
	}
	return nil
}

// wrote adds the error of a write to the result. It returns errors that concern the whole pass.
func (p *pass) wrote(selected *plan.Selected, object *plan.Object, err error) error {
	switch object.Err = err; {
	case err == nil:
		return nil
	case errors.Is(err, plan.ErrUnconfirmed):
		p.Unconfirmed(selected, object)
		return nil
	}
	return p.fail(selected, object.Name, named(object.Manifest, err))
}

// named adds an object to an error without its name, such as the denial of a webhook.
func named(manifest *unstructured.Unstructured, err error) error {
	name := strconv.Quote(manifest.GetName())
	if strings.Contains(err.Error(), name) {
		return err
	}
	return fmt.Errorf("%s %s: %w", manifest.GetKind(), name, err)
}

// writeObject applies an object if necessary.
func (p *pass) writeObject(ctx context.Context, selected *plan.Selected, object *plan.Object) error {
	target := target{
		template: selected.Template, namespace: p.Namespace, manifest: object.Manifest, isLocked: object.IsLocked,
	}
	if object.Action == plan.NoAction && (p.IsFull || p.MustCompare(object)) {
		hasChanged, err := p.hasChanged(ctx, target, object)
		if err != nil {
			return err
		}
		if hasChanged {
			object.Action = plan.ActionRestore
		}
	}
	if object.Action != plan.NoAction {
		if err := p.apply(ctx, target, selected.Outcome.Revision, object); err != nil {
			return err
		}
	}
	p.ReportDifference(selected, object)
	if object.Own.Current != nil && object.Own.Current.IsTerminating {
		return template.Problemf(v1alpha1.ReasonObjectTerminating,
			"%s %q has the content of the template, but is being deleted", object.Manifest.GetKind(), object.Manifest.GetName())
	}
	return nil
}

// hasChanged reports whether applying an object would change it, although the managedFields show no change. Time-stamps
// in the managedFields are not sufficient: the API server updates them when it applies an empty list again.
func (p *pass) hasChanged(ctx context.Context, target target, object *plan.Object) (bool, error) {
	if object.Own.Current.IsCrowded {
		return true, nil
	}
	preview, different, err := p.Writer.preview(ctx, target)
	if dryrun.IsUnsupported(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	wasDifferent := object.Recorded.IsDifferent
	p.Compared(object, different)
	switch {
	case wasDifferent && len(different) == 0: // Admission does not change the object any more.
		return true, nil
	case fieldsOf(preview.GetManagedFields(), target.template.Name) == object.Own.Recorded.Fields:
		return false, nil
	}
	unchanged, err := p.Writer.previewUnchanged(ctx, target)
	return err == nil && !apiequality.Semantic.DeepEqual(
		plan.WithoutServerFields(unchanged), plan.WithoutServerFields(preview)), err
}

// apply applies an object, unless other clients keep changing it. The revision is that of the template.
func (p *pass) apply(ctx context.Context, target target, revision string, object *plan.Object) error {
	key, own := object.Key(), object.Own
	wasChanged := object.Action == plan.ActionRestore && !p.Memory.Rounds.IsUnrecorded(key, own.Recorded, own.Current)
	if wasChanged {
		if err := p.checkRounds(ctx, target, own.Current); err != nil {
			return err
		}
	}
	response, err := p.send(ctx, target, revision, object)
	if err != nil {
		return err
	}
	p.Recorder.Wrote(target.template.Name, object.Action)
	if !response.existed {
		own.Created = response.UID
		p.Memory.AddCreation(key, response.UID)
	}
	metadata := response.PartialObjectMetadata
	if own.Recorded == nil {
		if metadata, err = p.release(ctx, target, metadata); err != nil {
			return err
		}
	}
	if metadata, err = p.unescaped(ctx, target, metadata); err != nil {
		return err
	}
	current := p.Objects.record(target.manifest.GroupVersionKind(), p.Namespace.Name, metadata)
	if object.Action == plan.ActionRestore {
		p.Memory.Rounds.Record(key, current, wasChanged, p.Clock.Now())
	}
	object.Recorded = &template.ObjectState{
		Kind: key.Kind, Name: key.Name, UID: current.UID, Content: object.Content, Fields: current.Fields,
		IsAdopted: own.IsAdopted(metadata),
	}
	p.Compared(object, response.different)
	object.Own.Current = current
	return nil
}

// send applies, adopts or replaces an object.
func (p *pass) send(ctx context.Context, target target, revision string, object *plan.Object) (applied, error) {
	if err := p.resolveExisting(ctx, &target, object); err != nil {
		return applied{}, err
	}
	adopt := target.template.Spec.Sync.AdoptionPolicy
	response, err := p.Writer.apply(ctx, target, plan.IsForced(object.Action, adopt), false)
	switch {
	case apierrors.IsInvalid(err):
		return p.replace(ctx, target, revision, object.Own, err)
	case target.resourceVersion != "" && nsobject.IsConflict(err):
		return applied{}, fmt.Errorf("%w: %w", plan.ErrUnconfirmed, err)
	case object.Action == plan.ActionCreate && adopt == v1alpha1.AdoptIfEqual && nsobject.IsConflict(err):
		return p.adoptEqual(ctx, target, err)
	}
	return response, err
}

// unescaped returns metadata as watches return it. JSON, but not the format of watches, escapes some characters that
// keys and elements of lists in the managedFields can contain, and the hash of the managedFields is recorded.
func (p *pass) unescaped(
	ctx context.Context, target target, metadata *metav1.PartialObjectMetadata,
) (*metav1.PartialObjectMetadata, error) {
	if !plan.IsEscaped(metadata.ManagedFields) {
		return metadata, nil
	}
	found, err := p.existing(ctx, target.manifest.GroupVersionKind(), target.manifest.GetName())
	if err == nil && (found == nil || found.UID != metadata.UID) {
		err = plan.ErrUnconfirmed
	}
	return found, err
}

// checkRounds returns a problem if other clients keep changing an object.
func (p *pass) checkRounds(ctx context.Context, target target, current *plan.Observed) error {
	key := template.KeyOf(target.manifest)
	delay, count := p.Memory.Rounds.Next(key, target.template.Spec.Sync.ConflictPolicy, p.Clock.Now())
	if p.Retry(delay); delay == 0 {
		return nil
	}
	message := p.Memory.Rounds.Conflict(key, func() string { return p.conflict(ctx, target, count, current) })
	return template.Problemf(v1alpha1.ReasonConflict, "%s", message)
}

// conflict describes which other clients change an object. The API server names them if the operator does not force the
// change.
func (p *pass) conflict(ctx context.Context, target target, count int, current *plan.Observed) string {
	detail := "another client deletes it or removes fields"
	if current != nil && !current.IsCrowded {
		_, err := p.Writer.apply(ctx, target, false, true)
		if nsobject.IsConflict(err) || dryrun.IsUnsupported(err) {
			detail = denial.Message(err, template.MaxFailureMessage/2)
		}
	}
	return fmt.Sprintf("%s %q was restored %d times, and another client changes it again: %s",
		target.manifest.GetKind(), target.manifest.GetName(), count, detail)
}

// release removes the fields that other templates have set, when a template applies an object for the first time.
func (p *pass) release(
	ctx context.Context, target target, applied *metav1.PartialObjectMetadata,
) (*metav1.PartialObjectMetadata, error) {
	others, err := plan.Releases(target.manifest, applied, target.template.Name)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		if applied, err = p.Writer.release(ctx, target, other); err != nil {
			return nil, fmt.Errorf("failed to take over the object of template %q: %w", other, err)
		}
	}
	return applied, nil
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

// unconfirmedRetry is the time until the next pass if the cache is stale.
const unconfirmedRetry = time.Second

// errUnconfirmed means that the cache is stale, so nothing is deleted.
var errUnconfirmed = errors.New("the namespace or the template has changed")

// removeTemplate handles a template that no longer applies to the Namespace. If objects remain, the
// template remains recorded.
func (p *pass) removeTemplate(ctx context.Context, name string, templates []v1alpha1.NamespaceTemplate) {
	recorded := p.state[name]
	index := slices.IndexFunc(templates, func(t v1alpha1.NamespaceTemplate) bool { return t.Name == name })
	if index < 0 {
		return
	}
	template := &templates[index]
	p.Rollouts.unselect(template.UID, p.namespace.UID)
	policy := template.Spec.Removal.OnUnmatch
	if template.DeletionTimestamp != nil {
		policy = template.Spec.Removal.OnDelete
	} else if !p.isAbsent(absenceKey{template: name}) {
		p.result.State[name] = recorded
		return
	}
	if policy != v1alpha1.RemovalPrune {
		return
	}
	if p.isUnclaimed {
		p.result.State[name] = recorded
		return
	}
	removable, remaining := p.removable(name, nil, obsolete(recorded, nil, p.isNeeded))
	removable, problems := p.prune(ctx, template, "", removable)
	if remaining = append(remaining, removable...); len(remaining) > 0 {
		p.result.State[name] = Entry{Revision: recorded.Revision, Objects: remaining}
		p.result.Templates = append(p.result.Templates, Outcome{Template: name, Problems: problems})
	}
}

// prune deletes objects in reverse order, and returns those that must remain recorded. The revision is that
// which no longer contains the objects; empty if the whole template no longer applies.
func (p *pass) prune(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, revision string, objects []ObjectState,
) (remaining []ObjectState, problems []Problem) {
	isConfirmed := false
	for _, object := range slices.Backward(objects) {
		if object.IsAdopted {
			p.keepObject(template.Name, object)
			continue
		}
		var err error
		if !isConfirmed {
			err = p.confirm(ctx, template, revision)
			isConfirmed = err == nil
		}
		if err == nil {
			err = p.pruneObject(ctx, template, object)
		}
		switch {
		case err == nil:
		case errors.Is(err, errUnconfirmed):
			remaining = append(remaining, object)
			p.result.retry(unconfirmedRetry)
		default:
			remaining = append(remaining, object)
			problems = append(problems, toProblem(template.Name, object.Name,
				fmt.Errorf("failed to delete %s %q: %w", object.Kind, object.ObjectName, err)))
		}
	}
	slices.Reverse(remaining)
	return remaining, problems
}

// keepObject reports an object that is no longer recorded, but remains.
func (p *pass) keepObject(template string, object ObjectState) {
	p.result.Kept = append(p.result.Kept, Problem{
		Template: template, Object: object.Name, Reason: ReasonObjectKept,
		Message: fmt.Sprintf("the template no longer contains %s %q, which the operator has not created and does not delete",
			object.Kind, object.ObjectName),
	})
}

// pruneObject deletes an object that the operator has created. It returns an error unless the object does not exist any
// more. The label of the object does not matter, since its users can remove it.
func (p *pass) pruneObject(ctx context.Context, template *v1alpha1.NamespaceTemplate, object ObjectState) error {
	object.APIVersion = p.Writer.servedVersion(object)
	kind := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind)
	resource, err := p.Writer.mapping(kind)
	if err != nil {
		if toProblem("", "", err).Reason == ReasonKindNotFound {
			err = p.Writer.confirmUnserved(ctx, kind)
		}
		return err
	}
	isGone, err := p.Writer.delete(ctx, template.Spec.ServiceAccountName, p.namespace.Name, object, object.UID)
	switch {
	case nswrite.IsConflict(err):
		if err := p.permitWatch(ctx, template, resource.GroupResource(), object.ObjectName); err != nil {
			return err
		}
		return p.confirmReplaced(ctx, template.Name, object)
	case err != nil:
		return err
	case !isGone:
		return problemf(ReasonTerminating, "it is being deleted")
	}
	p.Recorder.Wrote(template.Name, ActionDelete)
	return nil
}

// confirmReplaced returns an error unless another client has deleted a recorded object and created another one.
func (p *pass) confirmReplaced(ctx context.Context, template string, object ObjectState) error {
	current, err := p.existing(ctx, schema.FromAPIVersionAndKind(object.APIVersion, object.Kind), object.ObjectName)
	switch {
	case err != nil:
		return err
	case current == nil:
		return nil
	case current.UID == object.UID:
		return errUnconfirmed
	}
	p.keepObject(template, object)
	return nil
}

// confirm reads the Namespace and the template from the API server. It returns an error unless they are
// as in the cache, and the revision is one that Namespaces must contain now.
func (p *pass) confirm(ctx context.Context, template *v1alpha1.NamespaceTemplate, revision string) error {
	namespace := &corev1.Namespace{}
	if err := p.Live.Get(ctx, client.ObjectKeyFromObject(p.namespace), namespace); err != nil {
		return fmt.Errorf("failed to get namespace %q: %w", p.namespace.Name, err)
	}
	live := &v1alpha1.NamespaceTemplate{}
	if err := p.Live.Get(ctx, client.ObjectKeyFromObject(template), live); err != nil {
		return fmt.Errorf("failed to get NamespaceTemplate %q: %w", template.Name, err)
	}
	if namespace.UID != p.namespace.UID || namespace.DeletionTimestamp != nil ||
		!maps.Equal(namespace.Labels, p.namespace.Labels) || !maps.Equal(namespace.Annotations, p.namespace.Annotations) ||
		live.UID != template.UID || live.Generation != template.Generation {
		return errUnconfirmed
	}
	// The plan of the rollout can be older than the template in the cache.
	if revision != "" && revision != Revision(&live.Spec) && revision != live.Status.CurrentRevision {
		return errUnconfirmed
	}
	return nil
}

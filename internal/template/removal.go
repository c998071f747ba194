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
	unclaimed := obsolete(recorded, nil, func(key objectKey) bool { _, ok := p.claims[key]; return ok })
	remaining, problems := p.prune(ctx, template, "", unclaimed)
	if len(remaining) > 0 {
		p.result.State[name] = Entry{Revision: recorded.Revision, Objects: remaining}
		p.result.Templates = append(p.result.Templates, Outcome{Template: name, Problems: problems})
	}
}

// prune deletes objects in reverse order, and returns those that must remain recorded. The revision is that
// which no longer contains the objects; empty if the whole template no longer applies.
func (p *pass) prune(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, revision string, objects []ObjectState,
) (remaining []ObjectState, problems []Problem) {
	isConfirmed, name := false, template.Name
	for _, object := range slices.Backward(objects) {
		object.APIVersion = p.Writer.servedVersion(object)
		current, err := p.current(ctx, object)
		switch {
		case err == nil && (current == nil || current.isTerminating || !mayDelete(name, object, current)):
			continue
		case err == nil && !isConfirmed:
			err = p.confirm(ctx, template, revision)
			isConfirmed = err == nil
		}
		if err == nil {
			err = p.Writer.delete(ctx, template.Spec.ServiceAccountName, p.namespace.Name, object, current)
		}
		switch {
		case err == nil:
			p.Recorder.Wrote(name, ActionDelete)
		case nswrite.IsNotFound(err):
		case errors.Is(err, errUnconfirmed) || errors.Is(err, errNotSynced) || nswrite.IsConflict(err):
			remaining = append(remaining, object)
			p.result.retry(unconfirmedRetry)
		default:
			remaining = append(remaining, object)
			problems = append(problems, toProblem(name, object.Name,
				fmt.Errorf("failed to delete %s %q: %w", object.Kind, object.ObjectName, err)))
		}
	}
	slices.Reverse(remaining)
	return remaining, problems
}

// current returns the metadata of a recorded object, or nil if it or its kind does not exist.
func (p *pass) current(ctx context.Context, object ObjectState) (*observed, error) {
	kind := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind)
	if _, err := p.Writer.mapping(kind); err != nil {
		if toProblem("", "", err).Reason == ReasonKindNotFound {
			err = p.Writer.confirmUnserved(ctx, kind)
		}
		return nil, err
	}
	if err := p.Objects.ensure(ctx, kind); err != nil {
		return nil, err
	}
	return p.Objects.get(ctx, kind, p.namespace.Name, object.ObjectName)
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

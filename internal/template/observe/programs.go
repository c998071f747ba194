// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// maxOldPrograms is the number of old revisions of a template that remain compiled.
const maxOldPrograms = 4

// Programs compiles the generations of templates, and their earlier revisions, each once.
type Programs struct {
	Revisions *Revisions

	mutex sync.Mutex
	byUID map[types.UID]*programs
}

// programs are the compiled revisions of one template.
type programs struct {
	generation int64
	latest     *compiled
	old        map[string]*compiled
}

// compiled is a revision of a template with its compiled expressions, or the errors in it.
type compiled struct {
	revision string
	// account is the ServiceAccount that the template has, or had, with this revision. Its author was allowed
	// to impersonate it, but not necessarily the ServiceAccount of a later author.
	account    string
	parameters []v1alpha1.TemplateParameter
	copies     []v1alpha1.TemplateSourceReference
	program    *render.Program
	errors     field.ErrorList
	// labels and annotations are for the Namespace.
	labels, annotations []internalv1alpha1.EffectiveValue
	// size is the size of the template in the set.
	size int
	// kinds are the kinds of the objects, sorted.
	kinds []schema.GroupVersionKind
	// contents are the objects that a Namespace can contain. The name is empty if an expression computes it.
	contents plan.Contents
}

func compile(revision string, spec *v1alpha1.NamespaceTemplateSpec) *compiled {
	result := &compiled{
		revision: revision, account: spec.ServiceAccountName, parameters: spec.Parameters, size: templateset.Size(spec),
		contents: plan.Contents{},
	}
	result.labels, result.annotations = templateset.Values(spec)
	for _, label := range result.labels {
		result.contents[template.ObjectKey{Kind: template.KindLabel, Name: label.Key}] = sets.Empty{}
	}
	for _, annotation := range result.annotations {
		result.contents[template.ObjectKey{Kind: template.KindAnnotation, Name: annotation.Key}] = sets.Empty{}
	}
	for _, object := range spec.Objects {
		manifest, ok := template.ManifestOf(object)
		if object.SourceRef != nil {
			result.copies = append(result.copies, *object.SourceRef)
			manifest, ok = render.IdentityOfCopy(object.SourceRef, ""), true
		}
		if !ok {
			continue
		}
		key, kind := template.KeyOf(manifest), manifest.GroupVersionKind()
		key.Name, _ = render.Literal(key.Name)
		result.contents[key] = sets.Empty{}
		if !slices.Contains(result.kinds, kind) {
			result.kinds = append(result.kinds, kind)
		}
	}
	slices.SortFunc(result.kinds, func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.String(), b.String())
	})
	result.program, result.errors = render.Compile(spec)
	return result
}

// render returns the objects of the revision for a Namespace, in the order in which they are applied.
func (c *compiled) render(ctx context.Context, namespace *corev1.Namespace) ([]render.Object, error) {
	parameters, err := render.ResolveParameters(c.parameters, namespace)
	if err != nil {
		return nil, err
	}
	return c.program.Render(ctx, render.Input{
		Namespace: namespace, Parameters: parameters, RequestedBy: namespace.Annotations[v1alpha1.AnnotationRequestedBy],
	})
}

// of returns the compiled revisions of a template. The caller must hold the mutex.
func (p *Programs) of(tmpl *v1alpha1.NamespaceTemplate) *programs {
	known, ok := p.byUID[tmpl.UID]
	if ok && known.generation == tmpl.Generation {
		return known
	}
	if !ok {
		known = &programs{old: map[string]*compiled{}}
		template.Put(&p.byUID, tmpl.UID, known)
	}
	revision, last := template.Revision(&tmpl.Spec), known.latest
	known.generation = tmpl.Generation
	// The revision does not depend on the selector, which the size includes, nor on the ServiceAccount.
	if last != nil && last.revision == revision && last.size == templateset.Size(&tmpl.Spec) {
		changed := *last
		changed.account = tmpl.Spec.ServiceAccountName
		known.latest = &changed
		return known
	}
	if last != nil && last.revision != revision {
		known.keep(last)
	}
	known.latest = compile(revision, &tmpl.Spec)
	return known
}

// keep keeps an old revision.
func (p *programs) keep(revision *compiled) {
	if len(p.old) >= maxOldPrograms {
		clear(p.old)
	}
	p.old[revision.revision] = revision
}

// latest returns the compiled spec of a template.
func (p *Programs) latest(tmpl *v1alpha1.NamespaceTemplate) *compiled {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.of(tmpl).latest
}

// kinds returns the kinds in the spec of a template, and in the revision that Namespaces have until the rollout is
// complete.
func (p *Programs) kinds(tmpl *v1alpha1.NamespaceTemplate, current string) []schema.GroupVersionKind {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	known := p.of(tmpl)
	if old, ok := known.old[current]; ok {
		return slices.Concat(known.latest.kinds, old.kinds)
	}
	return known.latest.kinds
}

// get returns a compiled revision of a template.
func (p *Programs) get(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, revision string,
) (*compiled, error) {
	p.mutex.Lock()
	known := p.of(tmpl)
	result, ok := known.old[revision]
	if known.latest.revision == revision {
		result, ok = known.latest, true
	}
	p.mutex.Unlock()
	if ok {
		return result, nil
	}
	spec, err := p.Revisions.Get(ctx, tmpl, revision)
	if err != nil {
		return nil, err
	}
	result = compile(revision, spec)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	known.keep(result)
	return result, nil
}

// Errors returns the errors in the spec of a template.
func (p *Programs) Errors(tmpl *v1alpha1.NamespaceTemplate) field.ErrorList {
	return p.latest(tmpl).errors
}

// Omitted returns the names of the templates that the admission policies do not know, because they do not fit into the
// set.
func (p *Programs) Omitted(templates []v1alpha1.NamespaceTemplate) sets.Set[string] {
	return templateset.Omitted(templates, func(t *v1alpha1.NamespaceTemplate) (int, int) {
		latest := p.latest(t)
		return latest.size, templateset.SizeOfMetadata(latest.labels, latest.annotations)
	})
}

// HasCopyOf reports whether a compiled revision of a template copies a source.
func (p *Programs) HasCopyOf(tmpl *v1alpha1.NamespaceTemplate, source v1alpha1.TemplateSourceReference) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	known := p.of(tmpl)
	hasCopy := slices.Contains(known.latest.copies, source)
	for _, old := range known.old {
		hasCopy = hasCopy || slices.Contains(old.copies, source)
	}
	return hasCopy
}

// retain forgets the templates that no longer exist.
func (p *Programs) retain(templates map[types.UID]bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	maps.DeleteFunc(p.byUID, func(uid types.UID, _ *programs) bool { return !templates[uid] })
}

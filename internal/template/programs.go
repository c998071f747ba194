// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// Programs compiles templates, once for each generation.
type Programs struct {
	mutex sync.Mutex
	byUID map[types.UID]compiled
}

// compiled is a template with its compiled expressions, or the errors in it.
type compiled struct {
	generation int64
	program    *render.Program
	revision   string
	errors     field.ErrorList
	// kinds are the kinds of the objects, sorted.
	kinds []schema.GroupVersionKind
}

// get returns the compiled template.
func (p *Programs) get(template *v1alpha1.NamespaceTemplate) compiled {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	known, ok := p.byUID[template.UID]
	if ok && known.generation == template.Generation {
		return known
	}
	known = compiled{generation: template.Generation, revision: Revision(&template.Spec), kinds: kindsOf(&template.Spec)}
	known.program, known.errors = render.Compile(&template.Spec)
	if p.byUID == nil {
		p.byUID = map[types.UID]compiled{}
	}
	p.byUID[template.UID] = known
	return known
}

// kindsOf returns the kinds of the objects of a template, sorted.
func kindsOf(spec *v1alpha1.NamespaceTemplateSpec) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, object := range spec.Objects {
		kind, ok := kindOf(object)
		if object.Copy != nil {
			kind, ok = schema.FromAPIVersionAndKind(object.Copy.APIVersion, object.Copy.Kind), true
		}
		if ok && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return kinds
}

// Errors returns the errors in a template.
func (p *Programs) Errors(template *v1alpha1.NamespaceTemplate) field.ErrorList {
	return p.get(template).errors
}

// retain forgets the templates that no longer exist.
func (p *Programs) retain(templates []v1alpha1.NamespaceTemplate) {
	uids := map[types.UID]bool{}
	for i := range templates {
		uids[templates[i].UID] = true
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for uid := range p.byUID {
		if !uids[uid] {
			delete(p.byUID, uid)
		}
	}
}

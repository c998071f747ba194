// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"sync"

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
}

// get returns the compiled template.
func (p *Programs) get(template *v1alpha1.NamespaceTemplate) compiled {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	known, ok := p.byUID[template.UID]
	if ok && known.generation == template.Generation {
		return known
	}
	known = compiled{generation: template.Generation, revision: Revision(&template.Spec)}
	known.program, known.errors = render.Compile(&template.Spec)
	if p.byUID == nil {
		p.byUID = map[types.UID]compiled{}
	}
	p.byUID[template.UID] = known
	return known
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

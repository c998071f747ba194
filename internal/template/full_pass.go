// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// fullPasses has the times of the next full passes over open Namespaces. A full pass finds changes that
// the managedFields do not show.
type fullPasses struct {
	mutex sync.Mutex
	times map[types.UID]time.Time
}

// next returns the time until the next full pass; 0 if it is due. The first full pass of a Namespace is at
// a random time, so that not all Namespaces are compared at the same time.
func (f *fullPasses) next(namespace types.UID, interval time.Duration, now time.Time) time.Duration {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	at, ok := f.times[namespace]
	if !ok {
		at = now.Add(1 + rand.N(interval))
		f.set(namespace, at)
	}
	return max(at.Sub(now), 0)
}

// done is called after a full pass. It returns the time until the next one.
func (f *fullPasses) done(namespace types.UID, interval time.Duration, now time.Time) time.Duration {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.set(namespace, now.Add(interval))
	return interval
}

func (f *fullPasses) set(namespace types.UID, at time.Time) {
	if f.times == nil {
		f.times = map[types.UID]time.Time{}
	}
	f.times[namespace] = at
}

func (f *fullPasses) forget(namespace types.UID) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	delete(f.times, namespace)
}

// compare reports whether applying an object would change it. Time-stamps in the managedFields are not
// sufficient: the API server updates them when it applies an empty list again.
func (p *pass) compare(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, want desired, recorded *ObjectState,
	current *observed,
) (Action, error) {
	if current.isCrowded {
		return ActionRestore, nil
	}
	target := target{template: template, namespace: p.namespace, isLocked: want.isLocked}
	applied, err := p.Writer.preview(ctx, target, want.manifest)
	if err != nil || fieldsOf(applied.GetManagedFields(), template.Name) == recorded.Fields {
		return actionNone, err
	}
	unchanged, err := p.Writer.previewUnchanged(ctx, target, want.manifest)
	if err != nil || apiequality.Semantic.DeepEqual(withoutServerFields(unchanged), withoutServerFields(applied)) {
		return actionNone, err
	}
	return ActionRestore, nil
}

// withoutServerFields removes the metadata that the API server changes in each write.
func withoutServerFields(object *unstructured.Unstructured) map[string]any {
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	return object.Object
}

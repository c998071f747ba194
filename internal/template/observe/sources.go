// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// annotationContentID is the annotation with the result of contentID. It exists only in the cache.
const annotationContentID = "id"

// Sources provides the sources of copies, which are in one namespace. It watches their kinds there as soon as a
// template contains a copy, with the permissions of the operator.
type Sources struct {
	cache      cache.Cache
	namespaces client.Reader
	namespace  string
	// changed is called when a source is created or deleted, or its content has changed.
	changed func(source v1alpha1.TemplateSourceReference)

	mutex     sync.Mutex
	informers map[string]cache.Informer
}

// SourceCacheOptions returns the options of a cache for the sources in a namespace.
func SourceCacheOptions(namespace string) cache.Options {
	return cache.Options{
		DefaultNamespaces: map[string]cache.Config{namespace: {}}, DefaultTransform: stripSource,
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
	}
}

// NewSources returns Sources in a namespace. The cache must have the options that SourceCacheOptions returns. The other
// reader reads Namespaces.
func NewSources(
	sources cache.Cache, namespaces client.Reader, namespace string, changed func(v1alpha1.TemplateSourceReference),
) *Sources {
	return &Sources{
		cache: sources, namespaces: namespaces, namespace: namespace, changed: changed,
		informers: map[string]cache.Informer{},
	}
}

// get returns a source, which the caller must not change. The error is template.ErrNotSynced until the watch has listed
// all objects, and a problem if the source does not exist.
func (s *Sources) get(
	ctx context.Context, source v1alpha1.TemplateSourceReference,
) (*unstructured.Unstructured, error) {
	object := render.IdentityOfCopy(&source, s.namespace)
	err := s.ensure(ctx, source.Kind)
	if err == nil {
		err = s.cache.Get(ctx, client.ObjectKeyFromObject(object), object)
	}
	if err == nil {
		return object, nil
	}
	switch {
	case apierrors.IsNotFound(s.namespaces.Get(ctx, client.ObjectKey{Name: s.namespace}, &corev1.Namespace{})):
		return nil, template.Problemf(v1alpha1.ReasonSourceNotFound,
			"namespace %q, which contains the sources of copies, does not exist", s.namespace)
	case apierrors.IsNotFound(err):
		return nil, template.Problemf(v1alpha1.ReasonSourceNotFound,
			"%s %q in namespace %q, the source of the copy, does not exist", source.Kind, source.Name, s.namespace)
	}
	return nil, err
}

// copy sets the content of an object that is a copy.
func (s *Sources) copy(ctx context.Context, object *plan.ObjectSnapshot) error {
	source, err := s.get(ctx, v1alpha1.TemplateSourceReference{
		Kind: object.Manifest.GetKind(), Name: object.Manifest.GetName(),
	})
	if err != nil {
		return err
	}
	metadata := object.Manifest.Object["metadata"]
	manifest, err := copyOf(source, metadata)
	if err != nil {
		return err
	}
	object.Manifest, object.Content = manifest, template.HashOf(contentID(source), metadata, object.IsLocked)
	return nil
}

// ensure starts the watch of a kind. It returns template.ErrNotSynced until the watch has listed all objects.
func (s *Sources) ensure(ctx context.Context, kind string) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	informer, ok := s.informers[kind]
	if !ok {
		notify := func(object any) {
			if name, err := toolscache.DeletionHandlingObjectToName(object); err == nil {
				s.changed(v1alpha1.TemplateSourceReference{Kind: kind, Name: name.Name})
			}
		}
		var err error
		watched := render.IdentityOfCopy(&v1alpha1.TemplateSourceReference{Kind: kind}, s.namespace)
		if informer, err = s.cache.GetInformer(ctx, watched, cache.BlockUntilSynced(false)); err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc: notify, DeleteFunc: notify, UpdateFunc: func(before, after any) {
					// A change of the metadata only, which can be frequent, concerns no Namespace.
					if contentID(before) != contentID(after) {
						notify(after)
					}
				},
			})
		}
		if err != nil {
			return fmt.Errorf("failed to watch kind %q in namespace %q: %w", kind, s.namespace, err)
		}
		s.informers[kind] = informer
	}
	if informer.HasSynced() {
		return nil
	}
	return template.Problemf(v1alpha1.ReasonWatchNotSynced,
		"the operator cannot list kind %q in namespace %q: %w", kind, s.namespace, template.ErrNotSynced)
}

// stripSource is the transform of the cache. It keeps what is copied.
func stripSource(object any) (any, error) {
	full, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	source := copiedFields(full)
	id := template.HashOf(full.GetUID(), source.Object)
	source.SetNamespace(full.GetNamespace())
	source.SetUID(full.GetUID())
	source.SetResourceVersion(full.GetResourceVersion())
	source.SetAnnotations(map[string]string{annotationContentID: id})
	return source, nil
}

// contentID identifies the content of a source in the cache. It depends on the UID of the source, which only users who
// can read the source know: users who can read Namespaces, which record the hash of a copy, could otherwise guess the
// content of a Secret.
func contentID(source any) string {
	object, ok := source.(*unstructured.Unstructured)
	if !ok {
		return ""
	}
	return object.GetAnnotations()[annotationContentID]
}

// copiedFields returns the fields of a source that are copied, and its name. The copy of an immutable object must
// follow a source that is replaced.
func copiedFields(source *unstructured.Unstructured) *unstructured.Unstructured {
	copied := render.IdentityOfCopy(&v1alpha1.TemplateSourceReference{
		Kind: source.GetKind(), Name: source.GetName(),
	}, "")
	for _, key := range []string{"type", "data", "binaryData"} {
		if value, ok := source.Object[key]; ok {
			copied.Object[key] = value
		}
	}
	return copied
}

// copyOf returns the manifest of a copy with the given metadata.
func copyOf(copied *unstructured.Unstructured, ownMetadata any) (*unstructured.Unstructured, error) {
	secretType, _, _ := unstructured.NestedString(copied.Object, "type")
	if secretType == string(corev1.SecretTypeServiceAccountToken) {
		return nil, template.Problemf(v1alpha1.ReasonInvalidObject,
			"Secret %q is a token of a ServiceAccount, which cannot be copied to another namespace", copied.GetName())
	}
	manifest := &unstructured.Unstructured{Object: maps.Clone(copied.Object)}
	// Contents are shared by all Namespaces, so the metadata must not be changed in place.
	manifest.Object["metadata"] = ownMetadata
	return manifest, nil
}

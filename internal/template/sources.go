// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// contentLifetime is how long the content of a source is used without another read, which fails if the
// ServiceAccount is not allowed to read the source any more. The API server itself recognizes this late.
const contentLifetime = 10 * time.Second

// Sources provides the sources of copies. It watches the metadata of each source, and reads the content
// as the ServiceAccount of the template when the metadata has changed or the last read is old.
type Sources struct {
	writer   *Writer
	metadata metadata.Interface
	// changed is called when a source has changed.
	changed func(source v1alpha1.TemplateCopy)

	mutex   sync.Mutex
	watched map[v1alpha1.TemplateCopy]watchedSource
	// contents has the content by ServiceAccount and source.
	contents map[contentKey]sourceContent
	clock    clock.PassiveClock
}

type watchedSource struct {
	informer toolscache.SharedIndexInformer
	stop     chan struct{}
}

type contentKey struct {
	serviceAccount string
	source         v1alpha1.TemplateCopy
}

type sourceContent struct {
	object *unstructured.Unstructured
	readAt time.Time
}

// NewSources returns Sources. The metadata client has the permissions of the operator.
func NewSources(
	writer *Writer, client metadata.Interface, now clock.PassiveClock, changed func(v1alpha1.TemplateCopy),
) *Sources {
	return &Sources{
		writer: writer, metadata: client, clock: now, changed: changed,
		watched: map[v1alpha1.TemplateCopy]watchedSource{}, contents: map[contentKey]sourceContent{},
	}
}

// retain stops the watches of sources, and forgets the ServiceAccounts, that are no longer needed.
func (s *Sources) retain(needed map[v1alpha1.TemplateCopy]bool, accounts map[string]bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for source, watched := range s.watched {
		if !needed[source] {
			close(watched.stop)
			delete(s.watched, source)
		}
	}
	for key := range s.contents {
		if !needed[key.source] || !accounts[key.serviceAccount] {
			delete(s.contents, key)
		}
	}
}

// get returns the content of a source. It returns errNotSynced if the watch has just started.
func (s *Sources) get(
	ctx context.Context, serviceAccount string, source v1alpha1.TemplateCopy,
) (*unstructured.Unstructured, error) {
	known, err := s.observe(source)
	if err != nil {
		return nil, err
	}
	key := contentKey{serviceAccount, source}
	s.mutex.Lock()
	last, ok := s.contents[key]
	s.mutex.Unlock()
	now := s.clock.Now()
	// A read can return a newer object than the watch.
	if ok && last.object.GetUID() == known.UID && now.Sub(last.readAt) < contentLifetime &&
		!isNewer(known.ResourceVersion, last.object.GetResourceVersion()) {
		return last.object, nil
	}
	content, err := s.writer.read(ctx, serviceAccount, &source)
	switch {
	case apierrors.IsNotFound(err):
		return nil, sourceNotFound(source)
	case apierrors.IsForbidden(err):
		return nil, problemf(ReasonForbidden, "failed to read the source of the copy: %w", err)
	case err != nil:
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.contents[key] = sourceContent{object: content, readAt: now}
	return content, nil
}

// observe returns the metadata of a source, and starts the watch if necessary.
func (s *Sources) observe(source v1alpha1.TemplateCopy) (*metav1.PartialObjectMetadata, error) {
	s.mutex.Lock()
	watched, ok := s.watched[source]
	if !ok {
		watched = s.watch(source)
		s.watched[source] = watched
	}
	s.mutex.Unlock()
	if err := notSyncedUnless(watched.informer.HasSynced(), source.Kind); err != nil {
		return nil, err
	}
	found, exists, err := watched.informer.GetStore().GetByKey(source.Namespace + "/" + source.Name)
	if err != nil {
		return nil, err
	}
	object, ok := found.(*metav1.PartialObjectMetadata)
	if !exists || !ok {
		return nil, sourceNotFound(source)
	}
	return object, nil
}

func (s *Sources) watch(source v1alpha1.TemplateCopy) watchedSource {
	informer := metadatainformer.NewFilteredMetadataInformer(s.metadata, resourceOf(&source), source.Namespace, 0,
		toolscache.Indexers{}, func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, source.Name).String()
		}).Informer()
	changed := func(any) { s.changed(source) }
	// AddEventHandler fails only if the informer was stopped.
	_, _ = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed, DeleteFunc: changed, UpdateFunc: func(_, object any) { changed(object) },
	})
	watched := watchedSource{informer: informer, stop: make(chan struct{})}
	go informer.Run(watched.stop)
	return watched
}

func sourceNotFound(source v1alpha1.TemplateCopy) error {
	return problemf(ReasonSourceNotFound, "%s %q in namespace %q, the source of the copy, does not exist",
		source.Kind, source.Name, source.Namespace)
}

// copyOf returns the manifest of a copy in a namespace, without the metadata of the source.
func copyOf(source *unstructured.Unstructured, namespace string) (*unstructured.Unstructured, error) {
	secretType, _, _ := unstructured.NestedString(source.Object, "type")
	if secretType == string(corev1.SecretTypeServiceAccountToken) {
		return nil, problemf(ReasonInvalidObject,
			"Secret %q is a token of a ServiceAccount, which cannot be copied to another namespace", source.GetName())
	}
	manifest := identityOf(v1alpha1.TemplateCopy{
		APIVersion: source.GetAPIVersion(), Kind: source.GetKind(), Name: source.GetName(),
	}, namespace)
	// The copy of an immutable object must follow a source that is replaced.
	for _, key := range []string{"type", "data", "binaryData"} {
		if value, ok := source.Object[key]; ok {
			manifest.Object[key] = value
		}
	}
	return manifest, nil
}

// identityOf returns the manifest of a copy in a namespace without its content.
func identityOf(source v1alpha1.TemplateCopy, namespace string) *unstructured.Unstructured {
	manifest := &unstructured.Unstructured{Object: map[string]any{}}
	manifest.SetAPIVersion(source.APIVersion)
	manifest.SetKind(source.Kind)
	manifest.SetName(source.Name)
	manifest.SetNamespace(namespace)
	return manifest
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// contentLifetime is how long the content of a source is used without another read, which fails if the
// ServiceAccount is not allowed to read the source any more. The API server itself recognizes this late.
const contentLifetime = 10 * time.Second

// sourceInterval is the minimum time between two checks of a source that other clients keep changing.
const sourceInterval = time.Second

// maxSourceNamespaces is the maximum length of status.sourceNamespaces.
const maxSourceNamespaces = 64

// sourceReadTimeout limits the reads after a change of a source.
const sourceReadTimeout = 30 * time.Second

// Sources provides the sources of copies. It watches the metadata of each source, and reads the content
// as the ServiceAccount of the template when the metadata has changed or the last read is old. It keeps
// only what is copied, and no metadata except names and versions.
type Sources struct {
	writer *Writer
	// live reads Namespaces from the API server.
	live     client.Reader
	metadata metadata.Interface
	// changed is called when the content of a source has changed.
	changed func(source v1alpha1.TemplateSourceReference)

	mutex   sync.Mutex
	watched map[v1alpha1.TemplateSourceReference]watchedSource
	// isStopped is true when no more watches may start.
	isStopped bool
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
	source         v1alpha1.TemplateSourceReference
}

// sourceContent is what is copied, without the metadata of the source.
type sourceContent struct {
	object *unstructured.Unstructured
	uid    types.UID
	// namespaceUID is the UID of the Namespace that contained the source. No later Namespace contained it.
	namespaceUID types.UID
	// resourceVersion is that of the source when it was read.
	resourceVersion string
	// id identifies the content. It contains the UID of the source, which only users who can read the source know:
	// users who can read Namespaces, which record the id, could otherwise guess the content of a Secret.
	id     string
	readAt time.Time
}

// NewSources returns Sources. The metadata client has the permissions of the operator.
func NewSources(
	writer *Writer, live client.Reader, objects metadata.Interface, now clock.PassiveClock,
	changed func(v1alpha1.TemplateSourceReference),
) *Sources {
	return &Sources{
		writer: writer, live: live, metadata: objects, clock: now, changed: changed,
		watched: map[v1alpha1.TemplateSourceReference]watchedSource{}, contents: map[contentKey]sourceContent{},
	}
}

// Start stops all watches when the context is done.
func (s *Sources) Start(ctx context.Context) error {
	<-ctx.Done()
	s.mutex.Lock()
	s.isStopped = true
	s.mutex.Unlock()
	s.retain(nil, nil)
	return nil
}

// retain stops the watches of sources, and forgets the ServiceAccounts, that are no longer needed.
func (s *Sources) retain(needed map[v1alpha1.TemplateSourceReference]bool, accounts map[string]bool) {
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

// get returns the content of a source of a template. It returns template.ErrNotSynced if the watch has just started,
// and an error if the template does not accept the namespace of the source.
func (s *Sources) get(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, source v1alpha1.TemplateSourceReference,
) (sourceContent, error) {
	known, err := s.ensure(source)
	if err != nil {
		return sourceContent{}, err
	}
	key := contentKey{tmpl.Spec.ServiceAccountName, source}
	s.mutex.Lock()
	content, ok := s.contents[key]
	s.mutex.Unlock()
	// A read can return a newer object than the watch.
	if !ok || content.uid != known.UID || s.clock.Since(content.readAt) >= contentLifetime ||
		isNewer(known.ResourceVersion, content.resourceVersion) {
		if content, err = s.read(ctx, key); err != nil {
			return sourceContent{}, err
		}
	}
	return content, checkSourceNamespace(tmpl, source, content.namespaceUID)
}

// checkSourceNamespace returns an error unless a template accepts the UID of the namespace of a source: that in the
// spec or, if there is none, that in the status.
func checkSourceNamespace(
	tmpl *v1alpha1.NamespaceTemplate, source v1alpha1.TemplateSourceReference, uid types.UID,
) error {
	var accepted types.UID
	for _, recorded := range tmpl.Status.SourceNamespaces {
		if recorded.Name == source.Namespace {
			accepted = recorded.UID
		}
	}
	object := copyIn(tmpl, source)
	if object >= 0 {
		accepted = cmp.Or(tmpl.Spec.Objects[object].SourceRef.NamespaceUID, accepted)
	}
	switch accepted {
	case uid:
		return nil
	case "":
		return template.Problemf(v1alpha1.ReasonWatchNotSynced,
			"the status of the template does not record namespace %q yet: %w", source.Namespace, template.ErrNotSynced)
	}
	advice := "the spec of the template no longer contains the copy"
	if object >= 0 {
		advice = fmt.Sprintf("to accept it, run: kubectl patch nstemplate %s --type=json --patch='"+
			`[{"op":"test","path":"/spec/objects/%d/name","value":%q},`+
			`{"op":"add","path":"/spec/objects/%d/sourceRef/namespaceUID","value":%q}]'`,
			tmpl.Name, object, tmpl.Spec.Objects[object].Name, object, uid)
	}
	return template.Problemf(v1alpha1.ReasonSourceNamespaceReplaced,
		"namespace %q of the source of the copy has UID %s instead of %s, for example because it was deleted and created "+
			"again; %s", source.Namespace, uid, accepted, advice)
}

// copyIn returns the index of the copy of a source in the spec of a template, or -1.
func copyIn(tmpl *v1alpha1.NamespaceTemplate, source v1alpha1.TemplateSourceReference) int {
	return slices.IndexFunc(tmpl.Spec.Objects, func(object v1alpha1.TemplateObject) bool {
		return object.SourceRef != nil && template.WithoutNamespaceUID(*object.SourceRef) == source
	})
}

// SourceNamespaces returns the namespaces of the sources of a template that its status must record: those that it
// records, except unused ones if isComplete, and those of sources that exist since. A UID in the spec replaces that in
// the status, so that it remains accepted if a revision without it is restored.
func (a *Applier) SourceNamespaces(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, isComplete bool,
) ([]v1alpha1.TemplateSourceNamespace, error) {
	used := a.Programs.sourceNamespaces(tmpl)
	recorded := slices.DeleteFunc(slices.Clone(tmpl.Status.SourceNamespaces),
		func(n v1alpha1.TemplateSourceNamespace) bool { return isComplete && !used.Has(n.Name) })
	accepted := template.NamespaceUIDs(&tmpl.Spec)
	for _, name := range sets.List(used) {
		index := slices.IndexFunc(recorded, func(n v1alpha1.TemplateSourceNamespace) bool { return n.Name == name })
		uid := accepted[name]
		if index < 0 && uid == "" && len(recorded) < maxSourceNamespaces {
			var err error
			if uid, err = a.namespaceUID(ctx, name); err != nil {
				return nil, err
			}
		}
		switch {
		case uid == "":
		case index >= 0:
			recorded[index].UID = uid
		case len(recorded) < maxSourceNamespaces:
			recorded = append(recorded, v1alpha1.TemplateSourceNamespace{Name: name, UID: uid})
		}
	}
	return recorded, nil
}

// namespaceUID returns the UID of a Namespace, or "" if it does not exist or is being deleted.
func (a *Applier) namespaceUID(ctx context.Context, name string) (types.UID, error) {
	namespace := metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := a.Live.Get(ctx, client.ObjectKey{Name: name}, &namespace)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("failed to get namespace %q: %w", name, err)
	case namespace.DeletionTimestamp != nil:
		return "", nil
	}
	return namespace.UID, nil
}

// read reads the content of a source from the API server.
func (s *Sources) read(ctx context.Context, key contentKey) (sourceContent, error) {
	readAt := s.clock.Now()
	object, err := s.writer.read(ctx, key.serviceAccount, &key.source)
	switch {
	case apierrors.IsNotFound(err):
		return sourceContent{}, sourceNotFound(key.source)
	case apierrors.IsForbidden(err):
		return sourceContent{}, template.Problemf(v1alpha1.ReasonForbidden, "failed to read the source of the copy: %w", err)
	case err != nil:
		return sourceContent{}, err
	}
	// The Namespace is read after the source, which therefore is not in a later Namespace.
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := s.live.Get(ctx, client.ObjectKey{Name: key.source.Namespace}, namespace); err != nil {
		if apierrors.IsNotFound(err) {
			return sourceContent{}, sourceNotFound(key.source)
		}
		return sourceContent{}, fmt.Errorf("failed to get namespace %q: %w", key.source.Namespace, err)
	}
	copied := copiedFields(object)
	content := sourceContent{
		object: copied, uid: object.GetUID(), namespaceUID: namespace.UID, resourceVersion: object.GetResourceVersion(),
		id: template.HashOf(object.GetUID(), copied.Object), readAt: readAt,
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.contents[key] = content
	return content, nil
}

// hasChanged reports whether a source, of which the metadata has changed, has other content for any ServiceAccount than
// was reported, and updates what was. A pass over a Namespace can have read the new content before.
func (s *Sources) hasChanged(source v1alpha1.TemplateSourceReference, reported map[contentKey]string) bool {
	var keys []contentKey
	s.mutex.Lock()
	for key := range s.contents {
		if key.source == source {
			keys = append(keys, key)
		}
	}
	s.mutex.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), sourceReadTimeout)
	defer cancel()
	changed := len(keys) == 0
	for _, key := range keys {
		content, err := s.read(ctx, key)
		changed = changed || err != nil || content.id != reported[key]
		reported[key] = content.id
	}
	return changed
}

// ensure starts the watch of a source if necessary, and returns the metadata of the source.
func (s *Sources) ensure(source v1alpha1.TemplateSourceReference) (*metav1.PartialObjectMetadata, error) {
	s.mutex.Lock()
	watched, ok := s.watched[source]
	if !ok && s.isStopped { // A pass has not ended yet.
		s.mutex.Unlock()
		return nil, template.NotSyncedUnless(false, source.Kind)
	}
	if !ok {
		watched = s.watch(source)
		s.watched[source] = watched
	}
	s.mutex.Unlock()
	if err := template.NotSyncedUnless(watched.informer.HasSynced(), source.Kind); err != nil {
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

func (s *Sources) watch(source v1alpha1.TemplateSourceReference) watchedSource {
	informer := metadatainformer.NewFilteredMetadataInformer(s.metadata, sourceResource(&source), source.Namespace, 0,
		toolscache.Indexers{}, func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, source.Name).String()
		}).Informer()
	// Setting a transform fails only if the informer was started.
	_ = informer.SetTransform(stripSource)
	touched := make(chan struct{}, 1)
	touch := func(any) {
		select {
		case touched <- struct{}{}:
		default: // A check that starts later is queued.
		}
	}
	// AddEventHandler fails only if the informer was stopped.
	_, _ = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: touch, DeleteFunc: touch, UpdateFunc: func(_, object any) { touch(object) },
	})
	watched := watchedSource{informer: informer, stop: make(chan struct{})}
	go informer.Run(watched.stop)
	go s.follow(source, touched, watched.stop)
	return watched
}

// follow reports changes of the content of a source until it is stopped. A change of its metadata only, which can be
// frequent, concerns no Namespace.
func (s *Sources) follow(source v1alpha1.TemplateSourceReference, touched, stop <-chan struct{}) {
	reported := map[contentKey]string{}
	for {
		select {
		case <-stop:
			return
		case <-touched:
		}
		if s.hasChanged(source, reported) {
			s.changed(source)
		}
		select {
		case <-stop:
			return
		case <-time.After(sourceInterval):
		}
	}
}

// stripSource is the transform of the watch of a source.
func stripSource(object any) (any, error) {
	full, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	return &metav1.PartialObjectMetadata{TypeMeta: full.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: full.Namespace, Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion,
	}}, nil
}

func sourceNotFound(source v1alpha1.TemplateSourceReference) error {
	return template.Problemf(v1alpha1.ReasonSourceNotFound,
		"%s %q in namespace %q, the source of the copy, does not exist", source.Kind, source.Name, source.Namespace)
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

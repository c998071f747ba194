// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// metadata returns the labels and annotations that the revision of a template sets on the Namespace.
func (p *pass) metadata(revision *compiled) []*plan.Object {
	requestedBy := p.Namespace.Annotations[v1alpha1.AnnotationRequestedBy]
	labels := templateset.Evaluate(revision.labels, p.Namespace, requestedBy)
	annotations := templateset.Evaluate(revision.annotations, p.Namespace, requestedBy)
	var objects []*plan.Object
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		objects = append(objects, plan.NewMetadata(template.KindLabel, key, labels[key]))
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		objects = append(objects, plan.NewMetadata(template.KindAnnotation, key, annotations[key]))
	}
	return objects
}

// observeMetadata returns a label or annotation of the Namespace; nil if it does not exist.
func (p *pass) observeMetadata(key template.ObjectKey) *plan.Observed {
	hash := template.MetadataHash(p.Namespace, key)
	if hash == "" {
		return nil
	}
	return &plan.Observed{UID: p.Namespace.UID, NamespaceUID: p.Namespace.UID, Fields: hash}
}

// writeMetadata sets the labels and annotations of a template in one request, if this is necessary. It returns errors
// that concern the whole pass.
func (p *pass) writeMetadata(ctx context.Context, selected *plan.Selected) error {
	changes := metadataChanges{}
	var written []*plan.Object
	for _, object := range selected.Objects {
		if !object.IsMetadata() || object.Err != nil || object.Action == plan.NoAction {
			continue
		}
		if err := p.CheckMetadata(selected.Template, object, p.Clock.Now()); err != nil {
			if err := p.wrote(selected, object, err); err != nil {
				return err
			}
			continue
		}
		written = append(written, object)
		if current := object.Own.Current; current == nil || current.Fields != object.Content {
			changes[object.Key()] = &object.Value
		}
	}
	version := p.Namespace.ResourceVersion
	if p.IsInitializing { // Other values are replaced in any case, and the conditions change often.
		version = ""
	}
	err := p.changeMetadata(ctx, selected.Template, version, changes)
	for _, object := range written {
		_, isChanged := changes[object.Key()]
		if err != nil && isChanged {
			if err := p.wrote(selected, object, err); err != nil {
				return err
			}
			continue
		}
		p.AppliedMetadata(object, isChanged, p.Clock.Now())
		if isChanged {
			p.Recorder.Wrote(selected.Template.Name, object.Action)
		}
	}
	return nil
}

// removeMetadata removes a label or annotation, or returns why it is kept.
func (p *pass) removeMetadata(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, recorded template.ObjectState,
) (kept string, err error) {
	if p.observeMetadata(recorded.Key()) == nil {
		return "", nil
	}
	live := &corev1.Namespace{} // The cache contains no managedFields.
	if err := p.Live.Get(ctx, client.ObjectKeyFromObject(p.Namespace), live); err != nil {
		return "", fmt.Errorf("failed to get namespace %q: %w", p.Namespace.Name, err)
	}
	if live.UID != p.Namespace.UID {
		return "", plan.ErrUnconfirmed
	}
	if kept := plan.CheckMetadataMark(tmpl, recorded, live); kept != "" {
		return kept, nil
	}
	err = p.changeMetadata(ctx, tmpl, live.ResourceVersion, metadataChanges{recorded.Key(): nil})
	if err != nil {
		return "", err
	}
	p.Recorder.Wrote(tmpl.Name, plan.ActionDelete)
	return "", nil
}

// metadataChanges are the new values of labels and annotations; nil for those that are removed.
type metadataChanges map[template.ObjectKey]*string

// of returns the changes of labels or annotations.
func (c metadataChanges) of(kind string) map[string]*string {
	changes := map[string]*string{}
	for key, value := range c {
		if key.Kind.Kind == kind {
			changes[key.Name] = value
		}
	}
	return changes
}

// changeMetadata changes the metadata of the Namespace with a resourceVersion; with any if it is empty. If another
// client has changed the Namespace meanwhile, which can be the reason for the change, it returns plan.ErrUnconfirmed.
func (p *pass) changeMetadata(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, version string, changes metadataChanges,
) error {
	if len(changes) == 0 {
		return nil
	}
	response, err := p.Writer.changeMetadata(ctx, tmpl, p.Namespace, version, changes)
	switch {
	case nsobject.IsConflict(err):
		return plan.ErrUnconfirmed
	case err != nil:
		return err
	}
	p.Namespace.ResourceVersion = response.ResourceVersion
	p.Namespace.Labels, p.Namespace.Annotations = response.Labels, response.Annotations
	if !p.IsInitializing {
		p.Records.setState(p.record, p.State, response.ResourceVersion)
	}
	return nil
}

// changeMetadata changes labels and annotations of a Namespace with a resourceVersion; with any if it is empty.
func (w *Writer) changeMetadata(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace, resourceVersion string,
	changes metadataChanges,
) (*metav1.PartialObjectMetadata, error) {
	clients, err := w.as(tmpl.Spec.ServiceAccountName)
	if err != nil {
		return nil, err
	}
	metadata := nsobject.Preconditions(namespace, resourceVersion)
	for field, kind := range map[string]string{
		"labels": template.KindLabel.Kind, "annotations": template.KindAnnotation.Kind,
	} {
		if values := changes.of(kind); len(values) > 0 {
			metadata[field] = values
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("failed to encode the metadata of namespace %q: %w", namespace.Name, err)
	}
	return clients.metadata.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).
		Patch(ctx, namespace.Name, types.MergePatchType, body,
			metav1.PatchOptions{FieldManager: template.FieldManager(tmpl.Name)})
}

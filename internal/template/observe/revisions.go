// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// maxRevisions is the number of ControllerRevisions of a template, in addition to those in use.
const maxRevisions = 10

// Revisions stores the revisions of templates, and which of them new Namespaces get, as ControllerRevisions in the
// system namespace. They are deleted with the template.
type Revisions struct {
	client.Client
	// Cached reads ControllerRevisions from a cache, Live from the API server.
	Cached, Live    client.Reader
	SystemNamespace string
}

func revisionName(templateName, revision string) string { return templateName + "-" + revision }

// list returns the ControllerRevisions of a template, and of deleted templates with its name.
func (r *Revisions) list(
	ctx context.Context, reader client.Reader, templateName string,
) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	err := reader.List(ctx, &list, client.InNamespace(r.SystemNamespace),
		client.MatchingLabels{v1alpha1.LabelManagedByTemplate: templateName})
	if err != nil {
		return nil, fmt.Errorf("failed to list the revisions of NamespaceTemplate %q: %w", templateName, err)
	}
	slices.SortFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	return list.Items, nil
}

// Current returns the revision that new Namespaces get, or "" if the template has no revision. It does not depend on
// the status of the template, which other clients can change. A previous leader may just have changed the revision, so
// the cache is not sufficient.
func (r *Revisions) Current(ctx context.Context, tmpl *v1alpha1.NamespaceTemplate) (string, error) {
	stored, err := r.list(ctx, r.Live, tmpl.Name)
	return currentOf(tmpl, stored), err
}

// CurrentSpecs returns the specs of the revisions that new Namespaces get, by template, if they are not those of the
// templates; nil if a revision cannot be read.
func (r *Revisions) CurrentSpecs(
	ctx context.Context, templates []v1alpha1.NamespaceTemplate,
) (map[string]*v1alpha1.NamespaceTemplateSpec, error) {
	specs := map[string]*v1alpha1.NamespaceTemplateSpec{}
	for i := range templates {
		tmpl := &templates[i]
		stored, err := r.list(ctx, r.Cached, tmpl.Name)
		if err != nil {
			return nil, err
		}
		current := currentOf(tmpl, stored)
		if current == "" || current == template.Revision(&tmpl.Spec) {
			continue // The first revision is current at once.
		}
		// The template reports the error, and no new Namespace is initialized.
		specs[tmpl.Name], _ = r.Get(ctx, tmpl, current)
	}
	return specs, nil
}

// currentOf returns the revision with the highest v1alpha1.AnnotationCurrentRevision. If it was deleted, this is the
// one before the newest, whose rollout may not be complete. The revisions are sorted.
func currentOf(tmpl *v1alpha1.NamespaceTemplate, stored []appsv1.ControllerRevision) string {
	stored = slices.DeleteFunc(slices.Clone(stored), func(object appsv1.ControllerRevision) bool {
		return !metav1.IsControlledBy(&object, tmpl)
	})
	if len(stored) == 0 {
		return ""
	}
	current, highest := max(0, len(stored)-2), int64(0)
	for i := range stored {
		number, err := strconv.ParseInt(stored[i].Annotations[v1alpha1.AnnotationCurrentRevision], 10, 64)
		if err == nil && number > highest {
			current, highest = i, number
		}
	}
	return strings.TrimPrefix(stored[current].Name, tmpl.Name+"-")
}

// Record stores the spec of a template, as the newest revision, also if an old revision is equal, and whether it is the
// current one. It deletes old revisions that are not in use.
func (r *Revisions) Record(ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, current string) error {
	revision := template.Revision(&tmpl.Spec)
	name := revisionName(tmpl.Name, revision)
	isNamed := func(object appsv1.ControllerRevision) bool { return object.Name == name }
	existing, err := r.list(ctx, r.Cached, tmpl.Name)
	if err == nil && !slices.ContainsFunc(existing, isNamed) { // The cache can be behind.
		existing, err = r.list(ctx, r.Live, tmpl.Name)
	}
	if err != nil {
		return err
	}
	var recorded *appsv1.ControllerRevision
	if index := slices.IndexFunc(existing, isNamed); index >= 0 {
		recorded = &existing[index]
	}
	if recorded != nil && !metav1.IsControlledBy(recorded, tmpl) {
		// It belongs to a deleted template with the same name.
		if err := r.delete(ctx, recorded); err != nil {
			return err
		}
		recorded = nil
	}
	annotations := map[string]string{v1alpha1.AnnotationServiceAccount: tmpl.Spec.ServiceAccountName}
	number := numberOf(name, existing)
	if revision == current {
		annotations[v1alpha1.AnnotationCurrentRevision] = strconv.FormatInt(number, 10)
	}
	if recorded == nil {
		err = r.create(ctx, tmpl, name, number, annotations)
	} else {
		err = r.update(ctx, recorded, number, annotations)
	}
	if err != nil {
		return err
	}
	inUse := []string{revisionName(tmpl.Name, current), name}
	unused := slices.DeleteFunc(existing, func(old appsv1.ControllerRevision) bool {
		return slices.Contains(inUse, old.Name)
	})
	for i := range unused[:max(0, len(unused)-maxRevisions)] {
		if err := r.delete(ctx, &unused[i]); err != nil {
			return err
		}
	}
	return nil
}

// numberOf returns the number that makes a revision the newest one.
func numberOf(name string, stored []appsv1.ControllerRevision) int64 {
	number := int64(1)
	for i := range stored {
		if stored[i].Name == name {
			number = max(number, stored[i].Revision)
		} else {
			number = max(number, stored[i].Revision+1)
		}
	}
	return number
}

// delete deletes a revision unless another one with its name exists, which the cache may not contain yet.
func (r *Revisions) delete(ctx context.Context, recorded *appsv1.ControllerRevision) error {
	err := r.Delete(ctx, recorded, client.Preconditions{UID: &recorded.UID})
	if nsobject.IgnoreStale(err) != nil {
		return fmt.Errorf("failed to delete ControllerRevision %q: %w", recorded.Name, err)
	}
	return nil
}

func (r *Revisions) create(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, name string, number int64, annotations map[string]string,
) error {
	raw, err := template.EncodeContent(template.ContentOf(&tmpl.Spec))
	if err != nil {
		return fmt.Errorf("failed to encode a revision of NamespaceTemplate %q: %w", tmpl.Name, err)
	}
	owner := metav1.NewControllerRef(tmpl, v1alpha1.GroupVersion.WithKind("NamespaceTemplate"))
	owner.BlockOwnerDeletion = nil
	object := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.SystemNamespace, Name: name,
			Labels:      map[string]string{v1alpha1.LabelManagedByTemplate: tmpl.Name},
			Annotations: annotations, OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Data: runtime.RawExtension{Raw: raw}, Revision: number,
	}
	if err := r.Create(ctx, object); err != nil {
		return fmt.Errorf("failed to create ControllerRevision %q: %w", object.Name, err)
	}
	return nil
}

// update changes the number and the annotations of a revision. A revision to which a template returns is the newest
// again, so that the one before it is never the revision that was undone.
func (r *Revisions) update(
	ctx context.Context, recorded *appsv1.ControllerRevision, number int64, annotations map[string]string,
) error {
	changed := recorded.DeepCopy()
	changed.Revision = number
	for key, value := range annotations {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, key, value)
	}
	if apiequality.Semantic.DeepEqual(recorded, changed) {
		return nil
	}
	if err := r.Patch(ctx, changed, client.MergeFrom(recorded), client.FieldOwner(nsobject.FieldOwner)); err != nil {
		return fmt.Errorf("failed to update ControllerRevision %q: %w", recorded.Name, err)
	}
	return nil
}

// Get returns a spec with the content of a revision, and with the ServiceAccount
// that the template had with them. A deleted template with the same name can still have revisions.
func (r *Revisions) Get(
	ctx context.Context, tmpl *v1alpha1.NamespaceTemplate, revision string,
) (*v1alpha1.NamespaceTemplateSpec, error) {
	object := &appsv1.ControllerRevision{}
	key := client.ObjectKey{Namespace: r.SystemNamespace, Name: revisionName(tmpl.Name, revision)}
	if err := r.Cached.Get(ctx, key, object); err != nil {
		return nil, template.Problemf(v1alpha1.ReasonRevisionNotFound, "failed to get revision %q: %w", revision, err)
	}
	if !metav1.IsControlledBy(object, tmpl) {
		return nil, template.Problemf(v1alpha1.ReasonRevisionNotFound,
			"revision %q is not a revision of this template", revision)
	}
	account := object.Annotations[v1alpha1.AnnotationServiceAccount]
	if account == "" {
		return nil, template.Problemf(v1alpha1.ReasonRevisionNotFound,
			"revision %q does not have the annotation %q", revision, v1alpha1.AnnotationServiceAccount)
	}
	var stored template.Content
	if err := json.Unmarshal(object.Data.Raw, &stored); err != nil {
		return nil, template.Problemf(v1alpha1.ReasonRevisionNotFound, "failed to decode revision %q: %w", revision, err)
	}
	return &v1alpha1.NamespaceTemplateSpec{
		ServiceAccountName: account,
		Parameters:         stored.Parameters, Variables: stored.Variables, Metadata: stored.Metadata,
		ObjectMetadata: stored.ObjectMetadata, Objects: stored.Objects,
	}, nil
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

// maxRevisions is the number of ControllerRevisions of a template, in addition to those in use.
const maxRevisions = 10

// Revisions stores the revisions of templates as ControllerRevisions in the system namespace. They are
// deleted with the template.
type Revisions struct {
	client.Client
	// Cached reads ControllerRevisions from a cache.
	Cached          client.Reader
	SystemNamespace string
}

// content is the part of a spec that a revision identifies.
type content struct {
	Parameters []v1alpha1.TemplateParameter `json:"parameters,omitempty"`
	Variables  []v1alpha1.TemplateVariable  `json:"variables,omitempty"`
	Objects    []v1alpha1.TemplateObject    `json:"objects"`
}

func contentOf(spec *v1alpha1.NamespaceTemplateSpec) content {
	return content{Parameters: spec.Parameters, Variables: spec.Variables, Objects: spec.Objects}
}

// Revision identifies the parameters, variables and objects of a template. Other fields, and descriptions,
// do not change what a Namespace contains.
func Revision(spec *v1alpha1.NamespaceTemplateSpec) string {
	identified := contentOf(spec)
	identified.Parameters = slices.Clone(identified.Parameters)
	for i := range identified.Parameters {
		identified.Parameters[i].Description = ""
	}
	return hashOf(identified)
}

func revisionName(template, revision string) string { return template + "-" + revision }

// List returns the ControllerRevisions of a template, oldest first.
func (r *Revisions) List(ctx context.Context, template string) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	err := r.Cached.List(ctx, &list, client.InNamespace(r.SystemNamespace),
		client.MatchingLabels{v1alpha1.LabelTemplate: template})
	if err != nil {
		return nil, fmt.Errorf("failed to list the revisions of NamespaceTemplate %q: %w", template, err)
	}
	slices.SortFunc(list.Items, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	return list.Items, nil
}

// Record stores the spec of a template, as the newest revision, also if an old revision is equal. It
// deletes old revisions that are not in use.
func (r *Revisions) Record(ctx context.Context, template *v1alpha1.NamespaceTemplate, inUse ...string) error {
	existing, err := r.List(ctx, template.Name)
	if err != nil {
		return err
	}
	revision := Revision(&template.Spec)
	var recorded *appsv1.ControllerRevision
	number := int64(0)
	for i := range existing {
		if existing[i].Name == revisionName(template.Name, revision) {
			recorded = &existing[i]
		} else {
			number = max(number, existing[i].Revision)
		}
	}
	if recorded != nil && !metav1.IsControlledBy(recorded, template) {
		// It belongs to a deleted template with the same name.
		if err := r.delete(ctx, recorded); err != nil {
			return err
		}
		recorded = nil
	}
	account := template.Spec.ServiceAccountName
	switch {
	case recorded == nil:
		err = r.create(ctx, template, revision, number+1)
	case recorded.Revision <= number:
		err = r.update(ctx, recorded, number+1, account)
	case recorded.Annotations[v1alpha1.AnnotationServiceAccount] != account:
		err = r.update(ctx, recorded, recorded.Revision, account)
	}
	if err != nil {
		return err
	}
	inUse = append(inUse, revision)
	unused := slices.DeleteFunc(existing, func(old appsv1.ControllerRevision) bool {
		return slices.ContainsFunc(inUse, func(used string) bool { return old.Name == revisionName(template.Name, used) })
	})
	for i := range unused[:max(0, len(unused)-maxRevisions)] {
		if err := r.delete(ctx, &unused[i]); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes a revision unless another one with its name exists, which the cache may not contain yet.
func (r *Revisions) delete(ctx context.Context, recorded *appsv1.ControllerRevision) error {
	err := r.Delete(ctx, recorded, client.Preconditions{UID: &recorded.UID})
	if nswrite.IgnoreStale(err) != nil {
		return fmt.Errorf("failed to delete ControllerRevision %q: %w", recorded.Name, err)
	}
	return nil
}

func (r *Revisions) create(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, revision string, number int64,
) error {
	raw, err := json.Marshal(contentOf(&template.Spec))
	if err != nil {
		return fmt.Errorf("failed to encode a revision of NamespaceTemplate %q: %w", template.Name, err)
	}
	owner := metav1.NewControllerRef(template, v1alpha1.GroupVersion.WithKind("NamespaceTemplate"))
	owner.BlockOwnerDeletion = nil
	object := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.SystemNamespace, Name: revisionName(template.Name, revision),
			Labels:          map[string]string{v1alpha1.LabelTemplate: template.Name},
			Annotations:     map[string]string{v1alpha1.AnnotationServiceAccount: template.Spec.ServiceAccountName},
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Data: runtime.RawExtension{Raw: raw}, Revision: number,
	}
	if err := r.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("failed to create ControllerRevision %q: %w", object.Name, err)
	}
	return nil
}

// update changes the number and the ServiceAccount of a revision. A revision to which a template returns is
// the newest again, so that the one before it is never the revision that was undone.
func (r *Revisions) update(
	ctx context.Context, recorded *appsv1.ControllerRevision, number int64, account string,
) error {
	patch := client.MergeFrom(recorded.DeepCopy())
	changed := recorded.DeepCopy()
	changed.Revision = number
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.AnnotationServiceAccount, account)
	if err := r.Patch(ctx, changed, patch, client.FieldOwner(nswrite.FieldOwner)); err != nil {
		return fmt.Errorf("failed to update ControllerRevision %q: %w", recorded.Name, err)
	}
	return nil
}

// get returns a spec with the parameters, variables and objects of a revision, and with the ServiceAccount
// that the template had with them. The status of the template, which contains the revision, is not protected
// by PolicyTemplateAuthors, so the revision must be one of this template.
func (r *Revisions) get(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, revision string,
) (*v1alpha1.NamespaceTemplateSpec, error) {
	object := &appsv1.ControllerRevision{}
	key := client.ObjectKey{Namespace: r.SystemNamespace, Name: revisionName(template.Name, revision)}
	if err := r.Cached.Get(ctx, key, object); err != nil {
		return nil, problemf(ReasonRevisionNotFound, "failed to get revision %q: %w", revision, err)
	}
	if !metav1.IsControlledBy(object, template) {
		return nil, problemf(ReasonRevisionNotFound, "revision %q is not a revision of this template", revision)
	}
	var stored content
	if err := json.Unmarshal(object.Data.Raw, &stored); err != nil {
		return nil, problemf(ReasonRevisionNotFound, "failed to decode revision %q: %w", revision, err)
	}
	return &v1alpha1.NamespaceTemplateSpec{
		// Versions before this annotation existed did not record the ServiceAccount.
		ServiceAccountName: cmp.Or(object.Annotations[v1alpha1.AnnotationServiceAccount], template.Spec.ServiceAccountName),

		Parameters: stored.Parameters, Variables: stored.Variables, Objects: stored.Objects,
	}, nil
}

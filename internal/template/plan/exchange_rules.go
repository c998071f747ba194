// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// maxManagers is the number of entries in the managedFields of an object from which the operator writes it only after
// it has removed them. The time that the API server takes for any other write grows faster than the square of the
// number: with 1,000 entries, which every user who can change the object can add, it exceeds the timeout of a request.
const maxManagers = 64

// IsCrowded reports whether an object has too many field managers.
func IsCrowded(entries []metav1.ManagedFieldsEntry) bool { return len(entries) > maxManagers }

// mustFind reports whether the API server must be asked for an object before it is written: the cache lacks objects
// without the label of a template, and the managedFields. In a new Namespace, users cannot write.
func (o Ownership) mustFind(decided Action, adopt v1alpha1.AdoptionPolicy) bool {
	if o.Current != nil {
		return o.Current.IsCrowded || o.Current.IsShared && decided == ActionUpdate ||
			decided == ActionCreate && adopt == v1alpha1.AdoptNever
	}
	return !o.IsInitializing || decided == ActionCreate && adopt == v1alpha1.AdoptNever
}

// CheckExisting returns a problem if an existing object must not be adopted, and whether its managedFields must be
// removed before it is overridden. The object is nil if there is none.
func (o Ownership) CheckExisting(
	wanted *ObjectSnapshot, found *Observed, decided Action, adopt v1alpha1.AdoptionPolicy,
) (mustReset bool, err error) {
	isNew := decided == ActionCreate
	switch {
	case found == nil:
		return false, nil
	case isNew && adopt == v1alpha1.AdoptNever && o.Created != found.UID:
		return false, template.Problemf(v1alpha1.ReasonAlreadyExists,
			"%s exists already, and the template does not adopt objects", describeObject(wanted))
	case found.IsCrowded && isNew && adopt != v1alpha1.AdoptAlways:
		return false, template.Problemf(v1alpha1.ReasonConflict,
			"%s has more than %d entries in its managedFields: remove them", describeObject(wanted), maxManagers)
	}
	return found.IsCrowded, nil
}

// immutable returns the problem of an object that cannot be changed and is not replaced.
func immutable(wanted *ObjectSnapshot, reason string, rejected error) error {
	return template.Problemf(v1alpha1.ReasonFieldImmutable, "%s cannot be changed, and is not replaced, because %s; the "+
		"operator creates it again after you delete it: %w", describeObject(wanted), reason, rejected)
}

// namesField reports whether the API server has rejected the value of a field. Admission policies name none.
func namesField(rejected error) bool {
	var status apierrors.APIStatus
	return errors.As(rejected, &status) && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
}

// releasedFields are the fields that a template has after it has released an object.
const releasedFields = `{"f:metadata":{"f:annotations":{"f:` + v1alpha1.AnnotationNamespaceUID + `":{}}}}`

// maxReleases limits the requests because of the managedFields of one object. An object moves from one template to
// another, but a user can write as many field managers as the object has space for.
const maxReleases = 4

// releasesOf returns the other templates that have set fields of an object. When a template applies an object for the
// first time, the object has moved from them. Later, other field managers of templates are like those of any other
// client.
func releasesOf(wanted *ObjectSnapshot, applied *metav1.PartialObjectMetadata, name string) ([]string, error) {
	var names []string
	for _, entry := range applied.ManagedFields {
		other, ok := strings.CutPrefix(entry.Manager, template.FieldManagerPrefix)
		if ok && other != name && entry.FieldsV1 != nil && entry.FieldsV1.GetRawString() != releasedFields {
			names = append(names, other)
		}
	}
	if len(names) > maxReleases {
		return nil, template.Problemf(v1alpha1.ReasonConflict,
			"%s has fields of %d other templates in its managedFields, more than the %d that it can have moved from: "+
				"remove these entries", describeObject(wanted), len(names), maxReleases)
	}
	return names, nil
}

// isConfirmed reports whether the Namespace and the template in the API server are as a decision has found them, except
// for changes by the plan itself, and the revision, if there is one, is one that Namespaces must contain now: the
// latest, or the current one of the rollout.
func (o Operation) isConfirmed(r Response) bool {
	before, now, revision := o.Namespace, r.Namespace, o.Choice.Revision
	return now.UID == before.UID && now.DeletionTimestamp == nil &&
		o.changes.isExpected(template.KindLabel.Kind, before.Labels, now.Labels) &&
		o.changes.isExpected(template.KindAnnotation.Kind, before.Annotations, now.Annotations) &&
		r.Template.UID == o.Template.UID && r.Template.Generation == o.Template.Generation &&
		(revision == "" || revision == template.Revision(&r.Template.Spec) || revision == o.Choice.Current)
}

// otherName returns a name under which a dry run creates an object: whether the API server would create it shows
// whether it rejects only the change of the existing object.
func otherName(namespace types.UID, name string) string {
	const maxName = 39 // The names of some kinds are limited to 52 characters, and a hash has 12.
	return name[:min(len(name), maxName)] + "x" + template.HashOf(namespace, name)
}

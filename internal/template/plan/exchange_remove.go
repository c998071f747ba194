// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// sendConfirm reads the Namespace and the template again, because the decision may be based on a stale cache.
func (o Operation) sendConfirm(next step) Operation {
	return o.send(next, Request{Verb: Confirm, Name: o.Template.Name})
}

// checkConfirmation returns an error if the Namespace or the template has changed since the decision.
func (o Operation) checkConfirmation(r Response) error {
	switch {
	case r.Err != nil:
		return r.Err
	case !o.isConfirmed(r), o.Request.MustFindAccount && r.HasAccount:
		return ErrUnconfirmed
	}
	return nil
}

func (o Operation) afterConfirm(r Response) Operation { return o.done(o.checkConfirmation(r)) }

// remove starts the deletion of an object that a template no longer contains.
func (o Operation) remove(recorded template.ObjectState) Operation {
	o.removed, o.owner = &recorded, o.Template.Name
	if template.IsMetadata(recorded.Kind) {
		if template.MetadataHash(o.Namespace, recorded.Key()) == "" {
			return o.done(nil)
		}
		return o.sendConfirm(findMetadata) // The cache contains no managedFields.
	}
	return o.send(findMarked, Request{
		Verb: Find, Kind: recorded.Kind.WithVersion(""), Name: recorded.Name, IsRemoval: true,
	})
}

// afterFindMarked deletes an object if its metadata prove that the operator has written the object for a template.
func (o Operation) afterFindMarked(r Response) Operation {
	uid := o.own.creation()
	if o.removed != nil {
		uid = o.removed.UID
	}
	switch {
	case r.Err != nil && o.removed != nil && template.ToProblem("", "", r.Err).Reason == v1alpha1.ReasonKindNotFound:
		return o.send(discover, Request{Verb: Discover, Kind: o.Request.Kind})
	case r.Err != nil:
		return o.deleted(false, "", r.Err)
	case r.Metadata == nil:
		return o.deleted(true, "", nil)
	}
	if kept := checkMark(o.owner, o.Namespace.UID, uid, &r.Metadata.ObjectMeta); kept != "" {
		return o.deleted(false, kept, nil)
	}
	// Some aggregated API servers assign no resourceVersion.
	return o.send(deleteMarked, Request{
		Verb: Delete, Kind: o.Request.Kind, Name: o.Request.Name, UID: uid, ResourceVersion: r.Metadata.ResourceVersion,
	})
}

// afterDiscover ends the operation if the API server serves no version of the kind. The operator's discovery also lacks
// the kinds of an unavailable aggregated API server.
func (o Operation) afterDiscover(r Response) Operation {
	if r.Err == nil && r.IsServed {
		return o.done(ErrUnconfirmed)
	}
	return o.done(r.Err)
}

func (o Operation) afterDelete(r Response) Operation {
	if nsobject.IsConflict(r.Err) {
		return o.done(ErrUnconfirmed)
	}
	if r.Err == nil && r.IsGone {
		o.Result.Writes = append(o.Result.Writes, ActionDelete)
	}
	return o.deleted(r.IsGone, "", r.Err)
}

// deleted ends a removal. If the object is being replaced, deleted creates the new object.
func (o Operation) deleted(isGone bool, kept string, err error) Operation {
	if o.removed == nil {
		return o.replaced(isGone, kept, err)
	}
	if err == nil && kept == "" && !isGone {
		err = template.Problemf(v1alpha1.ReasonObjectTerminating, "it is being deleted")
	}
	o.Result.Kept = kept
	return o.done(err)
}

// replaced creates an object again after the deletion of the earlier one.
func (o Operation) replaced(isGone bool, kept string, err error) Operation {
	switch name := describeObject(&o.Object); {
	case kept != "":
		return o.done(immutable(&o.Object, kept, o.rejected))
	case apierrors.IsForbidden(err):
		return o.done(immutable(&o.Object, err.Error(), o.rejected))
	case err != nil:
		return o.done(fmt.Errorf("failed to delete %s, which cannot be changed: %w", name, err))
	case !isGone:
		return o.done(template.Problemf(v1alpha1.ReasonObjectTerminating, "the earlier %s is being deleted", name))
	}
	o.isForced, o.isFinal = true, true
	return o.apply()
}

// setMetadata changes labels and annotations of the Namespace. If version is not empty, the request fails unless the
// Namespace has this resourceVersion.
func (o Operation) setMetadata(changes MetadataChanges, version string) Operation {
	return o.send(setMetadata, Request{
		Verb: SetMetadata, FieldManager: template.FieldManager(o.Template.Name), Changes: changes, ResourceVersion: version,
	})
}

func (o Operation) afterSetMetadata(r Response) Operation {
	switch {
	case nsobject.IsConflict(r.Err):
		return o.done(ErrUnconfirmed)
	case r.Err != nil:
		return o.done(r.Err)
	case o.removed != nil:
		o.Result.Writes = append(o.Result.Writes, ActionDelete)
	}
	o.Result.Namespace = r.Metadata
	return o.done(nil)
}

// afterFindMetadata removes a label or annotation of the Namespace, unless another client has set it.
func (o Operation) afterFindMetadata(r Response) Operation {
	switch {
	case r.Err != nil:
		return o.done(r.Err)
	case r.Namespace.UID != o.Namespace.UID:
		return o.done(ErrUnconfirmed)
	}
	if o.Result.Kept = checkMetadataMark(o.Template, *o.removed, r.Namespace); o.Result.Kept != "" {
		return o.done(nil)
	}
	return o.setMetadata(MetadataChanges{o.removed.Key(): nil}, r.Namespace.ResourceVersion)
}

// checkEffective determines whether an object of a new Namespace is effective. Before the initialization fails because
// an object is not effective, the API server must confirm the decision. Counted ResourceQuotas are not checked.
func (o Operation) checkEffective(mustConfirm bool) Operation {
	o.mustConfirmWait = mustConfirm
	if o.Object.Key().Kind == Quotas.GroupKind() {
		return o.afterCheckGranted(Response{Err: notCounted(&o.Object)})
	}
	o = o.sendFor(checkGranted, CheckGranted)
	o.Request.Manifest = o.Object.Manifest
	return o
}

func (o Operation) afterCheckGranted(r Response) Operation {
	var expected *template.ReasonError
	if !o.mustConfirmWait || !errors.As(r.Err, &expected) { // Another error does not say that the object is not effective.
		return o.done(r.Err)
	}
	o.rejected = r.Err
	return o.sendConfirm(confirmWait)
}

func (o Operation) afterConfirmWait(r Response) Operation {
	if o.checkConfirmation(r) != nil {
		return o.done(o.rejected)
	}
	if o.Object.Key().Kind == Quotas.GroupKind() { // For RoleBindings, the API server was asked.
		return o.sendFor(confirmUncounted, FindUncounted)
	}
	return o.afterConfirmUncounted(Response{IsUncounted: true})
}

func (o Operation) afterConfirmUncounted(r Response) Operation {
	o.Result.isConfirmed = r.Err == nil && r.IsUncounted
	return o.done(o.rejected)
}

// immutable returns the problem of an object that cannot be changed and is not replaced.
func immutable(wanted *ObjectSnapshot, reason string, rejected error) error {
	return template.Problemf(v1alpha1.ReasonFieldImmutable, "%s cannot be changed, and is not replaced, because %s; the "+
		"operator creates it again after you delete it: %w", describeObject(wanted), reason, rejected)
}

// namesField reports whether the API server has rejected the value of a field. Admission policies name no field.
func namesField(rejected error) bool {
	var status apierrors.APIStatus
	return errors.As(rejected, &status) && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
}

// releasedFields are the fields that a template still owns after it has released an object.
const releasedFields = `{"f:metadata":{"f:annotations":{"f:` + v1alpha1.AnnotationNamespaceUID + `":{}}}}`

// maxReleases limits the release requests for one object. Usually, an object moves from one template, but a user can
// write as many forged field managers as the object has space for.
const maxReleases = 4

// releasesOf returns the other templates from which an object moves, by their field managers. An object moves only when
// a template applies it for the first time. Later, field managers of other templates count as other clients.
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

// isConfirmed reports whether the Namespace and the template are unchanged since the decision, except for changes by
// the plan itself. If the operation has a revision, it must be the latest revision or the current revision of the
// rollout.
func (o Operation) isConfirmed(r Response) bool {
	before, now, revision := o.Namespace, r.Namespace, o.Choice.Revision
	return now.UID == before.UID && now.DeletionTimestamp == nil &&
		o.changes.isExpected(template.KindLabel.Kind, before.Labels, now.Labels) &&
		o.changes.isExpected(template.KindAnnotation.Kind, before.Annotations, now.Annotations) &&
		r.Template.UID == o.Template.UID && r.Template.Generation == o.Template.Generation &&
		(revision == "" || revision == template.Revision(&r.Template.Spec) || revision == o.Choice.Current)
}

// otherName returns a name under which a dry run creates an object. If the dry run succeeds, the API server rejects
// only the change of the existing object.
func otherName(namespace types.UID, name string) string {
	const maxName = 39 // The names of some kinds are limited to 52 characters, and a hash has 12.
	return name[:min(len(name), maxName)] + "x" + template.HashOf(namespace, name)
}

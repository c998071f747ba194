// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// step is a step of an exchange.
type step string

// The steps in which an object is applied. The exchange starts at one of the first four.
const (
	// compare determines with a dry run whether applying the object would change it. compareLive reads the object.
	compare     step = "Compare"
	compareLive step = "CompareLive"
	// describe finds the clients that repeatedly change an object.
	describe step = "Describe"
	// find reads an object that the cache does not contain, or contains without its managedFields.
	find step = "Find"
	// previewClaims finds the fields that the template drops. setManagers removes other clients' ownership of them.
	previewClaims step = "PreviewClaims"
	setManagers   step = "SetManagers"
	// apply applies the object.
	apply step = "Apply"
	// readExisting and previewExisting determine whether an object of another client equals the manifest.
	readExisting    step = "ReadExisting"
	previewExisting step = "PreviewExisting"
	// tryOtherName determines whether the API server would accept the object under another name, and so rejects only
	// the change.
	tryOtherName step = "TryOtherName"
	// release removes the fields of the template from which the object moves.
	release step = "Release"
	// findApplied gets the metadata of the object as watches return it.
	findApplied step = "FindApplied"
)

// The steps in which an object is deleted: because the template no longer contains it, or before it is created again.
const (
	confirmReplacement step = "ConfirmReplacement"
	findMarked         step = "FindMarked"
	discover           step = "Discover"
	deleteMarked       step = "Delete"
)

// The other steps.
const (
	confirm          step = "Confirm"
	setMetadata      step = "SetMetadata"
	findMetadata     step = "FindMetadata"
	checkGranted     step = "CheckGranted"
	confirmWait      step = "ConfirmWait"
	confirmUncounted step = "ConfirmUncounted"
)

// transitions maps each step to the function that handles the response.
var transitions = map[step]func(Operation, Response) Operation{
	compare: Operation.afterCompare, compareLive: Operation.afterCompareLive, describe: Operation.afterDescribe,
	find: Operation.afterFind, previewClaims: Operation.afterPreviewClaims, setManagers: Operation.afterSetManagers,
	apply: Operation.afterApply, readExisting: Operation.afterReadExisting,
	previewExisting: Operation.afterPreviewExisting, tryOtherName: Operation.afterTryOtherName,
	release: Operation.afterRelease, findApplied: Operation.afterFindApplied,
	confirmReplacement: Operation.afterConfirmReplacement, findMarked: Operation.afterFindMarked,
	discover: Operation.afterDiscover, deleteMarked: Operation.afterDelete,
	confirm: Operation.afterConfirm, setMetadata: Operation.afterSetMetadata,
	findMetadata: Operation.afterFindMetadata, checkGranted: Operation.afterCheckGranted,
	confirmWait: Operation.afterConfirmWait, confirmUncounted: Operation.afterConfirmUncounted,
}

// Next returns the operation after the response to its request: with the next request, or with its result.
func Next(o Operation, response Response) Operation { return transitions[o.step](o, response) }

// done ends the operation.
func (o Operation) done(err error) Operation {
	o.Request, o.Result.Err = Request{}, err
	return o
}

// send sends another request.
func (o Operation) send(next step, request Request) Operation {
	o.step, o.Request = next, request
	return o
}

// manifest returns the manifest of the object with the labels and annotations of the operator.
func (o Operation) manifest() *unstructured.Unstructured {
	manifest := template.WithOwnMetadata(o.Template.Name, o.Namespace, o.Object.Manifest, o.Object.IsLocked)
	if o.version != "" {
		manifest.SetResourceVersion(o.version)
	}
	return manifest
}

// sendApply applies the manifest of the object.
func (o Operation) sendApply(next step, isForced, isDryRun bool) Operation {
	return o.send(next, Request{
		Verb: Apply, Kind: o.Object.Manifest.GroupVersionKind(), Name: o.Object.Manifest.GetName(), Manifest: o.manifest(),
		FieldManager: template.FieldManager(o.Template.Name), IsForced: isForced, IsDryRun: isDryRun,
	})
}

// preview applies the object in a dry run.
func (o Operation) preview(next step) Operation { return o.sendApply(next, true, true) }

// sendFor sends a request without a body.
func (o Operation) sendFor(next step, verb Verb) Operation {
	return o.send(next, Request{Verb: verb, Kind: o.Object.Manifest.GroupVersionKind(), Name: o.Object.Manifest.GetName()})
}

// begin starts to apply the object.
func (o Operation) begin() Operation {
	switch {
	case o.action == ActionRestore, o.action == NoAction && o.own.Current.IsCrowded:
		return o.restore()
	case o.action == NoAction:
		return o.preview(compare)
	}
	return o.write()
}

// afterCompare restores an object if a dry run would change it although its managedFields show no change. Timestamps in
// managedFields do not prove a change: the API server updates them when it applies an empty list again.
func (o Operation) afterCompare(r Response) Operation {
	switch {
	case dryrun.IsUnsupported(r.Err):
		return o.done(nil)
	case r.Err != nil:
		return o.done(r.Err)
	}
	o.Result.IsCompared, o.Result.Different = true, Differences(o.Request.Manifest, r.Object, o.Template.Name)
	switch {
	case o.own.Recorded.IsDifferent && len(o.Result.Different) == 0: // Admission does not change the object any more.
		return o.restore()
	case FieldsOf(r.Metadata.ManagedFields, o.Template.Name) == o.own.Recorded.Fields:
		return o.done(nil)
	}
	o.live = r.Object
	return o.sendFor(compareLive, Read)
}

func (o Operation) afterCompareLive(r Response) Operation {
	if r.Err != nil || apiequality.Semantic.DeepEqual(WithoutServerFields(r.Object), WithoutServerFields(o.live)) {
		return o.done(r.Err)
	}
	return o.restore()
}

// restore writes an object again, unless other clients keep changing it.
func (o Operation) restore() Operation {
	o.action, o.Result.restoration = ActionRestore, o.restoration
	switch current := o.own.Current; {
	case o.restoration.delay == 0:
		return o.write()
	case o.restoration.conflict != "":
		return o.conflict(o.restoration.conflict)
	case current == nil || current.IsCrowded:
		return o.afterDescribe(Response{})
	}
	return o.sendApply(describe, false, true)
}

// afterDescribe reports the clients that change an object. The API server names these clients if the operator applies
// the object without force.
func (o Operation) afterDescribe(r Response) Operation {
	detail := "another client deletes it or removes fields"
	if nsobject.IsConflict(r.Err) || dryrun.IsUnsupported(r.Err) {
		detail = denial.Message(r.Err, template.MaxFailureMessage/2)
	}
	return o.conflict(fmt.Sprintf("%s was restored %d times, and another client changes it again: %s",
		describeObject(&o.Object), o.restoration.count, detail))
}

func (o Operation) conflict(description string) Operation {
	o.Result.restoration.conflict = description
	return o.done(template.Problemf(v1alpha1.ReasonConflict, "%s", description))
}

// write applies the object. If the cache lacks the object or its managedFields, write reads the object first.
func (o Operation) write() Operation {
	if o.own.mustFind(o.action, o.Template.Spec.Sync.AdoptionPolicy) {
		return o.sendFor(find, Find)
	}
	return o.apply()
}

// apply applies the object. It overrides the fields of other field managers unless the object is new to the template.
func (o Operation) apply() Operation {
	isForced := o.isForced || o.action != ActionCreate || o.Template.Spec.Sync.AdoptionPolicy == v1alpha1.AdoptAlways
	return o.sendApply(apply, isForced, false)
}

// afterFind ends if an object exists that must not be adopted. It removes claims of other clients to fields that the
// operator will override or remove.
func (o Operation) afterFind(r Response) Operation {
	if r.Err != nil {
		return o.done(r.Err)
	}
	var current *Observed
	if r.Metadata != nil {
		current = ObservedOf(&r.Metadata.ObjectMeta)
	}
	mustReset, err := o.own.CheckAdoption(&o.Object, current, o.action, o.Template.Spec.Sync.AdoptionPolicy)
	switch {
	case err != nil:
		return o.done(err)
	case mustReset:
		return o.setManagers(ownClaims(r.Metadata.ManagedFields, o.Template.Name), "")
	case current != nil && current.IsShared && o.action == ActionUpdate:
		o.found = r.Metadata
		return o.preview(previewClaims)
	}
	return o.apply()
}

func (o Operation) setManagers(managers []metav1.ManagedFieldsEntry, version string) Operation {
	o = o.sendFor(setManagers, SetManagers)
	if len(managers) == 0 { // The API server ignores an empty list.
		managers = []metav1.ManagedFieldsEntry{{}}
	}
	o.Request.Managers, o.Request.ResourceVersion = managers, version
	return o
}

// afterPreviewClaims removes the claims of other clients to the fields that the template drops, so that the API server
// removes the fields when the template is applied.
func (o Operation) afterPreviewClaims(r Response) Operation {
	switch {
	case apierrors.IsInvalid(r.Err), dryrun.IsUnsupported(r.Err):
		// Without a preview, other clients' ownership remains. The apply request returns the error, or the object is
		// replaced.
		return o.apply()
	case r.Err != nil:
		return o.done(r.Err)
	}
	managers, err := withoutClaims(o.found.ManagedFields, r.Metadata.ManagedFields, o.Template.Name, o.own.Recorded == nil)
	switch {
	case err != nil:
		return o.done(err)
	case managers == nil:
		return o.apply()
	}
	return o.setManagers(managers, o.found.ResourceVersion)
}

// afterSetManagers applies the object after other clients' ownership was removed. If the removal required a
// resourceVersion, the object is applied in the version that the removal returned.
func (o Operation) afterSetManagers(r Response) Operation {
	isVersioned := o.Request.ResourceVersion != ""
	switch {
	case isVersioned && nsobject.IsConflict(r.Err):
		return o.done(unconfirmed(r.Err))
	case nsobject.IsNotFound(r.Err):
	case r.Err != nil:
		return o.done(fmt.Errorf("failed to change the managedFields of %s: %w", describeObject(&o.Object), r.Err))
	case isVersioned:
		o.version = r.Metadata.ResourceVersion
	}
	return o.apply()
}

func unconfirmed(err error) error { return fmt.Errorf("%w: %w", ErrUnconfirmed, err) }

// afterApply adopts or replaces an object if the API server has rejected the change.
func (o Operation) afterApply(r Response) Operation {
	adopt := o.Template.Spec.Sync.AdoptionPolicy
	switch {
	case r.Err == nil:
		return o.applied(r)
	case o.version != "" && nsobject.IsConflict(r.Err):
		return o.done(unconfirmed(r.Err))
	case o.isFinal:
		return o.done(r.Err)
	case apierrors.IsInvalid(r.Err):
		o.rejected, o.version = r.Err, "" // A new object has no version.
		other := o
		other.Object.Manifest = o.Object.Manifest.DeepCopy()
		other.Object.Manifest.SetName(otherName(o.Namespace.UID, o.Object.Manifest.GetName()))
		return o.send(tryOtherName, other.preview(tryOtherName).Request)
	case o.action == ActionCreate && adopt == v1alpha1.AdoptIfEqual && nsobject.IsConflict(r.Err):
		o.rejected = r.Err
		return o.sendFor(readExisting, Read)
	}
	return o.done(r.Err)
}

// afterReadExisting and afterPreviewExisting adopt an object of another field manager if only the operator's keys would
// change, for example because the object was restored from a backup of an earlier Namespace. Otherwise, the operation
// ends with the conflict. The write requires the resourceVersion that was compared.
func (o Operation) afterReadExisting(r Response) Operation {
	switch {
	case dryrun.IsUnsupported(r.Err):
		return o.done(fmt.Errorf("%w; it is unknown whether the object is equal: %w", o.rejected, r.Err))
	case r.Err != nil:
		return o.done(r.Err)
	}
	o.live, o.version = r.Object, r.Object.GetResourceVersion()
	return o.preview(previewExisting)
}

func (o Operation) afterPreviewExisting(r Response) Operation {
	switch {
	case nsobject.IsConflict(r.Err):
		return o.done(unconfirmed(r.Err))
	case r.Err != nil:
		return o.done(r.Err)
	case !IsEqual(o.live, r.Object):
		return o.done(o.rejected)
	}
	o.isForced, o.isFinal = true, true
	return o.apply()
}

// afterTryOtherName replaces an object if the API server has rejected only its change. Otherwise, a permission or a
// credential that the template no longer contains would remain because a field is immutable.
func (o Operation) afterTryOtherName(r Response) Operation {
	switch {
	case apierrors.IsInvalid(r.Err):
		return o.done(o.rejected)
	case apierrors.IsForbidden(r.Err): // For example, a quota in the namespace has no space for another object.
		return o.done(immutable(&o.Object, r.Err.Error(), o.rejected))
	case r.Err != nil:
		return o.done(fmt.Errorf("%w; it is unknown whether only the change is invalid: %w", o.rejected, r.Err))
	case !r.IsCreated:
		return o.done(o.rejected)
	}
	reason := o.own.mustNotReplace(o.Object.Key().Kind)
	if reason == "" && !namesField(o.rejected) {
		// An admission policy can depend on the object's name. It then also rejects a new object with this name.
		reason = "an admission policy or webhook rejects the change"
	}
	if reason != "" {
		return o.done(immutable(&o.Object, reason, o.rejected))
	}
	return o.sendConfirm(confirmReplacement) // The template in the cache can be older than the object.
}

func (o Operation) afterConfirmReplacement(r Response) Operation {
	if err := o.checkConfirmation(r); err != nil {
		return o.done(err)
	}
	return o.sendFor(findMarked, Find)
}

// applied takes over the object from other templates.
func (o Operation) applied(r Response) Operation {
	o.Result.Writes = append(o.Result.Writes, o.action)
	o.Result.IsCompared, o.Result.Different = true, Differences(o.Request.Manifest, r.Object, o.Template.Name)
	if r.IsCreated {
		o.Result.Created, o.own.Created = r.Metadata.UID, r.Metadata.UID
	}
	o.found = r.Metadata
	if o.own.Recorded != nil {
		return o.finish()
	}
	var err error
	if o.releases, err = releasesOf(&o.Object, r.Metadata, o.Template.Name); err != nil {
		return o.done(err)
	}
	return o.release()
}

// release removes the fields that only another template has set on the object.
func (o Operation) release() Operation {
	if len(o.releases) == 0 {
		return o.finish()
	}
	empty := &unstructured.Unstructured{Object: map[string]any{}}
	empty.SetGroupVersionKind(o.Object.Manifest.GroupVersionKind())
	empty.SetName(o.Object.Manifest.GetName())
	empty.SetAnnotations(map[string]string{v1alpha1.AnnotationNamespaceUID: string(o.Namespace.UID)})
	return o.send(release, Request{
		Verb: Apply, Kind: empty.GroupVersionKind(), Name: empty.GetName(), Manifest: empty,
		FieldManager: template.FieldManager(o.releases[0]),
	})
}

func (o Operation) afterRelease(r Response) Operation {
	if r.Err != nil {
		return o.done(fmt.Errorf("failed to take over the object of template %q: %w", o.releases[0], r.Err))
	}
	o.found, o.releases = r.Metadata, o.releases[1:]
	return o.release()
}

// finish reads the metadata in the format of watches, because the operator records the hash of the managedFields. The
// JSON of the response escapes some characters of the managedFields; the format of watches does not.
func (o Operation) finish() Operation {
	if isEscaped(o.found.ManagedFields) {
		return o.sendFor(findApplied, Find)
	}
	o.Result.Applied = o.found
	return o.done(nil)
}

func (o Operation) afterFindApplied(r Response) Operation {
	switch {
	case r.Err != nil:
		return o.done(r.Err)
	case r.Metadata == nil || r.Metadata.UID != o.found.UID:
		return o.done(ErrUnconfirmed)
	}
	o.Result.Applied = r.Metadata
	return o.done(nil)
}

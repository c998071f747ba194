// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/dryrun"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

// Examples returns the first Namespaces of each change. A limit of 0 means all.
func (c *Comparison) Examples(limit int) []*NamespaceChange {
	counts := map[Change]int{}
	var examples []*NamespaceChange
	for i := range c.Items {
		item := &c.Items[i]
		if counts[item.Change]++; limit == 0 || counts[item.Change] <= limit {
			examples = append(examples, item)
		}
	}
	return examples
}

// DryRunner applies changes as server-side dry runs, with the permissions of the user.
type DryRunner struct {
	Client  dynamic.Interface
	Mapper  meta.RESTMapper
	DryRuns *dryrun.Guard
}

// Run adds the results of dry runs to a change that has been computed without the objects in the
// cluster. It returns why objects could not be tested, for example because the user lacks permissions.
func (r *DryRunner) Run(ctx context.Context, of *Template, result *Comparison, item *NamespaceChange) []string {
	var untested []string
	count, hasFailed := 0, false
	for i := range item.Objects {
		object := &item.Objects[i]
		if !object.isObject || object.Change == Failed || object.isCopy && object.Change != Created {
			continue
		}
		count++
		before := object.Change
		object.beforeTry = before
		if err := r.dryRun(ctx, of.Name, item.snapshot, object); err != nil {
			untested = append(untested, fmt.Sprintf("dry run of %s in namespace %s: %v", object.Kind, item.Namespace, err))
			object.beforeTry = ""
		}
		result.Objects[before]--
		result.Objects[object.Change]++
		hasFailed = hasFailed || object.Change == Failed
	}
	if count > 0 && len(untested) == 0 {
		item.IsTried = true
		result.Tried++
	}
	if hasFailed {
		result.setFailed(item, Failed)
	}
	return untested
}

// setFailed changes the result for a Namespace. The operator deletes nothing unless all objects were applied.
func (c *Comparison) setFailed(item *NamespaceChange, change Change) {
	item.Objects = slices.DeleteFunc(item.Objects, func(object ObjectChange) bool {
		if object.Change == Deleted {
			c.Objects[Deleted]--
		}
		return object.Change == Deleted
	})
	c.Namespaces[item.Change]--
	c.Namespaces[change]++
	item.Change = change
}

// triedObject identifies an object of a template, and what happens to it without a failure.
type triedObject struct {
	name      string
	beforeTry Change
}

// triedResult has the numbers of dry runs.
type triedResult struct{ count, failed int }

// Infer applies the results of dry runs to the Namespaces that were not tried: an object that fails in all Namespaces
// that were tried is likely to fail in the others.
func (c *Comparison) Infer() {
	tried := c.tried()
	for i := range c.Items {
		item, isLikely := &c.Items[i], false
		for j := range item.Objects {
			object := &item.Objects[j]
			result := tried[triedObject{object.Object, object.Change}]
			if object.beforeTry != "" || result.count == 0 || result.failed < result.count {
				continue
			}
			c.Objects[object.Change]--
			c.Objects[LikelyFailed]++
			object.Change, isLikely = LikelyFailed, true
			object.Message = fmt.Sprintf("not tried; the object fails in %s that were tried",
				printable.Count(result.count, "namespace"))
		}
		if isLikely && item.Change != Failed {
			c.setFailed(item, LikelyFailed)
		}
	}
	c.sort()
}

// MayFail reports whether an object failed in some Namespaces that were tried, but not in all, so that the rest can
// fail, too.
func (c *Comparison) MayFail() bool {
	for _, result := range c.tried() {
		if result.failed > 0 && result.failed < result.count {
			return true
		}
	}
	return false
}

func (c *Comparison) tried() map[triedObject]triedResult {
	tried := map[triedObject]triedResult{}
	for _, item := range c.Items {
		for _, object := range item.Objects {
			if object.beforeTry == "" {
				continue
			}
			key := triedObject{object.Object, object.beforeTry}
			result := tried[key]
			if result.count++; object.Change == Failed {
				result.failed++
			}
			tried[key] = result
		}
	}
	return tried
}

// dryRun is the dry run of one object.
type dryRun struct {
	*ObjectChange
	client dynamic.ResourceInterface
	// option makes requests dry runs.
	option []string
	// live is the object in the cluster, or nil, and applied the object after the last request that applies it.
	live, applied *unstructured.Unstructured
	// isReplaced is true if the object is deleted and created again.
	isReplaced bool
	// untested is an error that the operator would not get.
	untested error
}

// dryRun sets the fields of one object, or its failure. It returns an error if the object was not tested.
func (r *DryRunner) dryRun(ctx context.Context, name string, snapshot plan.Snapshot, object *ObjectChange) error {
	wanted := findObject(snapshot, name, object)
	run := &dryRun{ObjectChange: object}
	resource, err := template.ResourceOf(r.Mapper, wanted.Manifest.GroupVersionKind())
	if err != nil {
		return run.fail(err)
	}
	if run.option, err = r.DryRuns.Option(ctx, resource.GroupVersion()); err != nil {
		return err
	}
	run.client = r.Client.Resource(resource).Namespace(snapshot.Namespace.Name)
	run.live, err = run.client.Get(ctx, object.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		run.live = nil
	case err != nil:
		return err
	}
	if wanted.Current = nil; run.live != nil {
		metadata, err := metadataOf(run.live)
		if err != nil {
			return err
		}
		if metadata.Labels[v1alpha1.LabelManagedByTemplate] != "" {
			wanted.Current = plan.ObservedOf(&metadata.ObjectMeta)
		}
	}
	recorded := snapshot.State[name]
	objects, _, err := plan.Compute(snapshot, plan.Elapsed(name, recorded, snapshot.Now)).Decisions(name)
	for _, decided := range objects {
		if decided.Object.Key() == wanted.Key() {
			return run.execute(ctx, decided)
		}
	}
	return err
}

// findObject returns the object in a snapshot, which the dry run changes.
func findObject(snapshot plan.Snapshot, name string, object *ObjectChange) *plan.ObjectSnapshot {
	for i := range snapshot.Applicable {
		objects := snapshot.Applicable[i].Objects
		for j := range objects {
			if snapshot.Applicable[i].Template.Name == name && objects[j].Name == object.Object &&
				objects[j].Manifest.GetName() == object.Name {
				return &objects[j]
			}
		}
	}
	return nil
}

func metadataOf(object *unstructured.Unstructured) (*metav1.PartialObjectMetadata, error) {
	metadata := &metav1.PartialObjectMetadata{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, metadata); err != nil {
		return nil, fmt.Errorf("failed to decode the metadata of %s %q: %w", object.GetKind(), object.GetName(), err)
	}
	return metadata, nil
}

// execute performs the exchange of the operator with dry runs.
func (r *dryRun) execute(ctx context.Context, decided plan.Decision) error {
	isNew := decided.Action == plan.ActionCreate
	switch {
	case decided.Err != nil:
		return r.fail(decided.Err)
	case decided.Object.Content == "":
		return r.fail(r.compareCopy(decided))
	case decided.Operation == nil:
		return nil
	}
	operation := *decided.Operation
	for !operation.IsDone() {
		operation = plan.Next(operation, r.send(ctx, operation))
	}
	switch err := operation.Result.Err; {
	case r.untested != nil:
		return r.untested
	case isNew && nsobject.IsConflict(err):
		return r.fail(notAdopted(decided.Object.Manifest, err))
	case err != nil:
		return r.fail(err)
	case r.isReplaced:
		r.Change, r.Fields = Replaced, nil
		r.Message = "the operator deletes the object and creates it again, because a field is immutable"
	case r.live == nil || r.applied == nil:
	case isNew:
		r.adopt(compareFields(r.Kind, plan.WithoutOwnKeys(r.live), plan.WithoutOwnKeys(r.applied)))
	default:
		r.Fields = compareFields(r.Kind, plan.WithoutServerFields(r.live), plan.WithoutServerFields(r.applied))
	}
	return nil
}

// send answers a request with a dry run, or with what the operator would get after requests that change an object.
func (r *dryRun) send(ctx context.Context, o plan.Operation) (response plan.Response) {
	switch o.Request.Verb {
	case plan.Find, plan.SetManagers:
		if r.live != nil {
			response.Metadata, response.Err = metadataOf(r.live)
		}
	case plan.Read:
		response.Object = r.live.DeepCopy()
	case plan.Confirm:
		response.Namespace, response.Template = o.Namespace, o.Template
	case plan.Delete:
		r.isReplaced, response.IsGone = true, true
	case plan.Apply:
		response = r.apply(ctx, o)
	}
	return response
}

func (r *dryRun) apply(ctx context.Context, o plan.Operation) plan.Response {
	applied, err := o.Request.Manifest, error(nil)
	isOwn := o.Request.FieldManager == template.FieldManager(o.Template.Name)
	if isOwn && !r.isReplaced {
		applied, err = r.client.Apply(ctx, o.Request.Name, o.Request.Manifest, metav1.ApplyOptions{
			DryRun: r.option, FieldManager: o.Request.FieldManager, Force: o.Request.IsForced,
		})
	}
	if err != nil {
		if apierrors.IsForbidden(err) && dependsOnUser(err) {
			r.untested = err
		}
		return plan.Response{Err: err}
	}
	metadata, err := metadataOf(applied)
	if isOwn && r.live != nil && o.Request.Name == r.live.GetName() {
		r.applied = applied.DeepCopy()
	}
	isCreated := r.live == nil || r.isReplaced || o.Request.Name != r.live.GetName()
	return plan.Response{Metadata: metadata, Object: applied, IsCreated: isCreated, Err: err}
}

// fail sets the failure if the operator has it, too. Otherwise, it returns the error.
func (r *dryRun) fail(err error) error {
	var problem *template.ReasonError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &problem):
	// For a field that is not in the schema, the API server returns an internal error.
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsConflict(err), apierrors.IsInternalError(err),
		apierrors.IsForbidden(err) && !dependsOnUser(err):
		err = fmt.Errorf("the API server rejects the object: %w", err)
	default:
		return err
	}
	r.Change, r.Message, r.Fields = Failed, err.Error(), nil
	return nil
}

func (r *dryRun) adopt(fields []FieldChange) {
	r.Change, r.Fields, r.Message = Adopted, fields, "the object exists, and the operator adopts it without changing it"
	if len(fields) > 0 {
		r.Message = "the object exists, and the operator adopts and changes it"
	}
}

// compareCopy sets whether the operator adopts an object that exists instead of a copy, whose source is not read.
func (r *dryRun) compareCopy(decided plan.Decision) error {
	if r.live == nil || decided.Operation == nil {
		return nil
	}
	switch decided.Operation.Template.Spec.Sync.AdoptionPolicy {
	case v1alpha1.AdoptNever:
		found := &plan.Observed{UID: r.live.GetUID()}
		_, err := (plan.Ownership{}).CheckExisting(&decided.Object, found, plan.ActionCreate, v1alpha1.AdoptNever)
		return err
	case v1alpha1.AdoptAlways:
		r.Message = "the object exists, and the operator adopts it and changes it to the content of the source"
	default:
		r.Message = "the object exists, and the operator adopts it unless a value differs from the source; the source is " +
			"not compared"
	}
	r.Change = Adopted
	return nil
}

// notAdopted returns the error for an object that exists with other values.
func notAdopted(manifest *unstructured.Unstructured, conflict error) error {
	return template.Problemf(v1alpha1.ReasonConflict, "%s %q exists with other values, and spec.sync.adoptionPolicy does "+
		"not permit to change it: %w", manifest.GetKind(), manifest.GetName(), conflict)
}

// dependsOnUser reports whether a request can be forbidden only because the user sends it, and not the ServiceAccount
// of the template: without a permission, as an escalation of privileges, or by a policy such as
// PolicyTemplateObjects. A policy that depends only on the object more likely returns Invalid, the default.
func dependsOnUser(err error) bool {
	return denial.IsMissingPermission(err) || len(denial.DenyingPolicies(err.Error())) > 0 ||
		denial.IsEscalation(err)
}

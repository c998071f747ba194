// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/execute"
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

// DryRunner performs the exchanges of the operator with server-side dry runs, with the permissions of the user.
type DryRunner struct {
	Reader client.Reader
	Writer *execute.Writer
}

// Run adds the results of dry runs to a change that has been computed without the objects in the
// cluster. It returns why objects could not be tested, for example because the user lacks permissions.
func (r *DryRunner) Run(ctx context.Context, result *Comparison, item *NamespaceChange) []string {
	var untested []string
	for i := range item.Objects {
		object := &item.Objects[i]
		if object.operation == nil || object.isCopy() && object.Change != Created {
			continue
		}
		object.beforeTry = object.Change
		run := &dryRun{ObjectChange: object, DryRunner: r}
		if err := run.execute(ctx); err != nil {
			untested = append(untested, fmt.Sprintf("dry run of %s in namespace %s: %v", object.Kind, item.Namespace, err))
			object.beforeTry = ""
		}
	}
	isTried := func(object ObjectChange) bool { return object.beforeTry != "" }
	if item.IsTried = len(untested) == 0 && slices.ContainsFunc(item.Objects, isTried); item.IsTried {
		result.Tried++
	}
	if slices.ContainsFunc(item.Objects, has(Failed)) {
		item.setFailed(Failed)
	}
	return untested
}

// triedObject identifies an object of a template, and what happens to it without a failure.
type triedObject struct {
	name      string
	beforeTry Change
}

// Infer applies the results of dry runs to the Namespaces that were not tried: an object that fails in all Namespaces
// that were tried is likely to fail in the others.
func (c *Comparison) Infer() {
	failures, successes := c.tried()
	for i := range c.Items {
		item := &c.Items[i]
		for j := range item.Objects {
			object := &item.Objects[j]
			key := triedObject{object.Object, object.Change}
			if object.beforeTry != "" || failures[key] == 0 || successes[key] > 0 {
				continue
			}
			object.Change = LikelyFailed
			object.Message = fmt.Sprintf("not tried; the object fails in %s that were tried",
				printable.Count(failures[key], "namespace"))
		}
		if item.Change != Failed && slices.ContainsFunc(item.Objects, has(LikelyFailed)) {
			item.setFailed(LikelyFailed)
		}
	}
	c.finish()
}

// MayFail reports whether an object failed in some Namespaces that were tried, but not in all, so that the rest can
// fail, too.
func (c *Comparison) MayFail() bool {
	failures, successes := c.tried()
	maps.DeleteFunc(failures, func(key triedObject, _ int) bool { return successes[key] == 0 })
	return len(failures) > 0
}

// tried returns how many dry runs of objects have failed and succeeded.
func (c *Comparison) tried() (failures, successes map[triedObject]int) {
	failures, successes = map[triedObject]int{}, map[triedObject]int{}
	for _, item := range c.Items {
		for _, object := range item.Objects {
			switch key := (triedObject{object.Object, object.beforeTry}); {
			case object.beforeTry == "":
			case object.Change == Failed:
				failures[key]++
			default:
				successes[key]++
			}
		}
	}
	return failures, successes
}

// isCopy reports whether the object is a copy whose source is not read.
func (o *ObjectChange) isCopy() bool { return o.operation.Object.Content == "" }

// dryRun is the dry run of one object.
type dryRun struct {
	*ObjectChange
	*DryRunner
	// before is the object in the cluster, and now the object after the last request; empty if there is none.
	before, now plan.Response
	// isReplaced is true if the object is deleted and created again.
	isReplaced bool
	// untested is an error that the operator would not get.
	untested error
}

// execute performs the exchange of the operator, and sets the fields of the object, or its failure. It returns an error
// if the object was not tested.
func (r *dryRun) execute(ctx context.Context) error {
	operation := *r.operation
	if _, err := r.Writer.ResourceOf(operation.Object.Manifest.GroupVersionKind()); err != nil {
		return r.fail(err)
	}
	if r.before = r.get(ctx); apierrors.IsNotFound(r.before.Err) {
		r.before = plan.Response{}
	}
	if r.now = r.before; r.now.Err != nil {
		return r.now.Err
	}
	for !operation.IsDone() && (!r.isCopy() || operation.Request.Verb != plan.Apply) {
		operation = plan.Next(operation, r.send(ctx, operation))
	}
	return r.conclude(operation.Result.Err)
}

// conclude sets what the exchange has shown.
func (r *dryRun) conclude(err error) error {
	isNew := r.Change == Created
	switch {
	case r.untested != nil:
		return r.untested
	case errors.Is(err, plan.ErrUnconfirmed): // Another client changes the object at the same time.
		return err
	case isNew && nsobject.IsConflict(err):
		return r.fail(template.Problemf(v1alpha1.ReasonConflict, "%s %q exists with other values, and "+
			"spec.sync.adoptionPolicy does not permit to change it: %w", r.Kind, r.Name, err))
	case err != nil:
		return r.fail(err)
	case r.isReplaced:
		r.Change, r.Fields = Replaced, nil
		r.Message = "the operator deletes the object and creates it again, because a field is immutable"
	case r.before.Object == nil:
	case r.isCopy() && r.operation.Template.Spec.Sync.AdoptionPolicy == v1alpha1.AdoptAlways:
		r.Change = Adopted
		r.Message = "the object exists, and the operator adopts it and changes it to the content of the source"
	case r.isCopy():
		r.Change = Adopted
		r.Message = "the object exists, and the operator adopts it unless a value differs from the source; the source is " +
			"not compared"
	case isNew:
		r.Change, r.Message = Adopted, "the object exists, and the operator adopts it without changing it"
		r.Fields = compareFields(r.Kind, plan.WithoutOwnKeys(r.before.Object), plan.WithoutOwnKeys(r.now.Object))
		if len(r.Fields) > 0 {
			r.Message = "the object exists, and the operator adopts and changes it"
		}
	default:
		r.Fields = compareFields(r.Kind, plan.WithoutServerFields(r.before.Object), plan.WithoutServerFields(r.now.Object))
	}
	return nil
}

// get reads the object in the cluster.
func (r *dryRun) get(ctx context.Context) plan.Response {
	found := plan.Response{Object: &unstructured.Unstructured{}, Metadata: &metav1.PartialObjectMetadata{}}
	found.Object.SetGroupVersionKind(r.operation.Object.Manifest.GroupVersionKind())
	found.Err = r.Reader.Get(ctx, client.ObjectKey{Namespace: r.operation.Namespace.Name, Name: r.Name}, found.Object)
	if found.Err == nil {
		found.Err = runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object.Object, found.Metadata)
	}
	return found
}

// send answers a request with a dry run, or with what the operator would get after requests that change an object.
func (r *dryRun) send(ctx context.Context, o plan.Operation) plan.Response {
	switch o.Request.Verb {
	case plan.Confirm:
		return plan.Response{Namespace: o.Namespace, Template: o.Template}
	case plan.Delete:
		r.isReplaced = true
		return plan.Response{IsGone: true}
	case plan.Apply:
		return r.apply(ctx, o)
	case plan.Read: // Another client can have created, changed or deleted the object meanwhile.
		r.now = r.get(ctx)
		r.before = r.now
	}
	return r.now
}

func (r *dryRun) apply(ctx context.Context, o plan.Operation) plan.Response {
	request := o.Request
	if r.isReplaced || request.FieldManager != template.FieldManager(o.Template.Name) {
		return plan.Response{Object: request.Manifest, Metadata: &metav1.PartialObjectMetadata{}, IsCreated: r.isReplaced}
	}
	request.IsDryRun = true
	response := r.Writer.Patch(ctx, o.Template.Spec.ServiceAccountName, o.Namespace.Name, request)
	switch {
	case apierrors.IsForbidden(response.Err) && dependsOnUser(response.Err):
		r.untested = response.Err
	case response.Err == nil && request.Name == r.Name:
		r.now = response
	}
	return response
}

// fail sets the failure if the operator has it, too. Otherwise, it returns the error.
func (r *dryRun) fail(err error) error {
	var problem *template.ReasonError
	switch {
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

// dependsOnUser reports whether a request can be forbidden only because the user sends it, and not the ServiceAccount
// of the template: without a permission, as an escalation of privileges, or by a policy such as
// PolicyTemplateObjects. A policy that depends only on the object more likely returns Invalid, the default.
func dependsOnUser(err error) bool {
	return denial.IsMissingPermission(err) || len(denial.DenyingPolicies(err.Error())) > 0 ||
		denial.IsEscalation(err)
}

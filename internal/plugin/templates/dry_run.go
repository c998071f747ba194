// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

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
		isCopy := object.rendered != nil && object.rendered.IsCopy
		if object.rendered == nil || object.Change == Failed || isCopy && object.Change != Created {
			continue
		}
		count++
		before := object.Change
		object.beforeTry = before
		if err := r.dryRun(ctx, of, item.namespace, object); err != nil {
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
	template  *Template
	namespace *corev1.Namespace
	client    dynamic.ResourceInterface
	// option makes requests dry runs.
	option []string
	// live is the object in the cluster, or nil.
	live *unstructured.Unstructured
}

// dryRun sets the fields of one object, or its failure. It returns an error if the object was not tested.
func (r *DryRunner) dryRun(ctx context.Context, of *Template, namespace *corev1.Namespace, object *ObjectChange) error {
	run := &dryRun{ObjectChange: object, template: of, namespace: namespace}
	manifest := object.rendered.Manifest
	resource, err := template.ResourceOf(r.Mapper, manifest.GroupVersionKind())
	if err != nil {
		return run.fail(err)
	}
	if run.option, err = r.DryRuns.Option(ctx, resource.GroupVersion()); err != nil {
		return err
	}
	run.client = r.Client.Resource(resource).Namespace(namespace.Name)
	run.live, err = run.client.Get(ctx, manifest.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		run.live = nil
	case err != nil:
		return err
	}
	if object.rendered.IsCopy {
		return run.fail(run.compareCopy())
	}
	return run.fail(run.run(ctx))
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

func (r *dryRun) run(ctx context.Context) error {
	manifest, adopt, decided := r.rendered.Manifest, r.template.Spec.Sync.AdoptionPolicy, plan.ActionUpdate
	if r.Change == Created {
		decided = plan.ActionCreate
	}
	if r.live != nil {
		found := &plan.Observed{UID: r.live.GetUID(), IsCrowded: plan.IsCrowded(r.live.GetManagedFields())}
		if _, err := (plan.Ownership{}).CheckExisting(ptr.To(plan.NewObject(*r.rendered)), found, decided, adopt); err != nil {
			return err
		}
	}
	applied, err := r.apply(ctx, manifest, plan.IsForced(decided, adopt))
	switch {
	case apierrors.IsInvalid(err) && r.live != nil:
		if err := r.checkReplacement(ctx, err); err != nil {
			return err
		}
		r.Change, r.Fields = Replaced, nil
		r.Message = "the operator deletes the object and creates it again, because a field is immutable"
		return nil
	case nsobject.IsConflict(err) && decided == plan.ActionCreate && adopt != v1alpha1.AdoptNever:
		equal, forcedErr := r.apply(ctx, manifest, true)
		if forcedErr != nil || !plan.IsEqual(r.live.DeepCopy(), equal.DeepCopy()) {
			return notAdopted(manifest, err)
		}
		applied = equal
	case err != nil:
		return err
	}
	switch {
	case r.live == nil:
	case decided == plan.ActionCreate:
		r.adopt(compareFields(r.Kind, plan.WithoutOwnKeys(r.live), plan.WithoutOwnKeys(applied)))
	default:
		r.Fields = compareFields(r.Kind, plan.WithoutServerFields(r.live), plan.WithoutServerFields(applied))
	}
	return nil
}

func (r *dryRun) adopt(fields []FieldChange) {
	r.Change, r.Fields, r.Message = Adopted, fields, "the object exists, and the operator adopts it without changing it"
	if len(fields) > 0 {
		r.Message = "the object exists, and the operator adopts and changes it"
	}
}

// compareCopy sets whether the operator adopts an object that exists instead of a copy, whose source is not read.
func (r *dryRun) compareCopy() error {
	if r.live == nil {
		return nil
	}
	switch adopt := r.template.Spec.Sync.AdoptionPolicy; adopt {
	case v1alpha1.AdoptNever:
		found := &plan.Observed{UID: r.live.GetUID()}
		_, err := (plan.Ownership{}).CheckExisting(ptr.To(plan.NewObject(*r.rendered)), found, plan.ActionCreate, adopt)
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

func (r *dryRun) apply(
	ctx context.Context, manifest *unstructured.Unstructured, isForced bool,
) (*unstructured.Unstructured, error) {
	name := r.template.Name
	return r.client.Apply(ctx, manifest.GetName(),
		template.WithOwnMetadata(name, r.namespace, manifest, r.rendered.Locked),
		metav1.ApplyOptions{DryRun: r.option, FieldManager: template.FieldManager(name), Force: isForced})
}

// checkReplacement returns an error unless the operator replaces the object, whose change the API server has rejected.
func (r *dryRun) checkReplacement(ctx context.Context, rejected error) error {
	manifest := r.rendered.Manifest
	other := manifest.DeepCopy()
	other.SetName(plan.OtherName(r.namespace.UID, manifest.GetName()))
	switch _, err := r.apply(ctx, other, true); {
	case apierrors.IsInvalid(err):
		return rejected
	case apierrors.IsForbidden(err) && !dependsOnUser(err):
		return plan.Immutable(ptr.To(plan.NewObject(*r.rendered)), err.Error(), rejected)
	case err != nil:
		return err
	case r.recorded != nil && r.recorded.UID != r.live.GetUID():
		return plan.Immutable(ptr.To(plan.NewObject(*r.rendered)), "another client has created it", rejected)
	}
	return plan.Ownership{Recorded: r.recorded}.CheckReplacement(ptr.To(plan.NewObject(*r.rendered)), rejected)
}

// dependsOnUser reports whether a request can be forbidden only because the user sends it, and not the ServiceAccount
// of the template: without a permission, as an escalation of privileges, or by a policy such as
// PolicyTemplateObjects. A policy that depends only on the object more likely returns Invalid, the default.
func dependsOnUser(err error) bool {
	return denial.IsMissingPermission(err) || len(denial.DenyingPolicies(err.Error())) > 0 ||
		denial.IsEscalation(err)
}

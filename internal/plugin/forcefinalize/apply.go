// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxParallelDryRuns is the number of writes that are tested in parallel.
const maxParallelDryRuns = 8

// Apply applies a plan after it has verified that the state is still as planned. It returns
// the number of objects whose finalizer was removed.
func (f *Finalizer) Apply(ctx context.Context, plan *Plan) (removed int, err error) {
	current, err := f.discoverState(ctx)
	if err != nil {
		return 0, fmt.Errorf("failed to verify the state of the namespace: %w", err)
	}
	if changes := computeChanges(plan, current); len(changes) > 0 {
		return 0, errChanged(plan.Namespace, changes)
	}
	switch {
	case plan.Removal.NamespaceFinalizer != "":
		err = f.finalizeNamespace(ctx, plan, current.namespace, nil)
	case plan.Removal.MetadataFinalizer != "":
		err = f.patchNamespace(ctx, plan, current.namespace, nil)
	default:
		return f.patchTargets(ctx, plan)
	}
	return 0, f.explainWriteError(ctx, plan, err)
}

// dryRun sends the writes of a plan as dry runs, so that missing permissions and failing admission
// or validation are known before the user confirms. If a webhook does not support dry runs, it
// returns that error separately.
func (f *Finalizer) dryRun(ctx context.Context, plan *Plan, namespace *corev1.Namespace) (unsupported, refusal error) {
	dryRun := []string{metav1.DryRunAll}
	var err error
	switch {
	case plan.Removal.NamespaceFinalizer != "":
		err = f.finalizeNamespace(ctx, plan, namespace, dryRun)
	case plan.Removal.MetadataFinalizer != "":
		err = f.patchNamespace(ctx, plan, namespace, dryRun)
	default:
		err = f.dryRunTargets(ctx, plan, dryRun)
	}
	if err != nil && strings.Contains(err.Error(), "does not support dry run") {
		return err, nil
	}
	return nil, err
}

func (f *Finalizer) dryRunTargets(ctx context.Context, plan *Plan, dryRun []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxParallelDryRuns)
	for i := range plan.Targets {
		group.Go(func() error {
			err := f.patchObject(ctx, &plan.Targets[i], plan.Removal.Finalizer, dryRun)
			if apierrors.IsNotFound(err) {
				return nil // Apply reports that the object was deleted.
			}
			return err
		})
	}
	return group.Wait()
}

// finalizeNamespace removes a namespace finalizer. The request contains the planned UID and
// resourceVersion, so the API server rejects it if the Namespace has changed.
func (f *Finalizer) finalizeNamespace(
	ctx context.Context, plan *Plan, namespace *corev1.Namespace, dryRun []string,
) error {
	released := namespace.DeepCopy()
	released.UID, released.ResourceVersion = plan.UID, plan.ResourceVersion
	released.Spec.Finalizers = slices.DeleteFunc(released.Spec.Finalizers, func(one corev1.FinalizerName) bool {
		return string(one) == plan.Removal.NamespaceFinalizer
	})
	_, err := f.Namespaces.Finalize(ctx, released, metav1.UpdateOptions{DryRun: dryRun, FieldManager: f.FieldManager})
	if err != nil {
		return fmt.Errorf("failed to remove %s: %w", plan.Removal, err)
	}
	return nil
}

// patchNamespace removes an entry of metadata.finalizers of the Namespace.
func (f *Finalizer) patchNamespace(
	ctx context.Context, plan *Plan, namespace *corev1.Namespace, dryRun []string,
) error {
	patch, err := removalPatch(plan.UID, plan.ResourceVersion, namespace.Finalizers, plan.Removal.MetadataFinalizer)
	if err != nil {
		return err
	}
	_, err = f.Namespaces.Patch(ctx, f.Namespace, types.JSONPatchType, patch,
		metav1.PatchOptions{DryRun: dryRun, FieldManager: f.FieldManager})
	if err != nil {
		return fmt.Errorf("failed to remove %s: %w", plan.Removal, err)
	}
	return nil
}

// patchTargets removes the finalizer from one object at a time. It stops at the first failure,
// because the state is no longer as planned.
func (f *Finalizer) patchTargets(ctx context.Context, plan *Plan) (removed int, err error) {
	for i := range plan.Targets {
		err := f.patchObject(ctx, &plan.Targets[i], plan.Removal.Finalizer, nil)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			rest := *plan // The objects before this one were changed by this command.
			rest.Targets = plan.Targets[i:]
			return removed, f.explainWriteError(ctx, &rest, err)
		}
		removed++
	}
	return removed, nil
}

// patchObject removes a finalizer from an object.
func (f *Finalizer) patchObject(ctx context.Context, object *RemainingObject, finalizer string, dryRun []string) error {
	patch, err := removalPatch(object.UID, object.ResourceVersion, object.Finalizers, finalizer)
	if err != nil {
		return err
	}
	_, err = f.Metadata.Resource(object.resourceType.GroupVersionResource).Namespace(f.Namespace).
		Patch(ctx, object.Name, types.JSONPatchType, patch, metav1.PatchOptions{DryRun: dryRun, FieldManager: f.FieldManager})
	if err != nil {
		return fmt.Errorf("failed to remove finalizer %s from %s: %w", finalizer, object, err)
	}
	return nil
}

// explainWriteError converts the error of a write that was not a dry run.
func (f *Finalizer) explainWriteError(ctx context.Context, plan *Plan, err error) error {
	if err != nil && isUnanswered(err) {
		return UnansweredError{err}
	}
	return f.explainRefusal(ctx, plan, err)
}

// explainRefusal adds the reason to the error of a rejected write. The API server returns the
// same error for a failed test of a patch and for an invalid object, so it compares the current
// state with the plan.
func (f *Finalizer) explainRefusal(ctx context.Context, plan *Plan, err error) error {
	if err == nil {
		return nil
	}
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		current, stateErr := f.discoverState(ctx)
		if stateErr != nil {
			return errors.Join(err, stateErr)
		}
		if changes := computeChanges(plan, current); len(changes) > 0 {
			return errChanged(plan.Namespace, changes)
		}
	}
	return withAdvice(err)
}

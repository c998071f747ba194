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

	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

// maxParallelDryRuns is the maximum number of dry runs that are sent in parallel.
const maxParallelDryRuns = 8

// Apply applies a plan if the current state still matches it. It returns the number of objects from
// which it removed the finalizer.
func (f *Finalizer) Apply(ctx context.Context, plan *Plan) (removed int, err error) {
	current, err := f.discoverState(ctx)
	if err != nil {
		return 0, fmt.Errorf("failed to verify the state of the namespace: %w", err)
	}
	if changes := computeChanges(plan, current); len(changes) > 0 {
		return 0, errChanged(plan.Namespace, changes)
	}
	if plan.Removal.Finalizer != "" {
		return f.patchTargets(ctx, plan)
	}
	return 0, f.explainWriteError(ctx, plan, f.writeNamespace(ctx, plan, current.namespace, nil))
}

// dryRun sends the writes of a plan as dry runs, to detect missing permissions and failing
// admission or validation before the user confirms. If a webhook does not support dry runs, dryRun
// returns the error as unsupported instead of refusal.
func (f *Finalizer) dryRun(ctx context.Context, plan *Plan, namespace *corev1.Namespace) (unsupported, refusal error) {
	dryRun := []string{metav1.DryRunAll}
	var err error
	if plan.Removal.Finalizer != "" {
		err = f.dryRunTargets(ctx, plan, dryRun)
	} else {
		err = f.writeNamespace(ctx, plan, namespace, dryRun)
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
			if nswrite.IsNotFound(err) {
				return nil // Apply reports this.
			}
			return err
		})
	}
	return group.Wait()
}

// writeNamespace removes a finalizer from the Namespace. The request contains the planned UID and
// resourceVersion, so the API server rejects it if the Namespace has changed.
func (f *Finalizer) writeNamespace(
	ctx context.Context, plan *Plan, namespace *corev1.Namespace, dryRun []string,
) error {
	var err error
	if plan.Removal.NamespaceFinalizer != "" {
		released := namespace.DeepCopy()
		released.UID, released.ResourceVersion = plan.UID, plan.ResourceVersion
		released.Spec.Finalizers = slices.DeleteFunc(released.Spec.Finalizers, func(one corev1.FinalizerName) bool {
			return string(one) == plan.Removal.NamespaceFinalizer
		})
		_, err = f.Namespaces.Finalize(ctx, released, metav1.UpdateOptions{DryRun: dryRun, FieldManager: fieldManager})
	} else {
		var patch []byte
		patch, err = removalPatch(plan.UID, plan.ResourceVersion, namespace.Finalizers, plan.Removal.MetadataFinalizer)
		if err != nil {
			return err
		}
		_, err = f.Namespaces.Patch(ctx, f.Namespace, types.JSONPatchType, patch,
			metav1.PatchOptions{DryRun: dryRun, FieldManager: fieldManager})
	}
	if err != nil {
		return fmt.Errorf("failed to remove the %s: %w", plan.Removal, err)
	}
	return nil
}

// patchTargets removes the finalizer from the objects one by one. It stops at the first failure,
// because the current state might no longer match the plan.
func (f *Finalizer) patchTargets(ctx context.Context, plan *Plan) (removed int, err error) {
	for i := range plan.Targets {
		err := f.patchObject(ctx, &plan.Targets[i], plan.Removal.Finalizer, nil)
		if nswrite.IsNotFound(err) {
			continue
		}
		if err != nil {
			rest := *plan // The command has already changed the preceding objects.
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
		Patch(ctx, object.Name, types.JSONPatchType, patch, metav1.PatchOptions{DryRun: dryRun, FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("failed to remove the finalizer %s from %s: %w", finalizer, object, err)
	}
	return nil
}

// explainWriteError adds an explanation to the error of a write that is not a dry run. If the
// outcome of the write is unknown, it returns an UnansweredError.
func (f *Finalizer) explainWriteError(ctx context.Context, plan *Plan, err error) error {
	if err != nil && isUnanswered(err) {
		return UnansweredError{err}
	}
	return f.explainRefusal(ctx, plan, err)
}

// explainRefusal adds the reason to the error of a rejected write. The API server returns the same
// error for a failed test operation of a JSON patch and for an invalid object. To distinguish them,
// explainRefusal compares the current state with the plan.
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

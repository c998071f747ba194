// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/nsobject"
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
// admission or validation before the user confirms. It returns why writes could not be tested, because a webhook or
// the server of a type does not support dry runs, as unsupported instead of refusal.
func (f *Finalizer) dryRun(ctx context.Context, plan *Plan, namespace *corev1.Namespace) (unsupported, refusal error) {
	if plan.Removal.Finalizer != "" {
		unsupported, refusal = f.dryRunTargets(ctx, plan)
	} else {
		refusal = f.writeNamespace(ctx, plan, namespace, []string{metav1.DryRunAll})
	}
	if refusal != nil && strings.Contains(refusal.Error(), "does not support dry run") {
		return refusal, nil
	}
	return unsupported, refusal
}

// dryRunTargets sends the dry runs for the objects of all types that can be tested.
func (f *Finalizer) dryRunTargets(ctx context.Context, plan *Plan) (unsupported, refusal error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxParallelDryRuns)
	var untested []string
	options := map[schema.GroupVersion][]string{}
	for i := range plan.Targets {
		target := &plan.Targets[i]
		groupVersion := target.resourceType.GroupVersion()
		option, ok := options[groupVersion]
		if !ok {
			var err error
			if option, err = f.DryRuns.Option(ctx, groupVersion); err != nil {
				untested = append(untested, err.Error())
			}
			options[groupVersion] = option
		}
		if option == nil {
			continue
		}
		group.Go(func() error {
			err := f.patchObject(ctx, target, plan.Removal.Finalizer, option)
			if nsobject.IsNotFound(err) {
				return nil // Apply reports this.
			}
			return err
		})
	}
	if len(untested) > 0 {
		unsupported = errors.New(strings.Join(untested, "; "))
	}
	return unsupported, group.Wait()
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
		if nsobject.IsNotFound(err) {
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

// computeChanges returns the differences between a plan and the current state. It compares only the
// objects that the removal affects: the Namespace, the targets and the orphans.
func computeChanges(plan *Plan, current *clusterState) []string {
	if current.namespace.UID != plan.UID {
		return []string{"the Namespace was recreated at " + current.namespace.CreationTimestamp.UTC().Format(time.RFC3339)}
	}
	var changes []string
	// The conditions of the Namespace change during its deletion. These changes do not affect the
	// removal of a finalizer from other objects.
	if plan.Removal.Finalizer == "" && current.namespace.ResourceVersion != plan.ResourceVersion {
		changes = append(changes, "the Namespace was modified")
	}
	present := map[string]*RemainingObject{}
	for i := range current.objects {
		present[current.objects[i].identity()] = &current.objects[i]
	}
	planned := slices.Concat(plan.Targets, plan.Orphans)
	isPlanned := map[string]bool{}
	for i := range planned {
		isPlanned[planned[i].identity()] = true
		switch object := present[planned[i].identity()]; {
		case object == nil:
			changes = append(changes, planned[i].String()+" was deleted")
		case object.ResourceVersion != planned[i].ResourceVersion && !isEvent(object):
			changes = append(changes, object.String()+" was modified")
		}
	}
	if !plan.endsContentDeletion() {
		return changes
	}
	// Without the user's consent, the removal must not orphan new objects or objects that are no
	// longer readable.
	for i := range current.objects {
		if !isPlanned[current.objects[i].identity()] {
			changes = append(changes, current.objects[i].String()+" was created")
		}
	}
	for _, unread := range current.unread {
		if !slices.Contains(plan.Unread, unread) {
			changes = append(changes, "some objects are no longer readable: "+unread)
		}
	}
	return changes
}

// isEvent reports whether an object is an Event. Events are updated frequently, and their changes
// do not affect a removal.
func isEvent(object *RemainingObject) bool {
	return object.Resource == "events" || object.Resource == "events.events.k8s.io"
}

// jsonPatchOperation is one operation of a JSON patch (RFC 6902).
type jsonPatchOperation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     string `json:"value,omitempty"`
}

// removalPatch returns a JSON patch that removes all occurrences of a finalizer. The patch fails if
// the object has another UID or resourceVersion.
func removalPatch(uid types.UID, resourceVersion string, finalizers []string, finalizer string) ([]byte, error) {
	operations := []jsonPatchOperation{
		{"test", "/metadata/uid", string(uid)},
		{"test", "/metadata/resourceVersion", resourceVersion},
	}
	// Iterate backward, because a removal changes the indices of the following entries.
	for i, one := range slices.Backward(finalizers) {
		if one == finalizer {
			path := "/metadata/finalizers/" + strconv.Itoa(i)
			operations = append(operations, jsonPatchOperation{"test", path, finalizer},
				jsonPatchOperation{"remove", path, ""})
		}
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("failed to encode the patch: %w", err)
	}
	return patch, nil
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// rehearsedAtOnce is how many writes are tried side by side as dry runs.
const rehearsedAtOnce = 8

// jsonPatchOperation is one step of a JSON patch (RFC 6902).
type jsonPatchOperation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     string `json:"value,omitempty"`
}

// patchWithout returns the patch that takes one finalizer off the very object that was
// shown, as it was shown, and fails otherwise. A list may have the same finalizer twice.
func patchWithout(uid types.UID, resourceVersion string, finalizers []string, finalizer string) ([]byte, error) {
	operations := []jsonPatchOperation{
		{"test", "/metadata/uid", string(uid)},
		{"test", "/metadata/resourceVersion", resourceVersion},
	}
	// From the end, so that the others keep their places.
	for i, one := range slices.Backward(finalizers) {
		if one == finalizer {
			path := "/metadata/finalizers/" + strconv.Itoa(i)
			operations = append(operations, jsonPatchOperation{"test", path, finalizer},
				jsonPatchOperation{"remove", path, ""})
		}
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	return patch, nil
}

// rehearse makes the writes of a plan as dry runs and returns why the API server would
// refuse them: rights, admission and validation are known before anybody is asked.
// A webhook that cannot be asked so is only warned of.
func (f *forcer) rehearse(ctx context.Context, planned *plan, namespace *corev1.Namespace) (warning, refusal error) {
	dryRun := []string{metav1.DryRunAll}
	var err error
	switch {
	case planned.Removal.Token != "":
		err = f.releaseToken(ctx, planned, namespace, dryRun)
	case planned.Removal.NamespaceFinalizer != "":
		err = f.patchNamespace(ctx, planned, namespace, dryRun)
	default:
		err = f.rehearseTargets(ctx, planned, dryRun)
	}
	if err != nil && strings.Contains(err.Error(), "does not support dry run") {
		return err, nil
	}
	return nil, err
}

func (f *forcer) rehearseTargets(ctx context.Context, planned *plan, dryRun []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(rehearsedAtOnce)
	for i := range planned.Targets {
		group.Go(func() error {
			err := f.patchObject(ctx, &planned.Targets[i], planned.Removal.Finalizer, dryRun)
			if apierrors.IsNotFound(err) {
				return nil // It has gone by itself, which is found out before anything is done.
			}
			return err
		})
	}
	return group.Wait()
}

// releaseToken removes one token of spec.finalizers. The body carries the UID and the
// resourceVersion that were shown, so that the API server refuses it for any other state.
func (f *forcer) releaseToken(
	ctx context.Context, planned *plan, namespace *corev1.Namespace, dryRun []string,
) error {
	released := namespace.DeepCopy()
	released.UID, released.ResourceVersion = planned.UID, planned.ResourceVersion
	released.Spec.Finalizers = slices.DeleteFunc(released.Spec.Finalizers, func(token corev1.FinalizerName) bool {
		return string(token) == planned.Removal.Token
	})
	_, err := f.namespaces.Finalize(ctx, released, metav1.UpdateOptions{DryRun: dryRun, FieldManager: userAgent})
	if err != nil {
		return fmt.Errorf("releasing %s: %w", planned.Removal, err)
	}
	return nil
}

// patchNamespace takes one finalizer off the Namespace.
func (f *forcer) patchNamespace(
	ctx context.Context, planned *plan, namespace *corev1.Namespace, dryRun []string,
) error {
	finalizer := planned.Removal.NamespaceFinalizer
	patch, err := patchWithout(planned.UID, planned.ResourceVersion, namespace.Finalizers, finalizer)
	if err != nil {
		return err
	}
	_, err = f.namespaces.Patch(ctx, f.name, types.JSONPatchType, patch,
		metav1.PatchOptions{DryRun: dryRun, FieldManager: userAgent})
	if err != nil {
		return fmt.Errorf("removing %s: %w", planned.Removal, err)
	}
	return nil
}

// patchObject takes a finalizer off one object.
func (f *forcer) patchObject(ctx context.Context, object *remnant, finalizer string, dryRun []string) error {
	patch, err := patchWithout(object.UID, object.ResourceVersion, object.Finalizers, finalizer)
	if err != nil {
		return err
	}
	_, err = f.metadata.Resource(object.served.GroupVersionResource).Namespace(f.name).
		Patch(ctx, object.Name, types.JSONPatchType, patch, metav1.PatchOptions{DryRun: dryRun, FieldManager: userAgent})
	if err != nil {
		return fmt.Errorf("removing finalizer %s from %s: %w", finalizer, object, err)
	}
	return nil
}

// act does what a plan says, after another look that everything still is as it was shown.
// It returns how many objects have lost their finalizer.
func (f *forcer) act(ctx context.Context, planned *plan) (done int, err error) {
	now, err := f.look(ctx)
	if err != nil {
		return 0, fmt.Errorf("looking once more before anything is removed: %w", err)
	}
	if changes := whatChanged(planned, now); len(changes) > 0 {
		return 0, changedError(planned.Namespace, changes)
	}
	switch {
	case planned.Removal.Token != "":
		err = f.releaseToken(ctx, planned, now.namespace, nil)
	case planned.Removal.NamespaceFinalizer != "":
		err = f.patchNamespace(ctx, planned, now.namespace, nil)
	default:
		return f.patchTargets(ctx, planned)
	}
	return 0, f.explainAnswer(ctx, planned, err)
}

// unansweredError is of a write that may have been made all the same: the answer was lost,
// or nobody has waited for it.
type unansweredError struct{ error }

func (e unansweredError) Unwrap() error { return e.error }

// isUnanswered tells whether it is not known what became of a write. The API server makes
// none of those that it refuses.
func isUnanswered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	const firstServerError = 500
	code := int(status.Status().Code)
	return (code == 0 || code >= firstServerError) && !strings.Contains(err.Error(), "failed calling webhook")
}

// explainAnswer makes a sentence of what the API server says to a write that was no dry run.
func (f *forcer) explainAnswer(ctx context.Context, planned *plan, err error) error {
	if err != nil && isUnanswered(err) {
		return unansweredError{err}
	}
	return f.explainWrite(ctx, planned, err)
}

// patchTargets takes the finalizer off one object after the other and stops at the first
// that refuses: what was shown does not hold any more then.
func (f *forcer) patchTargets(ctx context.Context, planned *plan) (done int, err error) {
	for i := range planned.Targets {
		err := f.patchObject(ctx, &planned.Targets[i], planned.Removal.Finalizer, nil)
		if apierrors.IsNotFound(err) {
			continue // It has gone by itself.
		}
		if err != nil {
			rest := *planned // What was written to before this was written to by us.
			rest.Targets = planned.Targets[i:]
			return done, f.explainAnswer(ctx, &rest, err)
		}
		done++
	}
	return done, nil
}

// explainWrite makes a sentence of a write that was refused. The API server answers alike
// to a patch whose tests fail and to an object that is not valid, so it looks again.
func (f *forcer) explainWrite(ctx context.Context, planned *plan, err error) error {
	if err == nil {
		return nil
	}
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		now, lookErr := f.look(ctx)
		if lookErr != nil {
			return errors.Join(err, lookErr)
		}
		if changes := whatChanged(planned, now); len(changes) > 0 {
			return changedError(planned.Namespace, changes)
		}
	}
	return withAdvice(err)
}

// namedChanges is how many changes are named in an error.
const namedChanges = 3

func changedError(namespace string, changes []string) error {
	if more := len(changes) - namedChanges; more > 0 {
		changes = append(slices.Clone(changes[:namedChanges]), fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("namespace %q has changed since it was shown: %s; somebody is at work, look again",
		namespace, strings.Join(changes, ", "))
}

// withAdvice adds to the API server's refusal what can be done about it.
func withAdvice(err error) error {
	text := err.Error()
	advice := ""
	switch {
	case strings.Contains(text, "failed calling webhook"):
		advice = "the webhook does not answer: bring its backend back or, if that is gone for good, " +
			"delete its configuration; then try again"
	case strings.Contains(text, "admission webhook") || strings.Contains(text, "ValidatingAdmissionPolicy"):
		advice = "this rule does not allow it: meet what it asks for, or make an exception in it; then try again"
	case apierrors.IsForbidden(err):
		advice = "you lack this right: ask an administrator of the cluster for it"
	case apierrors.IsInvalid(err):
		advice = "the object is not valid any more, so that nothing in it can be changed: correct what the message " +
			"names, or the schema of its type; then try again"
	}
	if advice == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, advice)
}

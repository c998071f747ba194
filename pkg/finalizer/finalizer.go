// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

const (
	loggerName = "finalizer"
	// reasonReleased is the default reason of the condition after the finalizer is removed.
	reasonReleased = "Released"
	// messageReleased is the default message of that condition.
	messageReleased = "The cleanup is complete and the namespace finalizer was removed"
)

// Func deletes the external resources of a Namespace that is being deleted. If it returns a nil
// error, the finalizer is removed. Func must be idempotent: it is called again after an error and
// after a restart. The Namespace is a copy that Func can modify.
type Func func(ctx context.Context, namespace *corev1.Namespace) (Result, error)

// Result is the outcome of a successful Func. It is published in the condition if the Namespace
// still has other finalizers.
type Result struct {
	// Reason is one word in CamelCase, such as IndexDeleted. The default is "Released".
	Reason string
	// Message is a sentence for users.
	Message string
}

// Add adds a controller to the manager. The controller calls fn for each Namespace that is being
// deleted and that has the finalizer name in spec.finalizers. With leader election, the controller
// runs only in the leader. Add returns an error if the name or an option is invalid, or if another
// controller in this process has the same name.
func Add(mgr manager.Manager, name corev1.FinalizerName, fn Func, opts ...Option) error {
	if fn == nil {
		return fmt.Errorf("finalizer.Add(%q): the function is nil", name)
	}
	o := newOptions(opts)
	err := errors.Join(workrunner.ValidateFinalizer(name), o.Validate())
	if o.addsFinalizer && o.selects == nil {
		err = errors.Join(err, errors.New("AddFinalizer(nil): the function that selects Namespaces is nil"))
	}
	if err != nil {
		return fmt.Errorf("finalizer.Add(%q): %w", name, err)
	}
	if err := workrunner.Add(mgr, func(c client.Client) workrunner.Setup {
		return workrunner.Setup{
			Handler: newHandler(c, name, fn, o), Options: o.Options,
			// Only terminating Namespaces need to be watched. The API server keeps the phase
			// consistent with the deletionTimestamp.
			Selection: workrunner.Selection{
				Field: fields.OneTermEqualSelector("status.phase", string(corev1.NamespaceTerminating)),
			},
			Check: func(ctx context.Context) { logMissingPermissions(ctx, c, name) },
		}
	}); err != nil {
		return err
	}
	if !o.addsFinalizer {
		return nil
	}
	return workrunner.Add(mgr, func(c client.Client) workrunner.Setup {
		return workrunner.Setup{Handler: newAddHandler(c, name, o.selects), Options: o.Options}
	})
}

// newHandler returns the handler that calls fn and removes the finalizer.
func newHandler(c client.Client, name corev1.FinalizerName, fn Func, o *options) workrunner.Handler {
	matches := func(namespace *corev1.Namespace) bool {
		return namespace.DeletionTimestamp != nil && hasFinalizer(namespace, name)
	}
	return workrunner.Handler{
		Name:          "finalizer " + string(name),
		ConditionType: corev1.NamespaceConditionType(name),
		DoneReason:    reasonReleased,
		Match:         matches,
		Ready: func(namespace *corev1.Namespace) bool {
			return !o.afterContent || !hasFinalizer(namespace, corev1.FinalizerKubernetes)
		},
		Call: func(ctx context.Context, namespace *corev1.Namespace) (workrunner.Result, error) {
			result, err := fn(ctx, namespace)
			if result == (Result{}) {
				result.Message = messageReleased
			}
			return workrunner.Result(result), err
		},
		Finish: func(ctx context.Context, namespace *corev1.Namespace) (bool, error) {
			remove := func(current *corev1.Namespace) ([]corev1.FinalizerName, bool) {
				return withoutFinalizer(current, name), matches(current)
			}
			return workrunner.UpdateFinalizers(ctx, c, namespace, remove)
		},
	}
}

// newAddHandler returns the handler that adds the finalizer to selected Namespaces.
func newAddHandler(
	c client.Client, name corev1.FinalizerName, selects func(*corev1.Namespace) bool,
) workrunner.Handler {
	matches := func(namespace *corev1.Namespace) bool {
		return namespace.DeletionTimestamp == nil && !hasFinalizer(namespace, name) && isSelected(namespace, name, selects)
	}
	return workrunner.Handler{
		Name:  "finalizer " + string(name) + " (add)",
		Match: matches,
		Call:  func(context.Context, *corev1.Namespace) (workrunner.Result, error) { return workrunner.Result{}, nil },
		Finish: func(ctx context.Context, namespace *corev1.Namespace) (bool, error) {
			if err := workrunner.AddFinalizer(ctx, c, namespace, name, matches); err != nil {
				return false, err
			}
			log.FromContext(ctx).V(1).Info("Reconciled the namespace finalizer", "uid", namespace.UID,
				"finalizers", namespace.Spec.Finalizers)
			return false, nil
		},
	}
}

// isSelected calls the user's function with a copy of the Namespace. It returns false if the
// function panics.
func isSelected(
	namespace *corev1.Namespace, name corev1.FinalizerName, selects func(*corev1.Namespace) bool,
) (selected bool) {
	defer func() {
		if value := recover(); value != nil {
			selected = false
			log.Log.WithName(loggerName).Error(fmt.Errorf("panic: %v", value),
				"The function passed to finalizer.AddFinalizer panicked; the finalizer is not added to the namespace",
				"finalizer", name, "namespace", namespace.Name, "stack", string(debug.Stack()))
		}
	}()
	return selects(namespace.DeepCopy())
}

// hasFinalizer reports whether spec.finalizers contains the finalizer.
func hasFinalizer(namespace *corev1.Namespace, name corev1.FinalizerName) bool {
	return slices.Contains(namespace.Spec.Finalizers, name)
}

// withoutFinalizer returns spec.finalizers without the finalizer. It also removes duplicates,
// because each of them would block the deletion.
func withoutFinalizer(namespace *corev1.Namespace, name corev1.FinalizerName) []corev1.FinalizerName {
	return slices.DeleteFunc(slices.Clone(namespace.Spec.Finalizers),
		func(other corev1.FinalizerName) bool { return other == name })
}

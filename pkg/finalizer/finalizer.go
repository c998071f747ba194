// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// Func puts in order what is left of one Namespace that is being deleted. Nil releases the
// Namespace. It is called again after an error and after a restart, so it has to bear being
// called again. The Namespace is a copy of its own.
type Func func(ctx context.Context, namespace *corev1.Namespace) (Result, error)

// Result of a Func that has done its work. Reason and Message are published in the condition
// of the token where the Namespace is still held by others.
type Result struct {
	// Reason is one word, such as IndexDeleted; "Released" if it is empty.
	Reason string
	// Message is a sentence for people.
	Message string
}

// Add serves a token: the function is called for each Namespace that is being deleted and has
// the token in spec.finalizers. The controller is one of the manager like others: it works
// where the manager is the leader, and begins when the manager starts.
func Add(mgr manager.Manager, token corev1.FinalizerName, fn Func, opts ...Option) error {
	if fn == nil {
		return fmt.Errorf("finalizer.Add(%q): there is no function to call", token)
	}
	o := newOptions(opts)
	err := errors.Join(workrunner.ValidateToken(token), o.Validate())
	if o.isPutOn && o.putOn == nil {
		err = errors.Join(err, errors.New("AddFinalizer(nil): give it a function that tells which Namespaces get the token"))
	}
	if err != nil {
		return fmt.Errorf("finalizer.Add(%q): %w", token, err)
	}
	if err := workrunner.Add(mgr, func(c client.Client) workrunner.Setup {
		return workrunner.Setup{
			Work: newWork(c, token, fn, o), Options: o.Options,
			// Most Namespaces are not being deleted, and nothing has to be known of those. The API
			// server keeps the phase and the deletionTimestamp together.
			Watched: workrunner.Selection{
				Field: fields.OneTermEqualSelector("status.phase", string(corev1.NamespaceTerminating)),
			},
			Check: func(ctx context.Context) { logCheck(ctx, c, token) },
		}
	}); err != nil {
		return err
	}
	if o.putOn == nil {
		return nil
	}
	return workrunner.Add(mgr, func(c client.Client) workrunner.Setup {
		return workrunner.Setup{Work: newPuttingOn(c, token, o.putOn), Options: o.Options}
	})
}

// newWork is what there is to do for Namespaces that are being deleted.
func newWork(c client.Client, token corev1.FinalizerName, fn Func, o *options) workrunner.Work {
	isOwed := func(namespace *corev1.Namespace) bool {
		return namespace.DeletionTimestamp != nil && has(namespace, token)
	}
	return workrunner.Work{
		Name:          "agent " + string(token),
		ConditionType: corev1.NamespaceConditionType(token),
		ReasonDone:    reasonReleased,
		Owed:          isOwed,
		Due: func(namespace *corev1.Namespace) bool {
			return !o.afterContent || !has(namespace, corev1.FinalizerKubernetes)
		},
		Call: func(ctx context.Context, namespace *corev1.Namespace) (workrunner.Result, error) {
			result, err := fn(ctx, namespace)
			if result == (Result{}) {
				result.Message = "nothing is left to do, and the token has been taken off"
			}
			return workrunner.Result(result), err
		},
		Finish: func(ctx context.Context, namespace *corev1.Namespace) (bool, error) {
			return workrunner.UpdateTokens(ctx, c, namespace, func(current *corev1.Namespace) ([]corev1.FinalizerName, bool) {
				return without(current, token), isOwed(current)
			})
		},
	}
}

// newPuttingOn is what there is to do for Namespaces that lack the token.
func newPuttingOn(c client.Client, token corev1.FinalizerName, selects func(*corev1.Namespace) bool) workrunner.Work {
	isOwed := func(namespace *corev1.Namespace) bool {
		return namespace.DeletionTimestamp == nil && !has(namespace, token) && isSelected(namespace, token, selects)
	}
	return workrunner.Work{
		Name: "agent " + string(token) + " puts its token on",
		Owed: isOwed,
		Call: func(context.Context, *corev1.Namespace) (workrunner.Result, error) { return workrunner.Result{}, nil },
		Finish: func(ctx context.Context, namespace *corev1.Namespace) (bool, error) {
			if err := workrunner.AddFinalizer(ctx, c, namespace, token, isOwed); err != nil {
				return false, err
			}
			log.FromContext(ctx).V(1).Info("Looked after the token of a namespace", "uid", namespace.UID,
				"tokens", namespace.Spec.Finalizers)
			return false, nil
		},
	}
}

// isSelected asks a function of the user, which must not end the program or change what it is
// asked about. A Namespace of which it cannot tell is not touched.
func isSelected(
	namespace *corev1.Namespace, token corev1.FinalizerName, selects func(*corev1.Namespace) bool,
) (selected bool) {
	defer func() {
		if value := recover(); value != nil {
			selected = false
			log.Log.WithName("agent").Error(fmt.Errorf("panic: %v", value),
				"The function that was given to finalizer.AddFinalizer has a bug, and the namespace does not get the token",
				"token", token, "namespace", namespace.Name, "stack", string(debug.Stack()))
		}
	}()
	return selects(namespace.DeepCopy())
}

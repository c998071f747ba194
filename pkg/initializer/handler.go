// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// engine implements one initializer. It decides whether it is the initializer's turn, and implements the two writes
// by an initializer: it removes the name from the pending list, or it sets a failure result. The client must not read
// from a cache.
type engine struct {
	client  client.Client
	name    string
	options options
}

func (e *engine) handler(fn Func) workrunner.Handler {
	return workrunner.Handler{
		ConditionType: corev1.NamespaceConditionType(e.name + v1alpha1.ConditionInitializedSuffix),
		DoneReason:    v1alpha1.ReasonInitialized,
		IsReserved:    initialization.IsOperatorReason,
		Match:         e.matches,
		Call: func(ctx context.Context, namespace *corev1.Namespace) (Result, error) {
			if err := e.addFinalizer(ctx, namespace); err != nil {
				return Result{}, err
			}
			return fn(ctx, namespace)
		},
		Finish: e.finish,
		Fail:   e.fail,
	}
}

// matches reports whether the Namespace can still be initialized and it is the initializer's turn. The guard policy
// ensures that the turn does not end before the name is removed.
func (e *engine) matches(namespace *corev1.Namespace) bool {
	state := initialization.ParseState(namespace)
	position := slices.Index(state.Pending, e.name)
	return namespace.DeletionTimestamp == nil && state.Failure == nil &&
		(position == 0 || position > 0 && e.options.isUnordered)
}

// addFinalizer adds the finalizer of WithFinalizer before the function is called.
func (e *engine) addFinalizer(ctx context.Context, namespace *corev1.Namespace) error {
	if e.options.finalizer == nil {
		return nil
	}
	err := workrunner.AddFinalizer(ctx, e.client, namespace, *e.options.finalizer, e.matches)
	if workrunner.LacksPermission(err) {
		return fmt.Errorf("%w; as an administrator run: %s", err, e.grantCommands(ctx))
	}
	if nsobject.IsNotFound(err) || err == nil && !e.matches(namespace) {
		// The watch event of the change follows.
		return NotYet(time.Second, "", "namespace %q has changed", namespace.Name)
	}
	return err
}

// finish removes the initializer's name from the pending list.
func (e *engine) finish(ctx context.Context, namespace *corev1.Namespace) (bool, error) {
	return e.write(ctx, namespace, func(pending []string) operation {
		remaining := slices.DeleteFunc(pending, func(name string) bool { return name == e.name })
		// If the list becomes empty, the "complete" policy removes the annotation and the label.
		return operation{"replace", pathOf(v1alpha1.AnnotationPendingInitializers), strings.Join(remaining, ",")}
	})
}

// fail sets a failure result. The operator then deletes the Namespace.
func (e *engine) fail(ctx context.Context, namespace *corev1.Namespace, failed *FailedError) (bool, error) {
	result, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: failed.Reason, Message: workrunner.TruncateMessage(failed.Message),
	})
	if err != nil {
		return false, fmt.Errorf("failed to encode the failure result of namespace %q: %w", namespace.Name, err)
	}
	return e.write(ctx, namespace, func([]string) operation {
		return operation{"add", pathOf(v1alpha1.AnnotationInitializationResult), string(result)}
	})
}

// operation is an operation in a JSON patch.
type operation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     string `json:"value"`
}

func pathOf(annotation string) string {
	return "/metadata/annotations/" + strings.ReplaceAll(annotation, "/", "~1")
}

// write changes a Namespace that still matches. The preconditions are the UID and the pending list that were read. It
// returns true if it has changed the Namespace, and false if the Namespace no longer matches.
func (e *engine) write(
	ctx context.Context, namespace *corev1.Namespace, change func(pending []string) operation,
) (isChanged bool, err error) {
	// rejected is the last pending list with which the patch was Invalid.
	var rejected string
	err = workrunner.RetryOnConflict(ctx, e.client, namespace, func() error {
		if !e.matches(namespace) {
			return nil
		}
		list := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
		err := e.patch(ctx, namespace, list, change(initialization.ParseState(namespace).Pending))
		// The API server returns Invalid if a precondition is not met. If the list is the same after it was read
		// again, the patch was rejected for another reason.
		if apierrors.IsInvalid(err) && list != rejected {
			rejected = list
			return apierrors.NewConflict(corev1.Resource("namespaces"), namespace.Name, err)
		}
		isChanged = err == nil
		return err
	})
	if workrunner.LacksPermission(err) {
		// Either RBAC or the guard policy can have denied the request, so the message covers both.
		err = fmt.Errorf("initializer %q is not allowed to update namespace %q: %w; it needs the verbs patch and %s on "+
			"namespaces, granted by a ClusterRoleBinding; as an administrator run: %s",
			e.name, namespace.Name, err, v1alpha1.VerbInitialize, e.grantCommands(ctx))
	}
	return isChanged, err
}

func (e *engine) patch(ctx context.Context, namespace *corev1.Namespace, list string, changed operation) error {
	body, err := json.Marshal([]operation{
		{"test", "/metadata/uid", string(namespace.UID)},
		{"test", pathOf(v1alpha1.AnnotationPendingInitializers), list},
		changed,
	})
	if err != nil {
		return fmt.Errorf("failed to encode a patch for namespace %q: %w", namespace.Name, err)
	}
	// The response must not overwrite the caller's object.
	response := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}}
	if err := e.client.Patch(ctx, response, client.RawPatch(types.JSONPatchType, body)); err != nil {
		return fmt.Errorf("failed to patch annotation %s of namespace %q: %w",
			strings.ReplaceAll(strings.TrimPrefix(changed.Path, "/metadata/annotations/"), "~1", "/"), namespace.Name, err)
	}
	return nil
}

func (e *engine) grantCommands(ctx context.Context) string {
	return workrunner.GrantCommands(ctx, e.client, roleName(e.name), e.options.permissions())
}

// roleName returns the name of the ClusterRole in the suggested commands.
func roleName(name string) string { return "initializer:" + name }

// permissions returns the permissions that an initializer requires.
func (o options) permissions() []string {
	permissions := []string{
		"get namespaces", "list namespaces", "watch namespaces", "patch namespaces", v1alpha1.VerbInitialize + " namespaces",
	}
	if o.finalizer != nil {
		permissions = append(permissions, "update namespaces/finalize")
	}
	return permissions
}

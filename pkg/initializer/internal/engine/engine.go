// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine implements package initializer, so that package initializertest can run the same
// code. It decides whether it is the initializer's turn, and implements the two writes by an
// initializer: it removes the name from the pending list, or it sets a failure result.
package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

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

// ReasonInitialized is the default reason of a Result with a message.
const ReasonInitialized = v1alpha1.ReasonInitialized

// Options are the options of package initializer.
type Options struct {
	workrunner.Options
	// IsUnordered disables waiting for the initializer's turn.
	IsUnordered bool
	// Finalizer is the namespace finalizer that a Namespace must have before the first call; nil if
	// there is none.
	Finalizer *corev1.FinalizerName
	// Fake is the client in tests with package initializertest; nil otherwise.
	Fake client.WithWatch
}

// NewOptions applies the options, and validates them and the name.
func NewOptions[Option ~func(*Options)](name string, opts []Option) (Options, error) {
	options := Options{Options: workrunner.DefaultOptions()}
	for _, opt := range opts {
		opt(&options)
	}
	err := errors.Join(v1alpha1.ValidateInitializerName(name), options.Validate())
	if options.Finalizer != nil {
		err = errors.Join(err, workrunner.ValidateFinalizer(*options.Finalizer))
	}
	return options, err
}

// engine implements one initializer.
type engine struct {
	client  client.Client
	name    string
	options Options
}

// NewHandler returns the handler for an initializer. The client must not read from a cache.
func NewHandler(c client.Client, name string, call workrunner.Call, options Options) workrunner.Handler {
	e := &engine{client: c, name: name, options: options}
	handler := workrunner.Handler{
		Name:          "initializer " + name,
		ConditionType: corev1.NamespaceConditionType(name + v1alpha1.ConditionInitializedSuffix),
		DoneReason:    ReasonInitialized,
		IsReserved:    initialization.IsOperatorReason,
		Match:         e.matches,
		Call:          call,
		Finish:        e.finish,
		Fail:          e.fail,
	}
	if !options.IsUnordered {
		handler.Ready = e.isFirst
	}
	if options.Finalizer != nil {
		handler.Prepare = e.addFinalizer
	}
	return handler
}

// matches reports whether the Namespace waits for the initializer and can still be initialized.
func (e *engine) matches(namespace *corev1.Namespace) bool {
	state := initialization.ParseState(namespace)
	return namespace.DeletionTimestamp == nil && state.Failure == nil && slices.Contains(state.Pending, e.name)
}

func (e *engine) isFirst(namespace *corev1.Namespace) bool {
	pending := initialization.ParseState(namespace).Pending
	return len(pending) > 0 && pending[0] == e.name
}

func (e *engine) addFinalizer(ctx context.Context, namespace *corev1.Namespace) error {
	err := workrunner.AddFinalizer(ctx, e.client, namespace, *e.options.Finalizer, e.matches)
	if workrunner.LacksPermission(err) {
		err = fmt.Errorf("%w; as an administrator run: %s", err, e.grantCommands(ctx))
	}
	return err
}

// finish removes the initializer's name from the pending list.
func (e *engine) finish(ctx context.Context, namespace *corev1.Namespace) (bool, error) {
	return e.write(ctx, namespace, func(namespace *corev1.Namespace) (operation, error) {
		pending := initialization.ParseState(namespace).Pending
		remaining := slices.DeleteFunc(pending, func(name string) bool { return name == e.name })
		// If the list becomes empty, the "complete" policy removes the annotation and the label.
		return operation{"replace", pathOf(v1alpha1.AnnotationPendingInitializers), strings.Join(remaining, ",")}, nil
	})
}

// fail sets a failure result. The operator then deletes the Namespace.
func (e *engine) fail(ctx context.Context, namespace *corev1.Namespace, failed *workrunner.FailedError) (bool, error) {
	return e.write(ctx, namespace, func(*corev1.Namespace) (operation, error) {
		result, err := json.Marshal(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Reason: failed.Reason, Message: workrunner.TruncateMessage(failed.Message),
		})
		return operation{"add", pathOf(v1alpha1.AnnotationInitializationResult), string(result)}, err
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

// write changes a Namespace that still matches. The preconditions are the UID and the pending list
// that were read. After a conflict, write reads the Namespace and tries again. It returns true if
// it has changed the Namespace, and false if the Namespace no longer matches.
func (e *engine) write(
	ctx context.Context, namespace *corev1.Namespace, change func(*corev1.Namespace) (operation, error),
) (bool, error) {
	for range workrunner.MaxConflicts {
		if !e.matches(namespace) {
			return false, nil
		}
		list := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
		err := e.patch(ctx, namespace, list, change)
		switch {
		case err == nil:
			return true, nil
		case workrunner.LacksPermission(err):
			return false, e.explainForbidden(ctx, namespace, err)
		case !apierrors.IsInvalid(err) && !nsobject.IsConflict(err):
			return false, err
		}
		if refreshErr := workrunner.Refresh(ctx, e.client, namespace); refreshErr != nil {
			return false, refreshErr
		}
		// The preconditions are met, so the API server rejected the patch for another reason.
		if apierrors.IsInvalid(err) && e.matches(namespace) &&
			namespace.Annotations[v1alpha1.AnnotationPendingInitializers] == list {
			return false, err
		}
	}
	return false, apierrors.NewConflict(corev1.Resource("namespaces"), namespace.Name,
		fmt.Errorf("%d consecutive update conflicts", workrunner.MaxConflicts))
}

func (e *engine) patch(
	ctx context.Context, namespace *corev1.Namespace, list string, change func(*corev1.Namespace) (operation, error),
) error {
	changed, err := change(namespace)
	if err != nil {
		return fmt.Errorf("failed to encode a change to namespace %q: %w", namespace.Name, err)
	}
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

// explainForbidden adds the required permissions to an error. Either RBAC or the guard policy can
// have denied the request, so the message covers both.
func (e *engine) explainForbidden(ctx context.Context, namespace *corev1.Namespace, err error) error {
	return fmt.Errorf("initializer %q is not allowed to update namespace %q: %w; "+
		"it needs the verbs patch and %s on namespaces, granted by a ClusterRoleBinding; as an administrator run: %s",
		e.name, namespace.Name, err, v1alpha1.VerbInitialize, e.grantCommands(ctx))
}

func (e *engine) grantCommands(ctx context.Context) string {
	return workrunner.GrantCommands(ctx, e.client, RoleName(e.name), RequiredPermissions(e.options))
}

// RoleName returns the name of the ClusterRole in the suggested commands.
func RoleName(name string) string { return "initializer:" + name }

// RequiredPermissions returns the permissions that an initializer requires.
func RequiredPermissions(options Options) []workrunner.Permission {
	var permissions []workrunner.Permission
	for _, verb := range []string{"get", "list", "watch", "patch", v1alpha1.VerbInitialize} {
		permissions = append(permissions, workrunner.Permission{Verb: verb})
	}
	if options.Finalizer != nil {
		permissions = append(permissions, workrunner.Permission{Verb: "update", Subresource: "finalize"})
	}
	return permissions
}

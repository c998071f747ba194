// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine is what package initializer does, apart from its face, so that package
// initializertest runs the same code: whose turn it is, and the two writes that an
// initializer makes. One takes its own entry off the list, the other one leaves a result.
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
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// ReasonInitialized is the reason of a Result that has a message alone.
const ReasonInitialized = "Initialized"

// Options are those of package initializer.
type Options struct {
	workrunner.Options
	// IsUnordered says that the initializer does not wait for its turn.
	IsUnordered bool
	// Finalizer is the token that a Namespace has before the first call; nil if none.
	Finalizer *corev1.FinalizerName
	// Fake is the client of a test with package initializertest; nil otherwise.
	Fake client.WithWatch
}

// NewOptions returns the options of the initializer of a name, or what is wrong with them or
// with the name.
func NewOptions[Option ~func(*Options)](name string, opts []Option) (Options, error) {
	options := Options{Options: workrunner.DefaultOptions()}
	for _, opt := range opts {
		opt(&options)
	}
	err := errors.Join(v1alpha1.ValidateInitializerName(name), options.Validate())
	if options.Finalizer != nil {
		err = errors.Join(err, workrunner.ValidateToken(*options.Finalizer))
	}
	return options, err
}

// engine serves one name.
type engine struct {
	client  client.Client
	name    string
	options Options
}

// NewWork returns the work of an initializer, which reads and writes with a client that has
// no cache.
func NewWork(c client.Client, name string, call workrunner.Call, options Options) workrunner.Work {
	e := &engine{client: c, name: name, options: options}
	work := workrunner.Work{
		Name:          "initializer " + name,
		ConditionType: corev1.NamespaceConditionType(name + v1alpha1.ConditionInitializedSuffix),
		ReasonDone:    ReasonInitialized,
		IsReserved:    isReserved,
		Owed:          e.isOwed,
		Call:          call,
		Finish:        e.finish,
		Fail:          e.fail,
	}
	if !options.IsUnordered {
		work.Due = e.hasTurn
	}
	if options.Finalizer != nil {
		work.Prepare = e.putFinalizerOn
	}
	return work
}

// isReserved tells the reasons that the operator gives: it replaces what it finds under them.
func isReserved(reason string) bool {
	switch reason {
	case v1alpha1.ReasonPending, v1alpha1.ReasonCompleted, v1alpha1.ReasonTimedOut, v1alpha1.ReasonDeregistered:
		return true
	}
	return false
}

// isOwed tells whether a Namespace waits for the initializer, and may still be initialized.
func (e *engine) isOwed(namespace *corev1.Namespace) bool {
	state := initialization.ParseState(namespace)
	return namespace.DeletionTimestamp == nil && state.Failure == nil && slices.Contains(state.Pending, e.name)
}

func (e *engine) hasTurn(namespace *corev1.Namespace) bool {
	pending := initialization.ParseState(namespace).Pending
	return len(pending) > 0 && pending[0] == e.name
}

func (e *engine) putFinalizerOn(ctx context.Context, namespace *corev1.Namespace) error {
	err := workrunner.AddFinalizer(ctx, e.client, namespace, *e.options.Finalizer, e.isOwed)
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w; as an administrator run: %s", err, e.grantCommands(ctx))
	}
	return err
}

// finish takes the initializer's own entry off the list.
func (e *engine) finish(ctx context.Context, namespace *corev1.Namespace) (bool, error) {
	return e.write(ctx, namespace, func(namespace *corev1.Namespace) (operation, error) {
		left := slices.DeleteFunc(initialization.ParseState(namespace).Pending, func(name string) bool { return name == e.name })
		// Empty is enough where it was the last one: the API server takes the rest away.
		return operation{"replace", pathOf(v1alpha1.AnnotationPendingInitializers), strings.Join(left, ",")}, nil
	})
}

// fail leaves a result, by which the operator deletes the Namespace. The entry stays.
func (e *engine) fail(ctx context.Context, namespace *corev1.Namespace, final *workrunner.Final) (bool, error) {
	return e.write(ctx, namespace, func(*corev1.Namespace) (operation, error) {
		result, err := json.Marshal(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Reason: final.Reason, Message: workrunner.Cut(final.Message),
		})
		return operation{"add", pathOf(v1alpha1.AnnotationInitializationResult), string(result)}, err
	})
}

// operation is one of a JSON patch.
type operation struct {
	Operation string `json:"op"`
	Path      string `json:"path"`
	Value     string `json:"value"`
}

func pathOf(annotation string) string {
	return "/metadata/annotations/" + strings.ReplaceAll(annotation, "/", "~1")
}

// write makes one change to a Namespace that still waits for the initializer, on condition
// that it is the one that was read and its list too. Where somebody else was first it reads
// again. It tells whether it has written: not where the Namespace has gone, terminates, has
// failed, or does not wait for the initializer any more.
func (e *engine) write(
	ctx context.Context, namespace *corev1.Namespace, change func(*corev1.Namespace) (operation, error),
) (bool, error) {
	for range workrunner.MaxRaces {
		if !e.isOwed(namespace) {
			return false, nil
		}
		list := namespace.Annotations[v1alpha1.AnnotationPendingInitializers]
		err := e.patch(ctx, namespace, list, change)
		switch {
		case err == nil:
			return true, nil
		case apierrors.IsForbidden(err):
			return false, e.explainForbidden(ctx, namespace, err)
		case !apierrors.IsInvalid(err) && !apierrors.IsConflict(err):
			return false, err
		}
		if rereadErr := workrunner.Reread(ctx, e.client, namespace); rereadErr != nil {
			return false, rereadErr
		}
		// Nobody was first, so it is not the race that the API server objects to.
		if apierrors.IsInvalid(err) && e.isOwed(namespace) &&
			namespace.Annotations[v1alpha1.AnnotationPendingInitializers] == list {
			return false, err
		}
	}
	return false, apierrors.NewConflict(corev1.Resource("namespaces"), namespace.Name,
		fmt.Errorf("others were first %d times", workrunner.MaxRaces))
}

func (e *engine) patch(
	ctx context.Context, namespace *corev1.Namespace, list string, change func(*corev1.Namespace) (operation, error),
) error {
	changed, err := change(namespace)
	if err != nil {
		return fmt.Errorf("encoding a change of namespace %q: %w", namespace.Name, err)
	}
	body, err := json.Marshal([]operation{
		{"test", "/metadata/uid", string(namespace.UID)},
		{"test", pathOf(v1alpha1.AnnotationPendingInitializers), list},
		changed,
	})
	if err != nil {
		return fmt.Errorf("encoding a patch of namespace %q: %w", namespace.Name, err)
	}
	// The answer goes to an object of its own: the caller's is what was read.
	answer := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}}
	if err := e.client.Patch(ctx, answer, client.RawPatch(types.JSONPatchType, body)); err != nil {
		return fmt.Errorf("changing annotation %s of namespace %q: %w",
			strings.ReplaceAll(strings.TrimPrefix(changed.Path, "/metadata/annotations/"), "~1", "/"), namespace.Name, err)
	}
	return nil
}

// explainForbidden says what takes the right that is missing: RBAC and the admission policy
// guard give the same status.
func (e *engine) explainForbidden(ctx context.Context, namespace *corev1.Namespace, err error) error {
	return fmt.Errorf("initializer %q may not write what came of its work for namespace %q: %w; "+
		"it needs the verbs patch and %s on namespaces, granted by a ClusterRoleBinding; as an administrator run: %s",
		e.name, namespace.Name, err, v1alpha1.VerbInitialize, e.grantCommands(ctx))
}

func (e *engine) grantCommands(ctx context.Context) string {
	return workrunner.GrantCommands(ctx, e.client, RoleName(e.name), Rights(e.options))
}

// RoleName is the name of the ClusterRole that messages tell to create.
func RoleName(name string) string { return "initializer:" + name }

// Rights are those that an initializer cannot do without.
func Rights(options Options) []workrunner.Right {
	var rights []workrunner.Right
	for _, verb := range []string{"get", "list", "watch", "patch", v1alpha1.VerbInitialize} {
		rights = append(rights, workrunner.Right{Verb: verb})
	}
	if options.Finalizer != nil {
		rights = append(rights, workrunner.Right{Verb: "update", Subresource: "finalize"})
	}
	return rights
}

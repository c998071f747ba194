// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// TestingT contains the methods of *testing.T that Runner uses.
type TestingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Runner reconciles Namespaces in unit tests.
type Runner struct {
	// Name identifies the handler in test failures.
	Name       string
	Client     client.WithWatch
	NewHandler func(c client.Client) workrunner.Handler
}

// NewClient returns a fake client that contains the objects, with the built-in types of Kubernetes.
func NewClient(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).Build()
}

// NewRunner returns a Runner without NewHandler. Without a client, it uses an empty one. The test fails
// if the function to run is nil, or if its options are invalid.
func NewRunner(t TestingT, name string, c client.WithWatch, isNil bool, err error) *Runner {
	t.Helper()
	if isNil {
		err = errors.Join(err, errors.New("the function is nil"))
	}
	if err != nil {
		t.Fatalf("Cannot run %s: %v", name, err)
	}
	if c == nil {
		c = NewClient()
	}
	return &Runner{Name: name, Client: c}
}

// Run is one reconciliation of a Namespace.
type Run struct {
	// Before and After are the Namespace before and after the reconciliation.
	Before, After *corev1.Namespace
	// Published are the published conditions, in order.
	Published []corev1.NamespaceCondition
	// IsCalled is true if the function was called. Result and CallErr are its return values.
	IsCalled bool
	Result   workrunner.Result
	CallErr  error
	// RetryErr is the error that makes the reconciler retry the Namespace with backoff: CallErr,
	// or an error that describes a panic or a rejected write.
	RetryErr error

	runner *Runner
}

// Run creates the Namespace in the fake client unless it exists, and reconciles it once.
func (r *Runner) Run(t TestingT, namespace *corev1.Namespace) *Run {
	t.Helper()
	if namespace == nil {
		t.Fatalf("Cannot run %s: the Namespace is nil", r.Name)
	}
	run, err := r.reconcile(namespace)
	if err != nil {
		t.Fatalf("Cannot run %s: %v", r.Name, err)
	}
	return run
}

// Client returns the fake client of the run.
func (r *Run) Client() client.WithWatch { return r.runner.Client }

// Again restores the Namespace to its state before the run, and reconciles it again.
func (r *Run) Again(t TestingT) *Run {
	t.Helper()
	if err := r.restore(); err != nil {
		t.Fatalf("Cannot run %s again: %v", r.runner.Name, err)
	}
	return r.runner.Run(t, r.Before)
}

func (r *Runner) reconcile(namespace *corev1.Namespace) (*Run, error) {
	// Only errors are logged, such as panics with a stack trace.
	logger := funcr.New(func(_, args string) { fmt.Fprintln(os.Stderr, args) }, funcr.Options{Verbosity: -1})
	ctx := log.IntoContext(context.Background(), logger)
	c := interceptor.NewClient(Wrap(r.Client), interceptor.Funcs{
		// The fake client sets another deletionTimestamp.
		Get: func(
			ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption,
		) error {
			err := c.Get(ctx, key, object, opts...)
			if _, ok := object.(*corev1.Namespace); ok && key.Name == namespace.Name && object.GetDeletionTimestamp() != nil {
				object.SetDeletionTimestamp(namespace.DeletionTimestamp)
			}
			return err
		},
	})
	if err := store(ctx, r.Client, namespace); err != nil {
		return nil, fmt.Errorf("failed to create namespace %q in the fake client: %w", namespace.Name, err)
	}
	run := &Run{Before: &corev1.Namespace{}, After: &corev1.Namespace{}, runner: r}
	key := client.ObjectKeyFromObject(namespace)
	if err := c.Get(ctx, key, run.Before); err != nil {
		return nil, fmt.Errorf("failed to get namespace %q: %w", namespace.Name, err)
	}
	recording := interceptor.NewClient(c, interceptor.Funcs{SubResourcePatch: run.record})
	handler := r.NewHandler(recording)
	call := handler.Call
	handler.Call = func(ctx context.Context, namespace *corev1.Namespace) (workrunner.Result, error) {
		run.IsCalled = true
		run.Result, run.CallErr = call(ctx, namespace)
		return run.Result, run.CallErr
	}
	reconciler := &workrunner.Reconciler{
		Handler: handler, Cache: c, Client: recording, Clock: clock.RealClock{},
		Backoff: workrunner.DefaultOptions().Backoff,
	}
	reconciler.Track(run.Before)
	_, err := reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: key})
	run.RetryErr = err
	if err != nil && run.CallErr != nil {
		run.RetryErr = run.CallErr
	}
	if err := c.Get(ctx, key, run.After); err != nil {
		return nil, fmt.Errorf("failed to get namespace %q after the run: %w", namespace.Name, err)
	}
	return run, nil
}

// store creates the Namespace in the fake client unless it exists.
func store(ctx context.Context, c client.WithWatch, namespace *corev1.Namespace) error {
	var existing corev1.Namespace
	if err := c.Get(ctx, client.ObjectKeyFromObject(namespace), &existing); !apierrors.IsNotFound(err) {
		return err
	}
	created := namespace.DeepCopy()
	created.ResourceVersion = ""
	if created.UID == "" {
		created.UID = types.UID("uid-of-" + namespace.Name)
	}
	if namespace.DeletionTimestamp != nil {
		created.Finalizers = append(created.Finalizers, placeholder)
	}
	if err := c.Create(ctx, created); err != nil {
		return err
	}
	created.Status = namespace.Status
	if err := c.Status().Update(ctx, created); err != nil || namespace.DeletionTimestamp == nil {
		return err
	}
	return c.Delete(ctx, created)
}

// restore undoes the write that records the outcome of the run.
func (r *Run) restore() error {
	var current corev1.Namespace
	c := r.runner.Client
	if err := c.Get(context.Background(), client.ObjectKeyFromObject(r.Before), &current); err != nil {
		return fmt.Errorf("failed to get namespace %q: %w", r.Before.Name, err)
	}
	current.Labels, current.Annotations = r.Before.Labels, r.Before.Annotations
	if current.DeletionTimestamp != nil {
		current.Spec.Finalizers = r.Before.Spec.Finalizers
	}
	if err := c.Update(context.Background(), &current); err != nil {
		return fmt.Errorf("failed to restore namespace %q: %w", r.Before.Name, err)
	}
	return nil
}

// record collects the conditions that are published.
func (r *Run) record(
	ctx context.Context, c client.Client, subresource string, object client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption,
) error {
	if err := c.SubResource(subresource).Patch(ctx, object, patch, opts...); err != nil {
		return err
	}
	var written corev1.Namespace
	if data, err := patch.Data(object); err == nil && json.Unmarshal(data, &written) == nil {
		r.Published = append(r.Published, written.Status.Conditions...)
	}
	return nil
}

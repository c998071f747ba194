// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initializertest runs an initializer in unit tests without an API server. [Run] processes
// a Namespace once, with the code in package initializer and a fake client:
//
//	c := initializertest.NewClient()
//	report := initializertest.Run(t, "limits.corp.example.com", limits(c),
//		initializertest.NewNamespace("shop", "limits.corp.example.com"), initializertest.On(c))
//	if report.Outcome != (initializertest.Finished{}) {
//		t.Errorf("the outcome is %v", report.Outcome)
//	}
//
// Then check the objects that the Func has created. [Report.Again] calls the Func once more, as
// after a crash of the initializer before it removed its name from the pending list.
//
// The fake client does not enforce access control or admission policies.
package initializertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/pkg/initializer"
	"github.com/nslifecycle/nslifecycle/pkg/initializer/internal/engine"
	"github.com/nslifecycle/nslifecycle/pkg/internal/fakeapi"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// Outcome is the result of a run: [Finished], [Failed], [NotYet], [Retrying] or [NotCalled].
// Outcomes can be compared with ==.
type Outcome interface{ outcome() }

// Finished means that the Func succeeded and the name was removed from the pending list.
type Finished struct {
	// Result is the return value of the Func.
	Result initializer.Result
}

// Failed means that the Namespace has a failure result. In a cluster, the operator then deletes the
// Namespace.
type Failed struct {
	Reason  metav1.StatusReason
	Message string
}

// NotYet means that the Func will be called again after a duration.
type NotYet struct {
	After           time.Duration
	Reason, Message string
}

// Retrying means that the Func will be called again with backoff.
type Retrying struct {
	// Err is the error that the Func returned, or an error that describes its panic.
	Err error
}

// NotCalled means that the Func was not called.
type NotCalled struct {
	// Why is the reason, for example that the Namespace is terminating.
	Why string
}

func (Finished) outcome()  {}
func (Failed) outcome()    {}
func (NotYet) outcome()    {}
func (Retrying) outcome()  {}
func (NotCalled) outcome() {}

// NewNamespace returns a Namespace as the API server creates it when these initializers are
// registered.
func NewNamespace(name string, initializers ...string) *corev1.Namespace {
	namespace := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{corev1.LabelMetadataName: name},
			Annotations: map[string]string{v1alpha1.AnnotationRequestedBy: "alice@corp.example.com"},
		},
		Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
	if len(initializers) > 0 {
		list := strings.Join(initializers, ",")
		namespace.Labels[v1alpha1.LabelInitializing] = "true"
		namespace.Annotations[v1alpha1.AnnotationInitializers] = list
		namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = list
	}
	return namespace
}

// RequestedBy sets the user who created the Namespace, and returns the Namespace. The default is
// alice@corp.example.com.
func RequestedBy(namespace *corev1.Namespace, user string) *corev1.Namespace {
	metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, v1alpha1.AnnotationRequestedBy, user)
	return namespace
}

// NewClient returns a fake client that contains the objects. Its scheme contains the built-in types
// of Kubernetes.
func NewClient(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).Build()
}

// On sets the fake client of a run. The Func should use the same client. Create it with NewClient,
// or with another scheme that includes Namespaces. Run creates the Namespace in the client unless
// it exists.
func On(c client.WithWatch) initializer.Option {
	return func(options *engine.Options) { options.Fake = c }
}

// Report is the result of a run.
type Report struct {
	// Outcome is the outcome of the run.
	Outcome Outcome
	// Namespace is the Namespace after the run.
	Namespace *corev1.Namespace
	// Published are the conditions that the run published, in order.
	Published []corev1.NamespaceCondition
	// Client is the fake client of the run.
	Client client.WithWatch

	before *corev1.Namespace
	run    func(t TestingT, namespace *corev1.Namespace) *Report
}

// TestingT contains the methods of *testing.T that Run uses.
type TestingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Run processes a Namespace once, like package initializer in a cluster, and returns the outcome.
// It accepts the options of [initializer.Add], and [On]. The test fails if Add would reject the
// arguments.
func Run(
	t TestingT, name string, fn initializer.Func, namespace *corev1.Namespace, opts ...initializer.Option,
) *Report {
	t.Helper()
	options, err := engine.NewOptions(name, opts)
	switch {
	case err != nil:
		t.Fatalf("Cannot run initializer %q: %v", name, err)
	case fn == nil:
		t.Fatalf("Cannot run initializer %q: the function is nil", name)
	case namespace == nil:
		t.Fatalf("Cannot run initializer %q: the Namespace is nil", name)
	}
	c := options.Fake
	if c == nil {
		c = NewClient()
	}
	runner := &runner{name: name, fn: fn, options: options, client: c}
	return runner.run(t, namespace)
}

// Again restores the Namespace to its state before the first call, and calls the Func once more. In
// a cluster, this happens if the initializer crashes before it removes its name from the pending
// list. The objects that the Func has created still exist. A Func that fails here will eventually
// fail in a cluster.
func (r *Report) Again(t TestingT) *Report {
	t.Helper()
	if r.before == nil {
		t.Fatalf("Cannot run again: namespace %q is terminating, so the function was not called", r.Namespace.Name)
	}
	var current corev1.Namespace
	if err := r.Client.Get(context.Background(), client.ObjectKeyFromObject(r.before), &current); err != nil {
		t.Fatalf("Failed to get namespace %q: %v", r.before.Name, err)
	}
	current.Labels, current.Annotations = r.before.Labels, r.before.Annotations
	if err := r.Client.Update(context.Background(), &current); err != nil {
		t.Fatalf("Failed to restore namespace %q: %v", r.before.Name, err)
	}
	return r.run(t, &current)
}

// runner runs one initializer.
type runner struct {
	name    string
	fn      initializer.Func
	options engine.Options
	client  client.WithWatch

	published []corev1.NamespaceCondition
	isCalled  bool
	result    initializer.Result
	err       error
}

func (r *runner) run(t TestingT, namespace *corev1.Namespace) *Report {
	t.Helper()
	*r = runner{name: r.name, fn: r.fn, options: r.options, client: r.client}
	report := &Report{Client: r.client, Namespace: namespace, run: r.run}
	if namespace.DeletionTimestamp != nil {
		report.Outcome = NotCalled{Why: r.whyNotCalled(namespace)}
		return report
	}
	// Only errors are logged, such as panics with a stack trace.
	logger := funcr.New(func(_, args string) { fmt.Fprintln(os.Stderr, args) }, funcr.Options{Verbosity: -1})
	ctx := log.IntoContext(context.Background(), logger)
	report.before = r.store(ctx, t, namespace)

	recording := interceptor.NewClient(fakeapi.Wrap(r.client), interceptor.Funcs{SubResourcePatch: r.record})
	reconciler := &workrunner.Reconciler{
		Handler: engine.NewHandler(recording, r.name, r.call, r.options), Cache: recording, Client: recording,
		Clock: clock.RealClock{}, Backoff: r.options.Backoff,
	}
	reconciler.Track(report.before)
	_, err := reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(namespace)})

	var after corev1.Namespace
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(namespace), &after); err != nil {
		t.Fatalf("Failed to get namespace %q after the run: %v", namespace.Name, err)
	}
	report.Namespace, report.Published, report.Outcome = &after, r.published, r.outcome(report.before, err)
	return report
}

// store creates the Namespace in the fake client unless it exists, and returns the stored object.
func (r *runner) store(ctx context.Context, t TestingT, namespace *corev1.Namespace) *corev1.Namespace {
	t.Helper()
	var stored corev1.Namespace
	err := r.client.Get(ctx, client.ObjectKeyFromObject(namespace), &stored)
	if apierrors.IsNotFound(err) {
		created := namespace.DeepCopy()
		created.ResourceVersion = ""
		if created.UID == "" {
			created.UID = types.UID("uid-of-" + namespace.Name)
		}
		if err = r.client.Create(ctx, created); err == nil {
			created.Status = namespace.Status
			err = r.client.Status().Update(ctx, created)
		}
		stored = *created
	}
	if err != nil {
		t.Fatalf("Failed to create namespace %q in the fake client: %v", namespace.Name, err)
	}
	return &stored
}

func (r *runner) call(ctx context.Context, namespace *corev1.Namespace) (workrunner.Result, error) {
	r.isCalled = true
	r.result, r.err = r.fn(ctx, namespace)
	return workrunner.Result(r.result), r.err
}

// record collects the conditions that are published.
func (r *runner) record(
	ctx context.Context, c client.Client, subresource string, object client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption,
) error {
	var written corev1.Namespace
	if data, err := patch.Data(object); err == nil && json.Unmarshal(data, &written) == nil {
		r.published = append(r.published, written.Status.Conditions...)
	}
	return c.SubResource(subresource).Patch(ctx, object, patch, opts...)
}

// outcome returns the outcome of the run. err is the error that the reconciler returned.
func (r *runner) outcome(namespace *corev1.Namespace, err error) Outcome {
	var failed *initializer.FailedError
	var notYet *initializer.NotYetError
	switch {
	case err != nil && r.err != nil:
		return Retrying{Err: r.err}
	case err != nil: // A panic, or a rejected write.
		return Retrying{Err: err}
	case !r.isCalled:
		return NotCalled{Why: r.whyNotCalled(namespace)}
	case errors.As(r.err, &failed):
		return Failed{Reason: failed.Reason, Message: failed.Message}
	case errors.As(r.err, &notYet):
		return NotYet{After: notYet.After, Reason: notYet.Reason, Message: notYet.Message}
	}
	return Finished{Result: r.result}
}

func (r *runner) whyNotCalled(namespace *corev1.Namespace) string {
	state := initialization.ParseState(namespace)
	switch {
	case namespace.DeletionTimestamp != nil:
		return fmt.Sprintf("namespace %q is terminating", namespace.Name)
	case state.Failure != nil:
		return fmt.Sprintf("the initialization of namespace %q has failed", namespace.Name)
	case !slices.Contains(state.Pending, r.name):
		return fmt.Sprintf("namespace %q is not waiting for initializer %q", namespace.Name, r.name)
	}
	return fmt.Sprintf("namespace %q is waiting for initializer %q first", namespace.Name, state.Pending[0])
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initializertest runs an initializer in unit tests, without an API server. [Run] does
// with a Namespace what package initializer would do with it now, by the same code, on a fake
// client:
//
//	c := initializertest.NewClient()
//	report := initializertest.Run(t, "limits.corp.example.com", limits(c),
//		initializertest.NewNamespace("shop", "limits.corp.example.com"), initializertest.On(c))
//	if report.Outcome != (initializertest.Finished{}) {
//		t.Errorf("the outcome is %v", report.Outcome)
//	}
//
// Then look into the client for what the Func has made. [Report.Again] calls the Func once more,
// as after a crash between its work and the write that says so.
//
// What only an API server enforces is not there: rights, the gate, and that the list only
// shrinks.
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

// Outcome is what came of a run: one of [Finished], [Failed], [NotYet], [Retrying] and
// [NotCalled]. Outcomes can be compared with ==.
type Outcome interface{ outcome() }

// Finished says that the name is off the list.
type Finished struct {
	// Result is what the Func has returned.
	Result initializer.Result
}

// Failed says that the Namespace has a failure result; the operator would delete it.
type Failed struct {
	Reason  metav1.StatusReason
	Message string
}

// NotYet says that the Func would be called again after a time.
type NotYet struct {
	After           time.Duration
	Reason, Message string
}

// Retrying says that the Func would be called again after a back-off.
type Retrying struct {
	// Err is the error of the Func, or one that tells of its panic.
	Err error
}

// NotCalled says that the Func has not been called.
type NotCalled struct {
	// Why is a sentence about the Namespace.
	Why string
}

func (Finished) outcome()  {}
func (Failed) outcome()    {}
func (NotYet) outcome()    {}
func (Retrying) outcome()  {}
func (NotCalled) outcome() {}

// NewNamespace returns a Namespace as the API server creates it where these initializers are
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

// RequestedBy says who asked for a Namespace, instead of alice@corp.example.com, and returns it.
func RequestedBy(namespace *corev1.Namespace, user string) *corev1.Namespace {
	metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, v1alpha1.AnnotationRequestedBy, user)
	return namespace
}

// NewClient returns a fake client that knows the types of Kubernetes and has some objects.
func NewClient(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).Build()
}

// On runs on a fake client of the test's own, which the Func writes to as well: that of
// NewClient, or one for other types, of which Namespaces are one. The Namespace is created
// there unless it is there already.
func On(c client.WithWatch) initializer.Option {
	return func(options *engine.Options) { options.Fake = c }
}

// Report is what a run left behind.
type Report struct {
	// Outcome is what came of it.
	Outcome Outcome
	// Namespace is as it is afterwards.
	Namespace *corev1.Namespace
	// Published are the conditions that were written, in order.
	Published []corev1.NamespaceCondition
	// Client is the fake client.
	Client client.WithWatch

	before *corev1.Namespace
	run    func(t TestingT, namespace *corev1.Namespace) *Report
}

// TestingT is what Run needs of *testing.T.
type TestingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Run does with a Namespace what package initializer would do with it now, and returns what
// came of it. The options are those of [initializer.Add], and [On]. What Add would refuse ends
// the test.
func Run(
	t TestingT, name string, fn initializer.Func, namespace *corev1.Namespace, opts ...initializer.Option,
) *Report {
	t.Helper()
	options, err := engine.NewOptions(name, opts)
	switch {
	case err != nil:
		t.Fatalf("Running initializer %q: %v", name, err)
	case fn == nil:
		t.Fatalf("Running initializer %q: it has no function", name)
	case namespace == nil:
		t.Fatalf("Running initializer %q: it has no Namespace", name)
	}
	c := options.Fake
	if c == nil {
		c = NewClient()
	}
	runner := &runner{name: name, fn: fn, options: options, client: c}
	return runner.run(t, namespace)
}

// Again calls the Func once more for the Namespace as it was before the first call, as after a
// crash between its work and the write that says so. What the Func has made is still there. A
// Func that cannot bear that will fail in a cluster sooner or later.
func (r *Report) Again(t TestingT) *Report {
	t.Helper()
	if r.before == nil {
		t.Fatalf("Running again for namespace %q: it terminates, and the Func was not called for it", r.Namespace.Name)
	}
	var current corev1.Namespace
	if err := r.Client.Get(context.Background(), client.ObjectKeyFromObject(r.before), &current); err != nil {
		t.Fatalf("Reading namespace %q again: %v", r.before.Name, err)
	}
	current.Labels, current.Annotations = r.before.Labels, r.before.Annotations
	if err := r.Client.Update(context.Background(), &current); err != nil {
		t.Fatalf("Setting namespace %q back: %v", r.before.Name, err)
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
	// Panics are told with their stack, and nothing else is.
	logger := funcr.New(func(_, args string) { fmt.Fprintln(os.Stderr, args) }, funcr.Options{Verbosity: -1})
	ctx := log.IntoContext(context.Background(), logger)
	report.before = r.store(ctx, t, namespace)

	recording := interceptor.NewClient(fakeapi.Wrap(r.client), interceptor.Funcs{SubResourcePatch: r.record})
	reconciler := &workrunner.Reconciler{
		Work: engine.NewWork(recording, r.name, r.call, r.options), Cache: recording, Client: recording,
		Clock: clock.RealClock{}, Backoff: r.options.Backoff,
	}
	reconciler.Observe(report.before)
	_, err := reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(namespace)})

	var after corev1.Namespace
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(namespace), &after); err != nil {
		t.Fatalf("Reading namespace %q after the run: %v", namespace.Name, err)
	}
	report.Namespace, report.Published, report.Outcome = &after, r.published, r.outcome(report.before, err)
	return report
}

// store puts the Namespace into the client, unless it is there, and returns it as it is there.
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
		t.Fatalf("Storing namespace %q in the fake client: %v", namespace.Name, err)
	}
	return &stored
}

func (r *runner) call(ctx context.Context, namespace *corev1.Namespace) (workrunner.Result, error) {
	r.isCalled = true
	r.result, r.err = r.fn(ctx, namespace)
	return workrunner.Result(r.result), r.err
}

// record keeps the conditions that are written.
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

// outcome makes of what has been seen what came of it; err is that of the reconciler.
func (r *runner) outcome(namespace *corev1.Namespace, err error) Outcome {
	var failed *initializer.FailedError
	var notYet *initializer.NotYetError
	switch {
	case err != nil && r.err != nil:
		return Retrying{Err: r.err}
	case err != nil: // A panic, or a write that was refused.
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
		return fmt.Sprintf("namespace %q terminates", namespace.Name)
	case state.Failure != nil:
		return fmt.Sprintf("the initialization of namespace %q has failed", namespace.Name)
	case !slices.Contains(state.Pending, r.name):
		return fmt.Sprintf("namespace %q does not wait for initializer %q", namespace.Name, r.name)
	}
	return fmt.Sprintf("namespace %q waits for initializer %q first", namespace.Name, state.Pending[0])
}

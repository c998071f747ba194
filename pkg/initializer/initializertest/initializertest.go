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
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	return fakeapi.NewClient(objects...)
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

	name string
	run  *fakeapi.Run
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
	runner := fakeapi.NewRunner(t, fmt.Sprintf("initializer %q", name), options.Fake, fn == nil, err)
	runner.NewHandler = func(c client.Client) workrunner.Handler {
		return engine.NewHandler(c, name, workrunner.NewCall(fn), options)
	}
	return newReport(name, runner.Run(t, namespace))
}

// Again restores the Namespace to its state before the first call, and calls the Func once more. In
// a cluster, this happens if the initializer crashes before it removes its name from the pending
// list. The objects that the Func has created still exist. A Func that fails here will eventually
// fail in a cluster.
func (r *Report) Again(t TestingT) *Report {
	t.Helper()
	return newReport(r.name, r.run.Again(t))
}

func newReport(name string, run *fakeapi.Run) *Report {
	return &Report{
		Outcome: outcome(name, run), Namespace: run.After, Published: run.Published, Client: run.Client(),
		name: name, run: run,
	}
}

func outcome(name string, run *fakeapi.Run) Outcome {
	var failed *initializer.FailedError
	var notYet *initializer.NotYetError
	switch {
	case run.RetryErr != nil:
		return Retrying{Err: run.RetryErr}
	case !run.IsCalled:
		return NotCalled{Why: whyNotCalled(run.Before, name)}
	case errors.As(run.CallErr, &failed):
		return Failed(*failed)
	case errors.As(run.CallErr, &notYet):
		return NotYet(*notYet)
	}
	return Finished{Result: initializer.Result(run.Result)}
}

func whyNotCalled(namespace *corev1.Namespace, name string) string {
	state := initialization.ParseState(namespace)
	switch {
	case namespace.DeletionTimestamp != nil:
		return fmt.Sprintf("namespace %q is terminating", namespace.Name)
	case state.Failure != nil:
		return fmt.Sprintf("the initialization of namespace %q has failed", namespace.Name)
	case !slices.Contains(state.Pending, name):
		return fmt.Sprintf("namespace %q is not waiting for initializer %q", namespace.Name, name)
	}
	return fmt.Sprintf("namespace %q is waiting for initializer %q first", namespace.Name, state.Pending[0])
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package finalizertest runs a function of package finalizer in unit tests without an API server.
// [Run] processes a Namespace once, with the code in package finalizer and a fake client:
//
//	report := finalizertest.Run(t, "search.example.com/index", deleteIndex(service),
//		finalizertest.NewNamespace("shop", "search.example.com/index"))
//	if report.Outcome != (finalizertest.Finished{}) {
//		t.Errorf("the outcome is %v", report.Outcome)
//	}
//
// Then check that the external resources are deleted. [Report.Again] calls the Func once more, as
// after a crash of the program before it removed the finalizer.
//
// The fake client does not enforce access control.
package finalizertest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/pkg/finalizer"
	"github.com/nslifecycle/nslifecycle/pkg/finalizer/internal/engine"
	"github.com/nslifecycle/nslifecycle/pkg/internal/fakeapi"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

// Outcome is the result of a run: [Finished], [NotYet], [Retrying] or [NotCalled]. Outcomes can be
// compared with ==.
type Outcome interface{ outcome() }

// Finished means that the Func succeeded and the namespace finalizer was removed.
type Finished struct {
	// Result is the return value of the Func.
	Result finalizer.Result
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
	// Why is the reason, for example that the Namespace is not terminating.
	Why string
}

func (Finished) outcome()  {}
func (NotYet) outcome()    {}
func (Retrying) outcome()  {}
func (NotCalled) outcome() {}

// NewNamespace returns a terminating Namespace with the namespace finalizers "kubernetes" and these.
// Its content is not deleted yet.
func NewNamespace(name string, finalizers ...corev1.FinalizerName) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{corev1.LabelMetadataName: name},
			DeletionTimestamp: &metav1.Time{Time: time.Now().Truncate(time.Second)},
		},
		Spec:   corev1.NamespaceSpec{Finalizers: append([]corev1.FinalizerName{corev1.FinalizerKubernetes}, finalizers...)},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	}
}

// WithoutContent removes the namespace finalizer "kubernetes", like the namespace controller after it
// has deleted the content, and returns the Namespace. [finalizer.AfterContent] waits for this.
func WithoutContent(namespace *corev1.Namespace) *corev1.Namespace {
	namespace.Spec.Finalizers = slices.DeleteFunc(namespace.Spec.Finalizers,
		func(name corev1.FinalizerName) bool { return name == corev1.FinalizerKubernetes })
	return namespace
}

// NewClient returns a fake client that contains the objects. Its scheme contains the built-in types
// of Kubernetes.
func NewClient(objects ...client.Object) client.WithWatch {
	return fakeapi.NewClient(objects...)
}

// On sets the fake client of a run. If the Func has a client, it should use the same one. Create it
// with NewClient, or with another scheme that includes Namespaces. Run creates the Namespace in the
// client unless it exists.
func On(c client.WithWatch) finalizer.Option {
	return func(options *engine.Options) { options.Fake = c }
}

// Report is the result of a run.
type Report struct {
	// Outcome is the outcome of the run.
	Outcome Outcome
	// Namespace is the Namespace after the run. In a cluster, a terminating Namespace without
	// finalizers no longer exists.
	Namespace *corev1.Namespace
	// Published are the conditions that the run published, in order.
	Published []corev1.NamespaceCondition
	// Client is the fake client of the run.
	Client client.WithWatch

	name corev1.FinalizerName
	run  *fakeapi.Run
}

// TestingT contains the methods of *testing.T that Run uses.
type TestingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Run processes a Namespace once, like package finalizer in a cluster, and returns the outcome. It
// accepts the options of [finalizer.Add], and [On]. With [finalizer.AddFinalizer], a Namespace that
// is selected and not terminating gets the finalizer. The test fails if Add would reject the
// arguments.
func Run(
	t TestingT, name corev1.FinalizerName, fn finalizer.Func, namespace *corev1.Namespace, opts ...finalizer.Option,
) *Report {
	t.Helper()
	options, err := engine.NewOptions(name, opts)
	runner := fakeapi.NewRunner(t, fmt.Sprintf("finalizer %q", name), options.Fake, fn == nil, err)
	if options.AddsFinalizer {
		runner.NewHandler = func(c client.Client) workrunner.Handler {
			return engine.NewAddHandler(c, name, options.Selects)
		}
		namespace = runner.Run(t, namespace).After
	}
	runner.NewHandler = func(c client.Client) workrunner.Handler {
		return engine.NewHandler(c, name, workrunner.NewCall(fn), options)
	}
	return newReport(name, runner.Run(t, namespace))
}

// Again restores the finalizers of the Namespace, and calls the Func once more. In a cluster, this
// happens if the program crashes before it removes the finalizer. The external resources that the
// Func has deleted no longer exist. A Func that fails here will eventually block a Namespace in a
// cluster.
func (r *Report) Again(t TestingT) *Report {
	t.Helper()
	return newReport(r.name, r.run.Again(t))
}

func newReport(name corev1.FinalizerName, run *fakeapi.Run) *Report {
	return &Report{
		Outcome: outcome(name, run), Namespace: run.After, Published: run.Published, Client: run.Client(),
		name: name, run: run,
	}
}

func outcome(name corev1.FinalizerName, run *fakeapi.Run) Outcome {
	var notYet *finalizer.NotYetError
	switch {
	case run.RetryErr != nil:
		return Retrying{Err: run.RetryErr}
	case !run.IsCalled:
		return NotCalled{Why: whyNotCalled(run.Before, name)}
	case errors.As(run.CallErr, &notYet):
		return NotYet(*notYet)
	}
	return Finished{Result: finalizer.Result(run.Result)}
}

func whyNotCalled(namespace *corev1.Namespace, name corev1.FinalizerName) string {
	switch {
	case namespace.DeletionTimestamp == nil:
		return fmt.Sprintf("namespace %q is not terminating", namespace.Name)
	case !slices.Contains(namespace.Spec.Finalizers, name):
		return fmt.Sprintf("namespace %q does not have the namespace finalizer %q", namespace.Name, name)
	}
	return fmt.Sprintf("the content of namespace %q is not deleted yet", namespace.Name)
}

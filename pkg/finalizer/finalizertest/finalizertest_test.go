// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/pkg/finalizer"
	"github.com/nslifecycle/nslifecycle/pkg/finalizer/finalizertest"
)

const (
	own   = corev1.FinalizerName("search.example.com/index")
	other = corev1.FinalizerName("backup.example.com/last")
)

func returning(result finalizer.Result, err error) finalizer.Func {
	return func(context.Context, *corev1.Namespace) (finalizer.Result, error) { return result, err }
}

func active(finalizers ...corev1.FinalizerName) *corev1.Namespace {
	namespace := finalizertest.NewNamespace("shop", finalizers...)
	namespace.DeletionTimestamp, namespace.Status.Phase = nil, corev1.NamespaceActive
	return namespace
}

func TestRun(t *testing.T) {
	down := errors.New("down")
	deleted := finalizer.Result{Reason: "IndexDeleted", Message: "the index was deleted"}
	afterContent := []finalizer.Option{finalizer.AfterContent()}
	addsToAll := []finalizer.Option{finalizer.AddFinalizer(func(*corev1.Namespace) bool { return true })}
	held := []corev1.FinalizerName{"kubernetes", own, other}
	released := []corev1.FinalizerName{"kubernetes", other}
	for name, test := range map[string]struct {
		fn        finalizer.Func
		namespace *corev1.Namespace
		opts      []finalizer.Option

		want           finalizertest.Outcome
		wantFinalizers []corev1.FinalizerName
		published      []string
	}{
		"finished": {
			fn: returning(finalizer.Result{}, nil), want: finalizertest.Finished{}, wantFinalizers: released,
			published: []string{"search.example.com/index=True Released"},
		},
		"finished with a result": {
			fn: returning(deleted, nil), want: finalizertest.Finished{Result: deleted}, wantFinalizers: released,
			published: []string{"search.example.com/index=True IndexDeleted"},
		},
		"the last finalizer": {
			fn: returning(deleted, nil), namespace: finalizertest.WithoutContent(finalizertest.NewNamespace("shop", own)),
			want: finalizertest.Finished{Result: deleted},
		},
		"not yet": {
			fn:             returning(finalizer.Result{}, fmt.Errorf("deleting: %w", finalizer.NotYet(time.Minute, "Archiving", "%d of 3", 2))),
			want:           finalizertest.NotYet{After: time.Minute, Reason: "Archiving", Message: "2 of 3"},
			wantFinalizers: held, published: []string{"search.example.com/index=False Archiving"},
		},
		"retrying": {
			fn: returning(finalizer.Result{}, down), want: finalizertest.Retrying{Err: down}, wantFinalizers: held,
			published: []string{"search.example.com/index=False Retrying"},
		},
		"nil NotYetError": {
			fn:             returning(finalizer.Result{}, (*finalizer.NotYetError)(nil)),
			want:           finalizertest.Retrying{Err: (*finalizer.NotYetError)(nil)},
			wantFinalizers: held, published: []string{"search.example.com/index=False Retrying"},
		},
		"not terminating": {
			fn: returning(finalizer.Result{}, nil), namespace: active(own), wantFinalizers: []corev1.FinalizerName{"kubernetes", own},
			want: finalizertest.NotCalled{Why: `namespace "shop" is not terminating`},
		},
		"without the finalizer": {
			fn: returning(finalizer.Result{}, nil), namespace: finalizertest.NewNamespace("shop", other), wantFinalizers: released,
			want: finalizertest.NotCalled{Why: `namespace "shop" does not have the namespace finalizer "search.example.com/index"`},
		},
		"AfterContent with content": {
			fn: returning(finalizer.Result{}, nil), opts: afterContent, wantFinalizers: held,
			want: finalizertest.NotCalled{Why: `the content of namespace "shop" is not deleted yet`},
		},
		"AfterContent without content": {
			fn: returning(finalizer.Result{}, nil), opts: afterContent,
			namespace: finalizertest.WithoutContent(finalizertest.NewNamespace("shop", own, other)),
			want:      finalizertest.Finished{}, wantFinalizers: []corev1.FinalizerName{other},
			published: []string{"search.example.com/index=True Released"},
		},
		"AddFinalizer": {
			fn: returning(finalizer.Result{}, nil), namespace: active(), opts: addsToAll,
			want:           finalizertest.NotCalled{Why: `namespace "shop" is not terminating`},
			wantFinalizers: []corev1.FinalizerName{"kubernetes", own},
		},
		"AddFinalizer while terminating": {
			fn: returning(finalizer.Result{}, nil), namespace: finalizertest.NewNamespace("shop", other), opts: addsToAll,
			want:           finalizertest.NotCalled{Why: `namespace "shop" does not have the namespace finalizer "search.example.com/index"`},
			wantFinalizers: released,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if test.namespace == nil {
				test.namespace = finalizertest.NewNamespace("shop", own, other)
			}
			report := finalizertest.Run(t, own, test.fn, test.namespace, test.opts...)
			g.Expect(report.Outcome).To(Equal(test.want))
			g.Expect(report.Namespace.Spec.Finalizers).To(HaveExactElements(test.wantFinalizers))
			g.Expect(report.Namespace.Finalizers).To(BeEmpty())
			g.Expect(report.Namespace.DeletionTimestamp).To(Equal(test.namespace.DeletionTimestamp))
			var published []string
			for _, condition := range report.Published {
				published = append(published, fmt.Sprintf("%s=%s %s", condition.Type, condition.Status, condition.Reason))
			}
			g.Expect(published).To(Equal(test.published))
		})
	}
}

func TestFuncGetsTheNamespace(t *testing.T) {
	g := NewWithT(t)
	namespace := finalizertest.NewNamespace("shop", own)
	namespace.DeletionTimestamp.Time = namespace.DeletionTimestamp.Add(-time.Hour)
	namespace.Labels["team"] = "a"
	var got *corev1.Namespace
	finalizertest.Run(t, own, func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
		got = namespace
		return finalizer.Result{}, nil
	}, namespace)
	namespace.ResourceVersion = got.ResourceVersion
	g.Expect(got).To(Equal(namespace))
}

func TestPanicIsRecovered(t *testing.T) {
	g := NewWithT(t)
	report := finalizertest.Run(t, own, func(context.Context, *corev1.Namespace) (finalizer.Result, error) {
		panic("index out of range")
	}, finalizertest.NewNamespace("shop", own))
	g.Expect(report.Outcome).To(BeAssignableToTypeOf(finalizertest.Retrying{}))
	g.Expect(report.Outcome.(finalizertest.Retrying).Err).To(MatchError(ContainSubstring("index out of range")))
	g.Expect(report.Published).To(ConsistOf(HaveField("Reason", "Panicked")))
}

// The Func must not fail if the resource no longer exists.
func TestAgainDetectsMissingIdempotence(t *testing.T) {
	g := NewWithT(t)
	indices := map[string]bool{"shop": true}
	errNotFound := errors.New("not found")
	deleteIndex := func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
		if !indices[namespace.Name] {
			return finalizer.Result{}, errNotFound
		}
		delete(indices, namespace.Name)
		return finalizer.Result{}, nil
	}
	namespace := finalizertest.WithoutContent(finalizertest.NewNamespace("shop", own))
	report := finalizertest.Run(t, own, deleteIndex, namespace)
	g.Expect(report.Outcome).To(Equal(finalizertest.Finished{}))
	again := report.Again(t)
	g.Expect(again.Outcome).To(Equal(finalizertest.Retrying{Err: errNotFound}))
	g.Expect(again.Namespace.Spec.Finalizers).To(HaveExactElements(own))
}

// fatal is a TestingT that records the failure message.
type fatal struct{ text string }

func (*fatal) Helper() {}
func (f *fatal) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic(f)
}

func TestInvalidArgumentsFailTheTest(t *testing.T) {
	namespace, succeed := finalizertest.NewNamespace("shop", own), returning(finalizer.Result{}, nil)
	for want, run := range map[string]func(t finalizertest.TestingT){
		"no domain":        func(t finalizertest.TestingT) { finalizertest.Run(t, "index", succeed, namespace) },
		"function is nil":  func(t finalizertest.TestingT) { finalizertest.Run(t, own, nil, namespace) },
		"Namespace is nil": func(t finalizertest.TestingT) { finalizertest.Run(t, own, succeed, nil) },
		"WithWorkers(0)": func(t finalizertest.TestingT) {
			finalizertest.Run(t, own, succeed, namespace, finalizer.WithWorkers(0))
		},
		"AddFinalizer(nil)": func(t finalizertest.TestingT) {
			finalizertest.Run(t, own, succeed, namespace, finalizer.AddFinalizer(nil))
		},
	} {
		t.Run(want, func(t *testing.T) {
			g := NewWithT(t)
			f := &fatal{}
			g.Expect(func() { run(f) }).To(PanicWith(f))
			g.Expect(f.text).To(ContainSubstring(want))
		})
	}
}

// This example tests a function that deletes a bucket. It must succeed when it is retried after a
// crash.
func ExampleRun() {
	t := new(testing.T) // In a test, t is the argument of the test function.

	buckets := map[string]bool{"uid-of-shop": true}
	deleteBucket := func(_ context.Context, namespace *corev1.Namespace) (finalizer.Result, error) {
		delete(buckets, string(namespace.UID))
		return finalizer.Result{}, nil
	}

	report := finalizertest.Run(t, own, deleteBucket, finalizertest.NewNamespace("shop", own))
	fmt.Printf("%T, finalizers: %s\n", report.Outcome, report.Namespace.Spec.Finalizers)
	fmt.Printf("again: %T, %d buckets\n", report.Again(t).Outcome, len(buckets))
	// Output:
	// finalizertest.Finished, finalizers: [kubernetes]
	// again: finalizertest.Finished, 0 buckets
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/pkg/initializer"
	"github.com/nslifecycle/nslifecycle/pkg/initializer/initializertest"
	"github.com/nslifecycle/nslifecycle/pkg/internal/workrunner"
)

const (
	first  = "a.corp.com"
	second = "b.corp.com"
)

func returning(result initializer.Result, err error) initializer.Func {
	return func(context.Context, *corev1.Namespace) (initializer.Result, error) { return result, err }
}

func TestRun(t *testing.T) {
	down := errors.New("down")
	terminating := initializertest.NewNamespace("shop", first)
	terminating.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	failed := initializertest.NewNamespace("shop", first)
	failed.Annotations[v1alpha1.AnnotationInitializationResult] = `{"status":"Failure"}`

	for name, test := range map[string]struct {
		name      string
		fn        initializer.Func
		namespace *corev1.Namespace
		opts      []initializer.Option

		want        initializertest.Outcome
		wantPending string
		published   []string
	}{
		"finished": {
			fn: returning(initializer.Result{}, nil), want: initializertest.Finished{}, wantPending: second,
		},
		"finished with a result": {
			fn: returning(initializer.Result{Message: "3 objects"}, nil), wantPending: second,
			want:      initializertest.Finished{Result: initializer.Result{Message: "3 objects"}},
			published: []string{"a.corp.com/Initialized=True Initialized: 3 objects"},
		},
		"failed": {
			fn:          returning(initializer.Result{}, fmt.Errorf("preparing: %w", initializer.Failed("NoQuota", "none of %d left", 7))),
			wantPending: "a.corp.com,b.corp.com", want: initializertest.Failed{Reason: "NoQuota", Message: "none of 7 left"},
		},
		"not yet": {
			fn:          returning(initializer.Result{}, fmt.Errorf("preparing: %w", initializer.NotYet(time.Minute, "NoQuota", "wait for %s", "it"))),
			wantPending: "a.corp.com,b.corp.com",
			want:        initializertest.NotYet{After: time.Minute, Reason: "NoQuota", Message: "wait for it"},
			published:   []string{"a.corp.com/Initialized=False NoQuota: wait for it"},
		},
		"retrying": {
			fn: returning(initializer.Result{}, down), wantPending: "a.corp.com,b.corp.com",
			want: initializertest.Retrying{Err: down}, published: []string{"a.corp.com/Initialized=False Retrying: down"},
		},
		"nil FailedError": {
			fn:          returning(initializer.Result{}, (*initializer.FailedError)(nil)),
			wantPending: "a.corp.com,b.corp.com",
			want:        initializertest.Retrying{Err: (*initializer.FailedError)(nil)},
			published:   []string{"a.corp.com/Initialized=False Retrying: " + workrunner.MessageNilError},
		},
		"nil NotYetError": {
			fn:          returning(initializer.Result{}, (*initializer.NotYetError)(nil)),
			wantPending: "a.corp.com,b.corp.com",
			want:        initializertest.Retrying{Err: (*initializer.NotYetError)(nil)},
			published:   []string{"a.corp.com/Initialized=False Retrying: " + workrunner.MessageNilError},
		},
		"not its turn": {
			name: second, fn: returning(initializer.Result{}, nil), wantPending: "a.corp.com,b.corp.com",
			want: initializertest.NotCalled{Why: `namespace "shop" is waiting for initializer "a.corp.com" first`},
		},
		"unordered": {
			name: second, fn: returning(initializer.Result{}, nil), opts: []initializer.Option{initializer.Unordered()},
			want: initializertest.Finished{}, wantPending: first,
		},
		"with a finalizer": {
			fn: func(_ context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
				return initializer.Result{Message: fmt.Sprint(namespace.Spec.Finalizers)}, nil
			},
			opts:        []initializer.Option{initializer.WithFinalizer("search.example.com/index")},
			want:        initializertest.Finished{Result: initializer.Result{Message: "[kubernetes search.example.com/index]"}},
			wantPending: second,
			published:   []string{"a.corp.com/Initialized=True Initialized: [kubernetes search.example.com/index]"},
		},
		"not in the list": {
			name: "c.corp.com", fn: returning(initializer.Result{}, nil), wantPending: "a.corp.com,b.corp.com",
			want: initializertest.NotCalled{Why: `namespace "shop" is not waiting for initializer "c.corp.com"`},
		},
		"terminating": {
			fn: returning(initializer.Result{}, nil), namespace: terminating, wantPending: first,
			want: initializertest.NotCalled{Why: `namespace "shop" is terminating`},
		},
		"failed before": {
			fn: returning(initializer.Result{}, nil), namespace: failed, wantPending: first,
			want: initializertest.NotCalled{Why: `the initialization of namespace "shop" has failed`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if test.name == "" {
				test.name = first
			}
			if test.namespace == nil {
				test.namespace = initializertest.NewNamespace("shop", first, second)
			}
			report := initializertest.Run(t, test.name, test.fn, test.namespace, test.opts...)
			g.Expect(report.Outcome).To(Equal(test.want))
			g.Expect(report.Namespace.Annotations[v1alpha1.AnnotationPendingInitializers]).To(Equal(test.wantPending))
			var published []string
			for _, condition := range report.Published {
				published = append(published, fmt.Sprintf("%s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message))
			}
			g.Expect(published).To(Equal(test.published))
		})
	}
}

func TestPanicIsRecovered(t *testing.T) {
	g := NewWithT(t)
	report := initializertest.Run(t, first, func(context.Context, *corev1.Namespace) (initializer.Result, error) {
		panic("index out of range")
	}, initializertest.NewNamespace("shop", first))
	g.Expect(report.Outcome).To(BeAssignableToTypeOf(initializertest.Retrying{}))
	g.Expect(report.Outcome.(initializertest.Retrying).Err).To(MatchError(ContainSubstring("index out of range")))
	g.Expect(report.Published).To(HaveLen(1))
	g.Expect(report.Published[0].Reason).To(Equal("Panicked"))
}

func TestLastInitializerOpensTheNamespace(t *testing.T) {
	g := NewWithT(t)
	namespace := initializertest.RequestedBy(initializertest.NewNamespace("shop", first), "bob")
	report := initializertest.Run(t, first, returning(initializer.Result{}, nil), namespace)
	g.Expect(report.Namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
	g.Expect(report.Namespace.Annotations).To(Equal(map[string]string{
		v1alpha1.AnnotationInitializers: first, v1alpha1.AnnotationRequestedBy: "bob",
	}))
}

func TestAgainDetectsMissingIdempotence(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewFakeClient()
	report := initializertest.Run(t, first, func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
		return initializer.Result{}, c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "x"}})
	}, initializertest.NewNamespace("shop", first), initializertest.On(c))
	g.Expect(report.Outcome).To(Equal(initializertest.Finished{}))
	again := report.Again(t)
	g.Expect(again.Outcome).To(BeAssignableToTypeOf(initializertest.Retrying{}))
	g.Expect(again.Namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPendingInitializers, first))
}

// fatal is a TestingT that records the failure message.
type fatal struct{ text string }

func (*fatal) Helper() {}
func (f *fatal) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic(f)
}

func TestInvalidArgumentsFailTheTest(t *testing.T) {
	namespace := initializertest.NewNamespace("shop", first)
	for want, run := range map[string]func(t initializertest.TestingT){
		"not fully qualified": func(t initializertest.TestingT) {
			initializertest.Run(t, "a", returning(initializer.Result{}, nil), namespace)
		},
		"function is nil": func(t initializertest.TestingT) { initializertest.Run(t, first, nil, namespace) },
		"Namespace is nil": func(t initializertest.TestingT) {
			initializertest.Run(t, first, returning(initializer.Result{}, nil), nil)
		},
		"WithWorkers(0)": func(t initializertest.TestingT) {
			initializertest.Run(t, first, returning(initializer.Result{}, nil), namespace, initializer.WithWorkers(0))
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

func TestRequestedByWithoutAnnotations(t *testing.T) {
	namespace := initializertest.RequestedBy(&corev1.Namespace{}, "bob@corp.example.com")
	if got := namespace.Annotations[v1alpha1.AnnotationRequestedBy]; got != "bob@corp.example.com" {
		t.Errorf("The requester is %q", got)
	}
}

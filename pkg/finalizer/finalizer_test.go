// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalizer

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	own   = corev1.FinalizerName("search.example.com/index")
	other = corev1.FinalizerName("backup.example.com/last")
)

func succeed(context.Context, *corev1.Namespace) (Result, error) { return Result{}, nil }

func TestMatch(t *testing.T) {
	for name, test := range map[string]struct {
		finalizers             []corev1.FinalizerName
		isActive               bool
		want, wantAfterContent bool
	}{
		"not terminating":       {finalizers: []corev1.FinalizerName{own}, isActive: true},
		"without the finalizer": {finalizers: []corev1.FinalizerName{other}},
		"with content":          {finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes, own}, want: true},
		"without content":       {finalizers: []corev1.FinalizerName{other, own}, want: true, wantAfterContent: true},
	} {
		namespace := wrappers.MakeNamespace("shop").Terminating(time.Now()).Obj()
		namespace.Spec.Finalizers = test.finalizers
		if test.isActive {
			namespace.DeletionTimestamp = nil
		}
		for isAfterContent, want := range map[bool]bool{false: test.want, true: test.wantAfterContent} {
			handler := newHandler(nil, own, succeed, options{isAfterContent: isAfterContent})
			if got := handler.Match(namespace); got != want {
				t.Errorf("%s, after content %t: %t, want %t", name, isAfterContent, got, want)
			}
		}
	}
}

func TestAddValidates(t *testing.T) {
	for name, test := range map[string]struct {
		own  corev1.FinalizerName
		fn   Func
		opts []Option
		want string
	}{
		"kubernetes":          {"kubernetes", succeed, nil, "belongs to the namespace controller"},
		"no domain":           {"index", succeed, nil, "it has no domain"},
		"no function":         {own, nil, nil, "function is nil"},
		"no workers":          {own, succeed, []Option{WithWorkers(0)}, "WithWorkers(0)"},
		"no manager":          {own, succeed, nil, "manager is nil"},
		"nil selector":        {own, succeed, []Option{AddFinalizer(nil)}, "AddFinalizer(nil)"},
		"maximum below first": {own, succeed, []Option{WithBackoff(time.Minute, time.Second)}, "WithBackoff(1m0s, 1s)"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Add(nil, test.own, test.fn, test.opts...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Add: %v, want an error with %q", err, test.want)
			}
		})
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// The log shows the stack of the function without escaped line breaks, and the error, which is
// published, contains no stack.
func TestPanicIsLogged(t *testing.T) {
	for name, test := range map[string]struct {
		panics      func()
		wantError   string
		wantDetails bool
	}{
		"a text":            {func() { panic("out of range") }, "panic: out of range; ", false},
		"an error":          {func() { panic(errors.New("down")) }, "panic: down; ", false},
		"a runtime error":   {func() { list := []int{}; _ = list[len(list)] }, "panic: runtime error: index out of range", false},
		"a nil dereference": {func() { _ = (*corev1.Namespace)(nil).Spec }, "panic: runtime error: invalid memory address", false},
		"a value with a stack": {func() {
			panic(fmt.Sprintf("worker failed: down\n\n%s", debug.Stack()))
		}, "panic: worker failed: down; ", true},
		"another panic while recovering": {func() {
			defer func() { panic(fmt.Sprintf("second after %v", recover())) }()
			panic("first")
		}, "panic: second after first; ", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var logged string
			logger := funcr.NewJSON(func(text string) { logged += text }, funcr.Options{})
			r := &Reconciler{Handler: Handler{Call: func(context.Context, *corev1.Namespace) (Result, error) {
				test.panics()
				return Result{}, nil
			}}}
			_, err := r.callRecovering(log.IntoContext(t.Context(), logger), wrappers.MakeNamespace("shop").Obj())
			g.Expect(err).To(MatchError(And(HavePrefix(test.wantError), Not(ContainSubstring("goroutine")),
				Not(ContainSubstring(".go:")))))
			g.Expect(logged).To(MatchRegexp(`"stack":\["[^"]*workrunner.TestPanicIsLogged[^"]* \(workrunner/panic_test.go:\d+\)"`))
			g.Expect(logged).NotTo(Or(ContainSubstring(`\n`), ContainSubstring("callRecovering.func")))
			if test.wantDetails {
				g.Expect(logged).To(ContainSubstring(`"details":["",`))
			} else {
				g.Expect(logged).NotTo(ContainSubstring(`"details"`))
			}
		})
	}
}

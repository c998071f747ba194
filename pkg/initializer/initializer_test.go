// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func nothing(context.Context, *corev1.Namespace) (Result, error) { return Result{}, nil }

// newManager returns a manager that never sends requests to an API server.
func newManager(t *testing.T, skipNames *bool) manager.Manager {
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://localhost:1"}, ctrl.Options{
		Scheme: runtime.NewScheme(), Metrics: server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: skipNames},
	})
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

func TestAddValidates(t *testing.T) {
	const good = "wrong-use.corp.example.com"
	for name, test := range map[string]struct {
		name string
		fn   Func
		opts []Option
		want []string
	}{
		"no name":    {fn: nothing, want: []string{"the name of an initializer is required"}},
		"two parts":  {name: "limits.corp", fn: nothing, want: []string{"not fully qualified", "three dot-separated parts"}},
		"comma":      {name: "a.corp.com,b.corp.com", fn: nothing, want: []string{"contains a comma"}},
		"upper case": {name: "Limits.corp.com", fn: nothing, want: []string{"is not a DNS name"}},
		"too long": {
			name: strings.Repeat("a.", 127), fn: nothing, want: []string{"254 characters", "253"},
		},
		"no function": {name: good, want: []string{`initializer "wrong-use.corp.example.com": the function is nil`}},
		"no workers":  {name: good, fn: nothing, opts: []Option{WithWorkers(0)}, want: []string{"WithWorkers(0)", "at least 1"}},
		"no backoff": {
			name: good, fn: nothing, opts: []Option{WithBackoff(0, time.Second)}, want: []string{"WithBackoff(0s, 1s)"},
		},
		"a backoff whose maximum is below the first delay": {
			name: good, fn: nothing, opts: []Option{WithBackoff(time.Minute, time.Second)},
			want: []string{"WithBackoff(1m0s, 1s)", "must not exceed"},
		},
		"the finalizer kubernetes": {
			name: good, fn: nothing, opts: []Option{WithFinalizer("kubernetes")},
			want: []string{`finalizer "kubernetes"`, "namespace controller"},
		},
		"a finalizer without a domain": {
			name: good, fn: nothing, opts: []Option{WithFinalizer("index")}, want: []string{`finalizer "index"`, "no domain"},
		},
		"an empty finalizer": {
			name: good, fn: nothing, opts: []Option{WithFinalizer("")}, want: []string{`finalizer ""`},
		},
		"all errors are reported together": {
			name: "a", opts: []Option{WithWorkers(0)}, want: []string{"not fully qualified", "WithWorkers(0)", "the function is nil"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, mgr := NewWithT(t), newManager(t, nil)
			err := Add(mgr, test.name, test.fn, test.opts...)
			for _, want := range test.want {
				g.Expect(err).To(MatchError(ContainSubstring(want)))
				if test.fn != nil {
					g.Expect(Check(t.Context(), mgr.GetConfig(), test.name, test.opts...)).To(MatchError(ContainSubstring(want)))
				}
			}
		})
	}
}

// counter makes names unique in this process, even if tests are repeated.
var counter atomic.Int32

func TestAddWithoutAManager(t *testing.T) {
	NewWithT(t).Expect(Add(nil, "nowhere.corp.example.com", nothing)).To(MatchError(ContainSubstring("manager is nil")))
}

func TestAddTwice(t *testing.T) {
	g := NewWithT(t)
	name := fmt.Sprintf("twice-%d.corp.example.com", counter.Add(1))
	mgr := newManager(t, nil)
	g.Expect(Add(mgr, name, nothing)).To(Succeed())
	g.Expect(Add(mgr, "another."+name, nothing)).To(Succeed())
	g.Expect(Add(mgr, name, nothing)).To(MatchError(And(
		ContainSubstring("initializer "+name),
		ContainSubstring("SkipNameValidation"))))
	g.Expect(Add(newManager(t, ptr.To(true)), name, nothing)).To(Succeed())
}

func TestInvalidWatches(t *testing.T) {
	g := NewWithT(t)
	name := fmt.Sprintf("watch-%d.corp.example.com", counter.Add(1))
	for want, object := range map[string]client.Object{
		"failed to watch": nil, "has no kind": &metav1.PartialObjectMetadata{}, "no kind is registered": &corev1.ConfigMap{},
	} {
		g.Expect(Add(newManager(t, nil), name, nothing, WithWatch(object, nil))).To(MatchError(ContainSubstring(want)))
	}
	g.Expect(Add(newManager(t, nil), name, nothing)).To(Succeed(), "the name must not be taken")
}

func TestAllFindingsAreLogged(t *testing.T) {
	g := NewWithT(t)
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	logFindings(t.Context(), log, []error{nil, nil})
	g.Expect(lines).To(BeEmpty())
	logFindings(t.Context(), log, []error{&MissingPermissionsError{Message: "not allowed to patch"}, &NotRegisteredError{Name: "a.b.c"}})
	g.Expect(lines).To(HaveExactElements(ContainSubstring("not allowed to patch"), ContainSubstring(`initializer \"a.b.c\"`)))
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"io"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/pkg/initializer"
)

// newManager returns a manager that has not been started, and its log.
func newManager(restConfig *rest.Config) (ctrl.Manager, *gbytes.Buffer) {
	GinkgoHelper()
	said := gbytes.NewBuffer()
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Logger:  zap.New(zap.WriteTo(io.MultiWriter(GinkgoWriter, said)), zap.UseDevMode(true)),
		Metrics: metricsserver.Options{BindAddress: "0"},
		// The same controller name is used again if a spec is repeated.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	return mgr, said
}

// serve runs an initializer in its own manager until the end of the spec, and returns the log of
// the manager.
func serve(
	ctx context.Context, restConfig *rest.Config, name string, fn initializer.Func, options ...initializer.Option,
) *gbytes.Buffer {
	GinkgoHelper()
	mgr, said := newManager(restConfig)
	Expect(initializer.Add(mgr, name, fn, options...)).To(Succeed())
	run(ctx, mgr)
	return said
}

// run runs a manager until the end of the spec.
func run(ctx context.Context, mgr ctrl.Manager) {
	GinkgoHelper()
	runContext, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(runContext) }()
	DeferCleanup(func() {
		stop()
		Expect(<-done).To(Succeed())
	})
}

// calls records the calls of a function by namespace.
type calls struct {
	lock sync.Mutex
	uids map[string][]types.UID
}

// record counts a call and returns the number of calls for the namespace.
func (c *calls) record(namespace *corev1.Namespace) int {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.uids == nil {
		c.uids = map[string][]types.UID{}
	}
	c.uids[namespace.Name] = append(c.uids[namespace.Name], namespace.UID)
	return len(c.uids[namespace.Name])
}

// of returns the UIDs of the namespaces with the given name for which the function was called.
func (c *calls) of(name string) []types.UID {
	c.lock.Lock()
	defer c.lock.Unlock()
	return slices.Clone(c.uids[name])
}

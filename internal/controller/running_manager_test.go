// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func newTestManager(t *testing.T) *runningManager {
	t.Helper()
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(time.Minute),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return meta.NewDefaultRESTMapper(nil), nil
		},
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	running, err := newRunningManager(mgr)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return running
}

// With Add of the embedded manager, about one of ten rounds fails.
func TestRunningManagerStopsWhileRunnablesAreAdded(t *testing.T) {
	untilStopped := manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	for round := range 100 {
		g := NewWithT(t)
		mgr := newTestManager(t)
		ctx, stop := context.WithCancel(t.Context())
		added := make(chan int)
		go func() {
			<-mgr.Elected()
			time.AfterFunc(time.Duration(round)*time.Microsecond, stop)
			count := 0
			for mgr.Add(untilStopped) == nil {
				count++
			}
			added <- count
		}()
		g.Expect(mgr.Start(ctx)).To(Succeed())
		g.Eventually(added).Should(Receive())
	}
}

func TestRunningManagerFailsIfARunnableFails(t *testing.T) {
	mgr := newTestManager(t)
	go func() {
		_ = mgr.Add(manager.RunnableFunc(func(context.Context) error { return errors.New("broken") }))
	}()
	NewWithT(t).Expect(mgr.Start(t.Context())).To(MatchError("broken"))
}

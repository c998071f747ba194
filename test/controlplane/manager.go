// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/mutation"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

// Manager is a running manager.
type Manager struct {
	cancel context.CancelFunc
	done   chan error
}

// StartManager runs the manager as its own ServiceAccount until Stop is called. It returns when the
// manager's caches have synced.
func (c *ControlPlane) StartManager(ctx context.Context, changes ...func(*manager.Options)) (*Manager, error) {
	restConfig, err := c.ServiceAccountConfig(ctx, SystemNamespace, ServiceAccount)
	if err != nil {
		return nil, err
	}
	return RunManager(ctx, restConfig, changes...)
}

// RunManager is like StartManager, but authenticates with restConfig.
func RunManager(
	ctx context.Context, restConfig *rest.Config, changes ...func(*manager.Options),
) (*Manager, error) {
	options := manager.Options{SystemNamespace: SystemNamespace, NamespaceWorkers: 10, TemplateWorkers: 16,
		FinalizationWorkers: 250}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return nil, fmt.Errorf("failed to create a discovery client: %w", err)
	}
	for _, change := range changes {
		change(&options)
	}
	restConfig = rest.CopyConfig(restConfig)
	options.UseServerClock(restConfig)
	if options.Controllers.Runs(manager.Initialization) {
		// An API server can serve a CRD some time after the CRD is established.
		var preflightErr error
		if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				preflightErr = manager.Preflight(ctx, discoveryClient)
				return preflightErr == nil, nil
			}); err != nil {
			return nil, errors.Join(err, preflightErr)
		}
		if err := serveWebhooks(ctx, &options, discoveryClient); err != nil {
			return nil, err
		}
	}
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:                 scheme.New(),
		Cache:                  manager.CacheOptions(options.Controllers),
		NewClient:              nscache.NewClient,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		// The tests start several managers in one process.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("failed to create the manager: %w", err)
	}
	runContext, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if err := manager.Setup(runContext, mgr, options); err != nil {
		cancel()
		return nil, err
	}
	running := &Manager{cancel: cancel, done: make(chan error, 1)}
	go func() {
		running.done <- mgr.Start(runContext)
		close(running.done)
	}()

	syncContext, cancelSync := context.WithTimeout(ctx, 2*time.Minute)
	defer cancelSync()
	if !mgr.GetCache().WaitForCacheSync(syncContext) {
		return nil, errors.Join(errors.New("the manager's caches did not sync within 2 minutes"), running.Stop())
	}
	if options.Hold != nil && options.Hold.URL != "" {
		if err := waitForAddress(syncContext, mgr.GetAPIReader(), options.Hold.URL); err != nil {
			return nil, errors.Join(err, running.Stop())
		}
	}
	return running, nil
}

// waitForAddress waits until the API server no longer calls the webhooks at the address of an earlier manager. In a
// cluster, a Service has the address.
func waitForAddress(ctx context.Context, reader client.Reader, url string) error {
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		configuration := &admissionv1.MutatingWebhookConfiguration{}
		err := reader.Get(ctx, client.ObjectKey{Name: v1alpha1.InjectConfiguration}, configuration)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return true, nil
		}
		for _, webhook := range configuration.Webhooks {
			if len(webhook.Rules) > 0 && !strings.HasPrefix(ptr.Deref(webhook.ClientConfig.URL, ""), url+"/") {
				return false, err
			}
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the manager did not set the address of its webhooks: %w", err)
	}
	return nil
}

// serveWebhooks enables the webhooks if the API server requires them to inject the pending list.
func serveWebhooks(
	ctx context.Context, options *manager.Options, discoveryClient discovery.DiscoveryInterfaceWithContext,
) error {
	servesPolicies, err := mutation.ServesPolicies(ctx, discoveryClient)
	if err == nil && !servesPolicies && options.Hold == nil {
		options.Hold, err = HoldOptions()
	}
	return err
}

// Done returns a channel that receives the manager's error if it exits unexpectedly.
func (m *Manager) Done() <-chan error { return m.done }

// Stop stops the manager and waits until it exits.
func (m *Manager) Stop() error {
	m.cancel()
	return <-m.done
}

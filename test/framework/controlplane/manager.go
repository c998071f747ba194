// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/internal/admission/verify"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
)

// Manager is a running operator: one or two processes, which run as managers in this process.
type Manager struct {
	cancel context.CancelFunc
	done   chan error
}

// process is the configuration of one process of the operator.
type process struct {
	config  *rest.Config
	options manager.Options
	// admin gives the webhooks the address of the process.
	admin *rest.Config
	// lease is the name of the Lease that the process holds; empty without leader election.
	lease string
}

// StartManager runs the operator until Stop is called, as config/default does: the admission controller with its own
// ServiceAccount, and the other selected controllers with another one. It returns when the caches have synced.
func (c *ControlPlane) StartManager(ctx context.Context, changes ...func(*manager.Options)) (*Manager, error) {
	restConfig, err := c.ServiceAccountConfig(ctx, SystemNamespace, ServiceAccount)
	if err != nil {
		return nil, err
	}
	return c.StartManagerAs(ctx, restConfig, changes...)
}

// StartManagerAs is like StartManager, but the controllers except admission authenticate with the given configuration.
func (c *ControlPlane) StartManagerAs(
	ctx context.Context, restConfig *rest.Config, changes ...func(*manager.Options),
) (*Manager, error) {
	processes, err := c.processes(ctx, restConfig, changes...)
	if err != nil {
		return nil, err
	}
	return start(ctx, processes...)
}

// StartLeaders is like StartManager, with the leader election of config/default. Each process must become the leader.
func (c *ControlPlane) StartLeaders(ctx context.Context, changes ...func(*manager.Options)) (*Manager, error) {
	restConfig, err := c.ServiceAccountConfig(ctx, SystemNamespace, ServiceAccount)
	if err != nil {
		return nil, err
	}
	processes, err := c.processes(ctx, restConfig, changes...)
	if err != nil {
		return nil, err
	}
	for i := range processes {
		processes[i].lease = "nslifecycle.dev"
		if processes[i].options.Controllers.Runs(manager.Admission) {
			processes[i].lease = "admission.nslifecycle.dev"
		}
	}
	return start(ctx, processes...)
}

// processes returns the processes of config/default.
func (c *ControlPlane) processes(
	ctx context.Context, restConfig *rest.Config, changes ...func(*manager.Options),
) ([]process, error) {
	options := newOptions(changes...)
	main := options
	main.Controllers = manager.Controllers{}
	for _, name := range []string{
		manager.Initialization, manager.Templates, manager.Finalization, manager.Diagnosis,
	} {
		if options.Controllers.Runs(name) {
			main.Controllers[name] = true
		}
	}
	var processes []process
	if len(main.Controllers) > 0 {
		processes = append(processes, process{config: restConfig, options: main})
	}
	if options.Controllers.Runs(manager.Admission) || options.Controllers.Runs(manager.Initialization) {
		admission, err := c.admissionProcess(ctx, options)
		if err != nil {
			return nil, err
		}
		processes = append(processes, admission)
	}
	return processes, nil
}

// WithoutAdmission is the flag of the manager in config/default: the admission controller runs in another process.
const WithoutAdmission = "--controllers=*,-admission"

// StartAdmission runs only the admission controller, for tests that start other programs for the other controllers.
// Stop stops it before the control plane.
func (c *ControlPlane) StartAdmission(ctx context.Context, changes ...func(*manager.Options)) (*Manager, error) {
	admission, err := c.admissionProcess(ctx, newOptions(changes...))
	if err != nil {
		return nil, err
	}
	running, err := start(ctx, admission)
	if err == nil {
		c.admission = append(c.admission, running)
	}
	return running, err
}

// admissionProcess returns the process of the admission controller. It serves nothing.
func (c *ControlPlane) admissionProcess(ctx context.Context, options manager.Options) (process, error) {
	options.Controllers = manager.Controllers{manager.Admission: true}
	options.ProbeAddress, options.Metrics = "", manager.MetricsOptions{}
	restConfig, err := c.ServiceAccountConfig(ctx, SystemNamespace, AdmissionAccount)
	return process{config: restConfig, options: options, admin: c.Admin}, err
}

// RunManager runs all selected controllers with one configuration, as a process outside the cluster does.
func RunManager(
	ctx context.Context, restConfig *rest.Config, changes ...func(*manager.Options),
) (*Manager, error) {
	return start(ctx, process{config: restConfig, options: newOptions(changes...), admin: restConfig})
}

func newOptions(changes ...func(*manager.Options)) manager.Options {
	options := manager.Options{SystemNamespace: SystemNamespace, SourceNamespace: SourceNamespace}
	for _, change := range changes {
		change(&options)
	}
	return options
}

// start starts the processes. If one exits, it stops the others.
func start(ctx context.Context, processes ...process) (*Manager, error) {
	runContext, cancel := context.WithCancel(context.WithoutCancel(ctx))
	running := &Manager{cancel: cancel, done: make(chan error, 1)}
	isInjecting, err := prepare(ctx, processes)
	if err != nil {
		cancel()
		return nil, err
	}
	var managers []ctrl.Manager
	for i := range processes {
		if err := processes[i].setURL(ctx); err != nil {
			cancel()
			return nil, err
		}
		mgr, err := processes[i].setup(runContext)
		if err != nil {
			cancel()
			return nil, err
		}
		managers = append(managers, mgr)
	}
	go func() {
		var group errgroup.Group
		for _, mgr := range managers {
			group.Go(func() error {
				defer cancel()
				return mgr.Start(runContext)
			})
		}
		running.done <- group.Wait()
		close(running.done)
	}()

	syncContext, cancelSync := context.WithTimeout(ctx, 2*time.Minute)
	defer cancelSync()
	for _, mgr := range managers {
		if !mgr.GetCache().WaitForCacheSync(syncContext) {
			return nil, errors.Join(errors.New("the manager's caches did not sync within 2 minutes"), running.Stop())
		}
	}
	for _, mgr := range managers {
		select {
		case <-mgr.Elected():
		case <-syncContext.Done():
			return nil, errors.Join(errors.New("a manager did not become the leader within 2 minutes"), running.Stop())
		}
	}
	if isInjecting {
		if err := waitForWebhooks(syncContext, processes[len(processes)-1].admin); err != nil {
			return nil, errors.Join(fmt.Errorf("the webhooks did not answer within 2 minutes: %w", err), running.Stop())
		}
	}
	return running, nil
}

// waitForWebhooks waits until the API server can call the webhooks that inject.
func waitForWebhooks(ctx context.Context, admin *rest.Config) error {
	api, err := client.New(admin, client.Options{})
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
		return !apierrors.IsInternalError(api.Create(ctx, probe, client.DryRunAll)), nil
	})
}

// setup returns a manager that has not been started.
func (p *process) setup(ctx context.Context) (ctrl.Manager, error) {
	restConfig := rest.CopyConfig(p.config)
	p.options.UseServerClock(restConfig)
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:                 scheme.New(),
		Cache:                  manager.CacheOptions(p.options.Controllers),
		NewClient:              nscache.NewClient,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		LeaderElection:         p.lease != "", LeaderElectionID: p.lease, LeaderElectionNamespace: SystemNamespace,
		LeaderElectionReleaseOnCancel: true,
		// The tests start several managers in one process.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("failed to create the manager: %w", err)
	}
	return mgr, manager.Setup(ctx, mgr, p.options)
}

// setURL gives the webhooks the address of the process, so that the API server does not call an earlier one.
func (p *process) setURL(ctx context.Context) error {
	if !p.options.Controllers.Runs(manager.Admission) || p.options.Hold == nil || p.options.Hold.URL == "" {
		return nil
	}
	return setURL(ctx, p.admin, p.options.Hold.URL)
}

// prepare waits until the API server serves what the processes require. It enables the webhooks, and returns true, if
// the API server requires them to inject the pending list.
func prepare(ctx context.Context, processes []process) (isInjecting bool, err error) {
	first := &processes[0]
	controllers := first.options.Controllers
	if !controllers.Runs(manager.Initialization) && !controllers.Runs(manager.Admission) {
		return false, nil
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(first.config)
	if err != nil {
		return false, fmt.Errorf("failed to create a discovery client: %w", err)
	}
	// An API server can serve a CRD some time after the CRD is established.
	var preflightErr error
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			preflightErr = manager.Preflight(ctx, discoveryClient)
			return preflightErr == nil, nil
		}); err != nil {
		return false, errors.Join(err, preflightErr)
	}
	servesPolicies, err := verify.ServesMutating(ctx, discoveryClient)
	if err != nil || servesPolicies || first.options.Hold != nil {
		return false, err
	}
	holdOptions, err := HoldOptions()
	for i := range processes {
		processes[i].options.Hold = holdOptions
	}
	return true, err
}

// Done returns a channel that receives the manager's error if it exits unexpectedly.
func (m *Manager) Done() <-chan error { return m.done }

// Stop stops the manager and waits until it has exited.
func (m *Manager) Stop() error {
	m.cancel()
	return <-m.done
}

// HoldOptions returns options of hold webhooks that the API server reaches at a free port of this
// machine. The limits and the duration are the defaults of the manager's flags.
func HoldOptions() (*hold.Options, error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q has no port: %w", address, err)
	}
	return &hold.Options{
		Options:  webhooks.Options{Address: address, URL: "https://localhost:" + port, IsRotated: true},
		Duration: 10 * time.Second, Limits: hold.Limits{PerUser: 5, Total: 25},
	}, nil
}

// WaitForHold waits until the webhook configurations contain the given URL, the certificate and rules.
func (c *ControlPlane) WaitForHold(ctx context.Context, url string) error {
	api, err := client.New(c.Admin, client.Options{})
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	// A replica that is killed as the leader keeps the Lease for 15 s.
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			for _, configuration := range webhookConfigurations()[:2] {
				if err := api.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
					return false, err
				}
				for _, target := range targets(configuration) {
					if target.URL == nil || !strings.HasPrefix(*target.URL, url) || len(target.CABundle) == 0 {
						return false, nil
					}
				}
				if mutating, ok := configuration.(*admissionv1.MutatingWebhookConfiguration); ok && !hold.IsHolding(mutating) {
					return false, nil
				}
			}
			return true, nil
		})
}

// SetWebhookURL gives the installed webhooks a URL, as an administrator does for a manager outside the cluster: the
// operator may then change it.
func (c *ControlPlane) SetWebhookURL(ctx context.Context, base string) error {
	return setURL(ctx, c.Admin, base)
}

func setURL(ctx context.Context, admin *rest.Config, base string) error {
	api, err := client.New(admin, client.Options{})
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	for _, configuration := range webhookConfigurations() {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := api.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
				return err
			}
			for _, target := range targets(configuration) {
				webhooks.SetURL(target, base)
			}
			return api.Update(ctx, configuration)
		})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("failed to set the URL in %q: %w", configuration.GetName(), err)
		}
	}
	return nil
}

// webhookConfigurations returns the configurations in config/webhook, without their webhooks.
func webhookConfigurations() []client.Object {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	return []client.Object{
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: named(internalv1alpha1.HoldConfiguration)},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: named(internalv1alpha1.TemplatesConfiguration)},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: named(internalv1alpha1.InjectConfiguration)},
	}
}

// targets returns what the webhooks of a configuration call.
func targets(configuration client.Object) (targets []*admissionv1.WebhookClientConfig) {
	switch configuration := configuration.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			targets = append(targets, &configuration.Webhooks[i].ClientConfig)
		}
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			targets = append(targets, &configuration.Webhooks[i].ClientConfig)
		}
	}
	return targets
}

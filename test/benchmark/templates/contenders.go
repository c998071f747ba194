// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// contender is a controller that creates the objects in each namespace.
type contender interface {
	// install prepares the cluster.
	install(ctx context.Context, c *cluster) error
	// start starts the processes of the controller.
	start(ctx context.Context, c *cluster) ([]*service, error)
	// apply creates or updates the template, with a limit of Pods in the quota.
	apply(ctx context.Context, c *cluster, pods int, policy v1alpha1.TemplateWaitPolicy) error
}

const (
	// warmUpCount is the number of namespaces in succession that a contender must handle before the
	// measurements, each within warmUpTimeout.
	warmUpCount   = 3
	warmUpTimeout = 5 * time.Second
)

// The contenders.
const (
	bareClient    = "bare"
	kyvernoPeer   = "kyverno"
	raisedKyverno = "kyverno-raised"
	ours          = "nslifecycle"
)

// contenderNames contains all contenders in the order of the report.
var contenderNames = []string{bareClient, kyvernoPeer, raisedKyverno, ours}

// contenderTitles are the names of the contenders in the report.
var contenderTitles = map[string]string{
	bareClient: "Bare client", kyvernoPeer: "Kyverno", raisedKyverno: "Kyverno, raised limits", ours: "nslifecycle",
}

func newContender(name string, opts options) contender {
	switch name {
	case bareClient:
		return &bare{}
	case kyvernoPeer:
		return &kyverno{dir: opts.kyverno}
	case raisedKyverno:
		return &kyverno{dir: opts.kyverno, flags: []string{
			"--clientRateLimitQPS=1000", "--clientRateLimitBurst=2000", "--genWorkers=32",
		}}
	default:
		return &operator{}
	}
}

// turn is a contender on its own control plane.
type turn struct {
	*cluster
	name      string
	contender contender
	services  []*service
	pods      int
}

// startTurn starts a control plane and the contender, and waits until it has created the objects in
// a few namespaces.
func startTurn(ctx context.Context, name string, opts options) (*turn, error) {
	c, err := startCluster(ctx, opts.Fsync)
	if err != nil {
		return nil, err
	}
	t := &turn{cluster: c, name: name, contender: newContender(name, opts), pods: initialPods}
	if err := t.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("failed to start %s: %w%s", name, err, t.lastOutput()), t.stop())
	}
	return t, nil
}

func (t *turn) prepare(ctx context.Context) error {
	if err := t.contender.install(ctx, t.cluster); err != nil {
		return err
	}
	if err := t.restart(ctx); err != nil {
		return err
	}
	if err := t.contender.apply(ctx, t.cluster, t.pods, v1alpha1.WaitForApplied); err != nil {
		return err
	}
	return t.warmUp(ctx)
}

// restart starts the processes of the contender.
func (t *turn) restart(ctx context.Context) error {
	var err error
	t.services, err = t.contender.start(ctx, t.cluster)
	return err
}

// warmUp creates namespaces until the contender handles a few in succession.
func (t *turn) warmUp(ctx context.Context) error {
	inARow := 0
	return poll(ctx, "the objects in a new namespace", func(ctx context.Context) (bool, error) {
		names := t.nextNames(1)
		if err := t.createNamespace(ctx, names[0]); err != nil {
			return false, err
		}
		objects := t.observer.track((*state).isInitialized, names...)
		if err := t.observer.wait(ctx, objects, warmUpTimeout); err != nil {
			return false, err
		}
		inARow++
		if len(objects.met) == 0 {
			inARow = 0
		}
		return inARow == warmUpCount, nil
	})
}

// stopServices stops the processes of the contender.
func (t *turn) stopServices() error {
	var errs []error
	for _, s := range t.services {
		errs = append(errs, s.stop())
	}
	t.services = nil
	return errors.Join(errs...)
}

func (t *turn) stop() error { return errors.Join(t.stopServices(), t.cluster.stop()) }

func (t *turn) lastOutput() string {
	var out string
	for _, s := range t.services {
		out += "; last output: " + s.lastOutput()
	}
	return out
}

// usage returns the sum of the processes.
func (t *turn) usage() (usage, error) {
	var sum usage
	for _, s := range t.services {
		one, err := s.usage()
		if err != nil {
			return usage{}, err
		}
		sum.cpu, sum.memory, sum.restarts = sum.cpu+one.cpu, sum.memory+one.memory, sum.restarts+one.restarts
	}
	return sum, nil
}

// operator is nslifecycle with a NamespaceTemplate.
type operator struct{}

// install also grants what the administrator of a template grants: the template's ServiceAccount can
// write the objects, and the manager can impersonate it.
func (*operator) install(ctx context.Context, c *cluster) error {
	if err := c.Install(ctx); err != nil {
		return err
	}
	if err := c.AggregateClusterRoles(ctx); err != nil {
		return err
	}
	if err := c.createServiceAccount(ctx, controlplane.SystemNamespace, objectName,
		append(makeRules("create", "patch", "get", "list", "delete"), rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbProvision},
		})...); err != nil {
		return err
	}
	manager := rbacv1.Subject{
		Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: controlplane.ServiceAccount,
	}
	return c.grant(ctx, manager, "bench-impersonate", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{objectName},
		Verbs: []string{"impersonate"},
	})
}

func (*operator) start(ctx context.Context, c *cluster) ([]*service, error) {
	if _, err := c.StartAdmission(ctx); err != nil {
		return nil, err
	}
	s, err := startService(ctx, func(ctx context.Context) (*harness.Process, error) { return c.StartManager(ctx) })
	if err != nil {
		return nil, err
	}
	return []*service{s}, nil
}

// apply repeats the request, since the API server rejects it until the manager has started.
func (*operator) apply(ctx context.Context, c *cluster, pods int, policy v1alpha1.TemplateWaitPolicy) error {
	spec, err := makeTemplate(pods, policy)
	if err != nil {
		return err
	}
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: objectName}}
	return poll(ctx, "the NamespaceTemplate", func(ctx context.Context) (bool, error) {
		_, err := controllerutil.CreateOrUpdate(ctx, c.admin, template, func() error {
			template.Spec = spec
			return nil
		})
		return err == nil, err
	})
}

// The delays after which a kubelet restarts a container that exits.
const (
	firstRestartDelay = 10 * time.Second
	maxRestartDelay   = 5 * time.Minute
)

// service is a controller that is restarted when it exits, as by a kubelet.
type service struct {
	start  func(context.Context) (*harness.Process, error)
	cancel context.CancelFunc
	done   chan struct{}

	lock      sync.Mutex
	processes []*harness.Process
	err       error
}

func startService(ctx context.Context, start func(context.Context) (*harness.Process, error)) (*service, error) {
	ctx, cancel := context.WithCancel(ctx)
	first, err := start(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &service{start: start, cancel: cancel, done: make(chan struct{}), processes: []*harness.Process{first}}
	go s.restart(ctx, first)
	return s, nil
}

// restart restarts the process at once when it exits for the first time, and then with increasing
// delays.
func (s *service) restart(ctx context.Context, process *harness.Process) {
	defer close(s.done)
	delay := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-process.Exited():
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		delay = min(max(2*delay, firstRestartDelay), maxRestartDelay)
		next, err := s.start(ctx)
		s.lock.Lock()
		if err != nil {
			s.err = err
			s.lock.Unlock()
			return
		}
		s.processes = append(s.processes, next)
		s.lock.Unlock()
		process = next
	}
}

// stop stops the process. Errors of processes that have exited before are ignored.
func (s *service) stop() error {
	s.cancel()
	<-s.done
	s.lock.Lock()
	defer s.lock.Unlock()
	last := s.processes[len(s.processes)-1]
	select {
	case <-last.Exited():
		return s.err
	default:
		return errors.Join(s.err, last.Stop())
	}
}

// lastOutput returns the end of the log of the last process.
func (s *service) lastOutput() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.processes[len(s.processes)-1].LastOutput()
}

// usage is what the processes of a contender have used so far.
type usage struct {
	cpu      time.Duration
	memory   int64
	restarts int
}

func (s *service) usage() (usage, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	result := usage{restarts: len(s.processes) - 1}
	for _, process := range s.processes {
		cpu, _, cpuErr := process.CPU()
		memory, _, memoryErr := process.PeakMemory()
		if err := errors.Join(cpuErr, memoryErr); err != nil {
			return usage{}, err
		}
		result.cpu += cpu
		result.memory = max(result.memory, memory)
	}
	return result, s.err
}

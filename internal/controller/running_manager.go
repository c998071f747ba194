// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// runningManager is a manager to which a reconciler can add runnables, which then run on the leader. A manager of
// controller-runtime blocks, until its grace period has passed, if it gets two runnables in the moment in which it
// stops: the second call of Add waits for a loop that starts runnables, the loop waits until the group has stopped, and
// this waits for Add.
type runningManager struct {
	ctrl.Manager
	added   chan manager.Runnable
	stopped chan struct{}
}

func newRunningManager(mgr ctrl.Manager) (*runningManager, error) {
	m := &runningManager{Manager: mgr, added: make(chan manager.Runnable), stopped: make(chan struct{})}
	return m, mgr.Add(manager.RunnableFunc(m.run))
}

// run runs what is added, until one of it fails or the manager stops.
func (m *runningManager) run(ctx context.Context) error {
	defer close(m.stopped)
	running, ctx := errgroup.WithContext(ctx)
	for {
		select {
		case runnable := <-m.added:
			running.Go(func() error { return runnable.Start(ctx) })
		case <-ctx.Done():
			return running.Wait()
		}
	}
}

// Add implements manager.Manager. It waits until the manager runs.
func (m *runningManager) Add(runnable manager.Runnable) error {
	select {
	case m.added <- runnable:
		return nil
	case <-m.stopped:
		return errors.New("the manager stops")
	}
}

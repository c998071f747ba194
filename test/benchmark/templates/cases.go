// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

const (
	// singleTimeout is the maximum time for the objects of a single namespace or for the repair of an
	// object.
	singleTimeout = 15 * time.Second
	// retryDelay is the time between the requests of an early writer that is rejected.
	retryDelay = time.Millisecond
	// foreignPods is the limit of Pods that another client writes.
	foreignPods = 7
)

// measureSingle creates namespaces one by one.
func (t *turn) measureSingle(ctx context.Context, opts options, r *results) error {
	for range opts.single {
		name := t.nextNames(1)[0]
		complete, initialized := t.observer.track((*state).isComplete, name), t.observer.track((*state).isInitialized, name)
		began := time.Now()
		if err := t.createNamespace(ctx, name); err != nil {
			return err
		}
		if err := errors.Join(t.observer.wait(ctx, complete, singleTimeout),
			t.observer.wait(ctx, initialized, singleTimeout)); err != nil {
			return err
		}
		if len(initialized.met) == 0 {
			r.missing++
			continue
		}
		r.complete = append(r.complete, complete.last.Sub(began))
		r.initialized = append(r.initialized, initialized.last.Sub(began))
	}
	return nil
}

// measureEnforced is like measureSingle, with a kube-controller-manager that makes quotas effective.
// nslifecycle waits for it.
func (t *turn) measureEnforced(ctx context.Context, opts options, r *results) (err error) {
	manager, err := t.StartControllerManager(ctx, "--controllers=resourcequota-controller")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Stop()) }()
	if err := t.contender.apply(ctx, t.cluster, t.pods, v1alpha1.WaitForEffective); err != nil {
		return err
	}
	for i := range opts.single + warmUpCount {
		name := t.nextNames(1)[0]
		enforced := t.observer.track((*state).isEnforced, name)
		began := time.Now()
		if err := t.createNamespace(ctx, name); err != nil {
			return err
		}
		timeout := singleTimeout
		if i == 0 {
			timeout = setUpTimeout // kube-controller-manager starts.
		}
		if err := t.observer.wait(ctx, enforced, timeout); err != nil {
			return err
		}
		switch {
		case i < warmUpCount:
		case len(enforced.met) == 0:
			r.missing++
		default:
			r.enforced = append(r.enforced, enforced.last.Sub(began))
		}
	}
	return nil
}

// measureRestored deletes an object in one half of the namespaces and modifies one in the other.
func (t *turn) measureRestored(ctx context.Context, opts options, r *results) error {
	if t.name == bareClient { // It repairs nothing.
		return nil
	}
	names, err := t.complete(ctx, opts, 2*opts.restored)
	if err != nil {
		return err
	}
	for i, name := range names {
		before := t.observer.get(name)
		restored := t.observer.track(func(s *state) bool {
			if i%2 == 0 {
				return s.objects[networkPolicy].exists && s.objects[networkPolicy].uid != before.objects[networkPolicy].uid
			}
			return s.pods == before.pods && s.objects[resourceQuota].version > before.objects[resourceQuota].version
		}, name)
		meta := metav1.ObjectMeta{Namespace: name, Name: objectName}
		began := time.Now()
		if i%2 == 0 {
			err = t.admin.Delete(ctx, &networkingv1.NetworkPolicy{ObjectMeta: meta})
		} else {
			patch := fmt.Sprintf(`{"spec":{"hard":{"pods":"%d"}}}`, foreignPods)
			err = t.admin.Patch(ctx, &corev1.ResourceQuota{ObjectMeta: meta},
				client.RawPatch(types.MergePatchType, []byte(patch)))
		}
		if err := errors.Join(err, t.observer.wait(ctx, restored, singleTimeout)); err != nil {
			return fmt.Errorf("failed to change an object: %w", err)
		}
		took := restored.last.Sub(began)
		switch {
		case len(restored.met) == 0:
			r.notRestored++
		case i%2 == 0:
			r.deleted = append(r.deleted, took)
		default:
			r.modified = append(r.modified, took)
		}
	}
	return nil
}

// complete creates namespaces and returns the names of those that get the objects.
func (t *turn) complete(ctx context.Context, opts options, count int) ([]string, error) {
	names := t.nextNames(count)
	initialized := t.observer.track((*state).isInitialized, names...)
	if err := t.createNamespaces(ctx, names, opts.clients); err != nil {
		return nil, err
	}
	if err := t.observer.wait(ctx, initialized, opts.stall); err != nil {
		return nil, err
	}
	if len(initialized.met) < len(names) {
		return nil, fmt.Errorf("%d of %d namespaces got their objects", len(initialized.met), len(names))
	}
	return names, t.calm(ctx)
}

// measureEarly writes to namespaces from the moment of their creation.
func (t *turn) measureEarly(ctx context.Context, opts options, r *results) error {
	for _, writers := range writerCounts {
		for range opts.early {
			admitted, err := t.writeEarly(ctx, writers)
			if err != nil {
				return err
			}
			r.early[writers] = append(r.early[writers], admitted)
		}
	}
	return nil
}

// writeEarly creates a namespace, and ConfigMaps in it until it has its objects. It returns the
// number of ConfigMaps with a resourceVersion that precedes the quota's or the NetworkPolicy's.
func (t *turn) writeEarly(ctx context.Context, writers int) (int, error) {
	name := t.nextNames(1)[0]
	complete := t.observer.track((*state).isInitialized, name)
	if err := t.createNamespace(ctx, name); err != nil {
		return 0, err
	}
	writeContext, stop := context.WithCancel(ctx)
	versions, errs := make([][]uint64, writers), make([]error, writers)
	var running sync.WaitGroup
	for i := range writers {
		running.Go(func() { versions[i], errs[i] = t.write(ctx, writeContext.Done(), name) })
	}
	err := t.observer.wait(ctx, complete, singleTimeout)
	stop()
	running.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return 0, err
	}
	if len(complete.met) == 0 {
		return 0, fmt.Errorf("namespace %q did not get its objects", name)
	}
	s := t.observer.get(name)
	admitted := 0
	for _, one := range versions {
		for _, version := range one {
			if version < max(s.objects[resourceQuota].created, s.objects[networkPolicy].created) {
				admitted++
			}
		}
	}
	return admitted, nil
}

// write creates ConfigMaps until it is stopped, and returns their resourceVersions.
func (t *turn) write(ctx context.Context, stopped <-chan struct{}, namespace string) ([]uint64, error) {
	var versions []uint64
	for {
		select {
		case <-stopped:
			return versions, nil
		default:
		}
		created, err := t.user.CoreV1().ConfigMaps(namespace).Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "early-"}}, metav1.CreateOptions{})
		switch {
		case err == nil:
			versions = append(versions, versionOf(created))
		case apierrors.IsForbidden(err) || apierrors.IsTooManyRequests(err):
			if err := harness.Sleep(ctx, retryDelay); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("failed to write to namespace %q: %w", namespace, err)
		}
	}
}

// measureChanged changes the quota of the template, and creates namespaces until all older
// namespaces have the new quota.
func (t *turn) measureChanged(ctx context.Context, opts options, r *results) error {
	if _, err := t.complete(ctx, opts, max(0, opts.changed-t.created)); err != nil {
		return err
	}
	names := slices.DeleteFunc(namesUntil(t.created), func(name string) bool {
		s := t.observer.get(name)
		return !s.isInitialized() // created before the controller was ready
	})
	t.pods++
	pods := int64(t.pods)
	updated := t.observer.track(func(s *state) bool { return s.pods == pods }, names...)
	began := time.Now()
	if err := t.contender.apply(ctx, t.cluster, t.pods, v1alpha1.WaitForApplied); err != nil {
		return err
	}
	probeContext, stop := context.WithCancel(ctx)
	meanwhile, probed := &results{}, make(chan error, 1)
	go func() {
		var err error
		for err == nil && probeContext.Err() == nil {
			err = t.measureSingle(probeContext, options{single: 1}, meanwhile)
		}
		if probeContext.Err() != nil {
			err = nil
		}
		probed <- err
	}()
	err := t.observer.wait(ctx, updated, opts.stall)
	stop()
	r.changes = append(r.changes, change{
		total: len(names), updated: len(updated.met), took: max(0, updated.last.Sub(began)),
		initialized: meanwhile.initialized,
	})
	return errors.Join(err, <-probed)
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// changes notifies held writes of events of their Namespace.
type changes struct {
	lock sync.Mutex
	// byName contains a channel for each Namespace that a write has waited for since its last event.
	byName map[string]chan struct{}
}

// next returns a channel that is closed at the next event of a Namespace. Call it before reading the
// Namespace from the cache, so that no event is missed.
func (c *changes) next(name string) <-chan struct{} {
	c.lock.Lock()
	defer c.lock.Unlock()
	changed, ok := c.byName[name]
	if !ok {
		changed = make(chan struct{})
		if c.byName == nil {
			c.byName = map[string]chan struct{}{}
		}
		c.byName[name] = changed
	}
	return changed
}

func (c *changes) notify(name string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if changed, ok := c.byName[name]; ok {
		close(changed)
		delete(c.byName, name)
	}
}

// watch notifies held writes of every event that the Namespace informer receives. It runs on every
// replica.
func (c *changes) watch(ctx context.Context, informers cache.Informers) error {
	informer, err := informers.GetInformer(ctx, &corev1.Namespace{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("failed to start the informer of namespaces: %w", err)
	}
	notify := func(object any) {
		if name, err := toolscache.DeletionHandlingObjectToName(object); err == nil {
			c.notify(name.Name)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    notify,
		UpdateFunc: func(_, object any) { notify(object) },
		DeleteFunc: notify,
	})
	return err
}

// watchEnforcement keeps isAudited up to date. Without the effective set, writes are held.
func (h *Holder) watchEnforcement(ctx context.Context, informers cache.Informers) error {
	informer, err := informers.GetInformer(ctx, &internalv1alpha1.NamespaceInitializerSet{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("failed to start the informer of NamespaceInitializerSets: %w", err)
	}
	set := func(object any) {
		set, ok := object.(*internalv1alpha1.NamespaceInitializerSet)
		h.isAudited.Store(ok && set.Status.Enforcement == internalv1alpha1.EnforcementAudit)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, object any) { set(object) },
		DeleteFunc: func(any) { h.isAudited.Store(false) },
	})
	return err
}

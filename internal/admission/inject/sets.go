// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"context"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// sets provides the current effective set.
type sets struct {
	lock    sync.Mutex
	current *internalv1alpha1.NamespaceInitializerSet
	// changed is closed at the next change.
	changed chan struct{}
}

func newSets() *sets { return &sets{changed: make(chan struct{})} }

// watch stores the set when its informer observes a change. Other readers of the informer share the object.
func (s *sets) watch(ctx context.Context, informers cache.Informers) error {
	informer, err := informers.GetInformer(ctx, &internalv1alpha1.NamespaceInitializerSet{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("failed to start the informer of NamespaceInitializerSets: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    s.set,
		UpdateFunc: func(_, object any) { s.set(object) },
		DeleteFunc: func(any) { s.store(nil) },
	})
	return err
}

func (s *sets) set(object any) {
	if set, ok := object.(*internalv1alpha1.NamespaceInitializerSet); ok && set.Name == internalv1alpha1.EffectiveSetName {
		s.store(set)
	}
}

func (s *sets) store(set *internalv1alpha1.NamespaceInitializerSet) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.current = set
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait returns the set when it has at least a generation. No set has generation 0.
func (s *sets) wait(ctx context.Context, generation int64) (*internalv1alpha1.NamespaceInitializerSet, error) {
	ctx, cancel := context.WithTimeout(ctx, setTimeout)
	defer cancel()
	for {
		s.lock.Lock()
		set, changed := s.current, s.changed
		s.lock.Unlock()
		if set != nil && set.Generation >= generation || set == nil && generation == 0 {
			return set, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("failed to wait for generation %d of NamespaceInitializerSet %q: %w",
				generation, internalv1alpha1.EffectiveSetName, ctx.Err())
		}
	}
}

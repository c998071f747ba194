// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cacheCheck determines whether a cache contains all objects that the API server has returned since this manager became
// the leader. Before that, the previous leader may have observed more.
type cacheCheck struct {
	mutex      sync.Mutex
	wasCurrent bool
}

// isCurrent compares the cache with the API server until it is current. The lists are empty.
func (c *cacheCheck) isCurrent(
	ctx context.Context, cached, live client.Reader, lists ...client.ObjectList,
) (bool, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.wasCurrent {
		return true, nil
	}
	for _, list := range lists {
		isCurrent, err := isCacheCurrent(ctx, cached, live, list)
		if !isCurrent || err != nil {
			return false, err
		}
	}
	c.wasCurrent = true
	return true, nil
}

func isCacheCurrent(ctx context.Context, cached, live client.Reader, want client.ObjectList) (bool, error) {
	// The order matters: the cache must be at least as recent as the response.
	got := want.DeepCopyObject().(client.ObjectList)
	if err := live.List(ctx, want); err != nil {
		return false, fmt.Errorf("failed to read %T from the API server: %w", want, err)
	}
	if err := cached.List(ctx, got, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("failed to read %T from the cache: %w", want, err)
	}
	observed, err := generationsOf(got)
	if err != nil {
		return false, err
	}
	wanted, err := generationsOf(want)
	for uid, generation := range wanted {
		if observed[uid] < generation {
			return false, err
		}
	}
	return err == nil, err
}

func generationsOf(list client.ObjectList) (map[types.UID]int64, error) {
	generations := map[types.UID]int64{}
	return generations, meta.EachListItem(list, func(item runtime.Object) error {
		object, err := meta.Accessor(item)
		if err == nil {
			generations[object.GetUID()] = object.GetGeneration()
		}
		return err
	})
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errOutdated is a conflict, so that the reconciliation is repeated and not reported as an error.
var errOutdated = apierrors.NewConflict(schema.GroupResource{}, "cache", errors.New("the cache lacks changes"))

// cacheCheck verifies that a cache contains all objects that the API server has returned since this manager became
// the leader. Before that, the previous leader may have observed more.
type cacheCheck struct {
	mutex     sync.Mutex
	isCurrent bool
}

// verify compares the cache with the API server until it is current, and returns errOutdated before that. The lists
// are empty.
func (c *cacheCheck) verify(ctx context.Context, cached, live client.Reader, lists ...client.ObjectList) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.isCurrent {
		return nil
	}
	for _, list := range lists {
		if err := compareCache(ctx, cached, live, list); err != nil {
			return err
		}
	}
	c.isCurrent = true
	return nil
}

func compareCache(ctx context.Context, cached, live client.Reader, want client.ObjectList) error {
	// The order matters: the cache must be at least as recent as the response.
	got := want.DeepCopyObject().(client.ObjectList)
	if err := live.List(ctx, want); err != nil {
		return fmt.Errorf("failed to read %T from the API server: %w", want, err)
	}
	if err := cached.List(ctx, got, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("failed to read %T from the cache: %w", want, err)
	}
	observed, err := generationsOf(got)
	if err != nil {
		return err
	}
	wanted, err := generationsOf(want)
	for uid, generation := range wanted {
		if observed[uid] < generation {
			return errOutdated
		}
	}
	return err
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

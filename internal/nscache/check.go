// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nscache

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is the number of objects in a page that IsCurrent reads from the API server.
const pageSize = 50

// Check verifies that a cache contains all objects that the API server has returned since this manager became the
// leader. Before that, the previous leader may have observed more.
type Check struct {
	mutex     sync.Mutex
	isCurrent bool
}

// IsCurrent compares the cache with the API server until it is current. The cache must contain each object whose
// version is positive, with this version or a later one. IsCurrent never keeps more than one page of a list, which is
// empty.
func (c *Check) IsCurrent(
	ctx context.Context, cached, live client.Reader, version func(client.Object) int64, lists ...client.ObjectList,
) (bool, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, list := range lists {
		if c.isCurrent {
			break
		}
		if isCurrent, err := compare(ctx, cached, live, version, list); err != nil || !isCurrent {
			return false, err
		}
	}
	c.isCurrent = true
	return true, nil
}

func compare(
	ctx context.Context, cached, live client.Reader, version func(client.Object) int64, list client.ObjectList,
) (bool, error) {
	// The order matters: the cache must be at least as recent as the response.
	got := list.DeepCopyObject().(client.ObjectList)
	wanted, observed := map[types.UID]int64{}, map[types.UID]int64{}
	for isFirst := true; isFirst || list.GetContinue() != ""; isFirst = false {
		if err := live.List(ctx, list, client.Limit(pageSize), client.Continue(list.GetContinue())); err != nil {
			return false, fmt.Errorf("failed to read %T from the API server: %w", list, err)
		}
		if err := addVersions(list, version, wanted); err != nil {
			return false, err
		}
	}
	if err := cached.List(ctx, got, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("failed to read %T from the cache: %w", got, err)
	}
	if err := addVersions(got, version, observed); err != nil {
		return false, err
	}
	for uid, version := range wanted {
		if observed[uid] < version {
			return false, nil
		}
	}
	return true, nil
}

func addVersions(list client.ObjectList, version func(client.Object) int64, versions map[types.UID]int64) error {
	return meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("failed to read an object of type %T", item)
		}
		versions[object.GetUID()] = version(object)
		return nil
	})
}

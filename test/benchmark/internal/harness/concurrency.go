// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// Parallel is the number of concurrent requests of InParallel.
const Parallel = 32

// InParallel calls the function do for each number from 0 to count-1, concurrently.
func InParallel(ctx context.Context, count int, do func(ctx context.Context, i int) error) error {
	return InParallelWithLimit(ctx, Parallel, count, do)
}

// InParallelWithLimit is like InParallel with another number of concurrent requests.
func InParallelWithLimit(ctx context.Context, limit, count int, do func(ctx context.Context, i int) error) error {
	group, groupContext := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for i := range count {
		group.Go(func() error { return do(groupContext, i) })
	}
	return group.Wait()
}

// Sleep waits until the duration has passed or the context is canceled.
func Sleep(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// syncTimeout is how long the readiness probe waits for the caches.
const syncTimeout = 500 * time.Millisecond

// addProbes adds a liveness probe, and a readiness probe that succeeds when the caches have synced.
// It starts the informers itself, because reconcilers run only in the leader, but standby managers
// also need synced caches.
func addProbes(ctx context.Context, mgr ctrl.Manager, objects []client.Object) error {
	for _, object := range objects {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("failed to start the informer for %T: %w", object, err)
		}
	}
	synced := func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), syncTimeout)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New(msgCachesNotSynced)
		}
		return nil
	}
	return errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", synced))
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nslifecycle/nslifecycle/internal/limitedhttp"
)

// syncTimeout is how long the readiness probe waits for the caches.
const syncTimeout = 500 * time.Millisecond

// shutdownTimeout limits the time for the last responses of a server.
const shutdownTimeout = 5 * time.Second

// disabledAddress is the address of a server that is disabled.
const disabledAddress = "0"

// addProbes serves a liveness probe, and a readiness probe that succeeds when the caches have synced and the other
// checks succeed. It starts the informers itself, because reconcilers run only in the leader, but standby managers
// also need synced caches.
func addProbes(
	ctx context.Context, mgr ctrl.Manager, address string, objects []client.Object, ready map[string]healthz.Checker,
) error {
	for _, object := range objects {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("failed to start the informer for %T: %w", object, err)
		}
	}
	if address == "" || address == disabledAddress {
		return nil
	}
	ready["caches"] = func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), syncTimeout)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New(messageCachesNotSynced)
		}
		return nil
	}
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{"/healthz": {"ping": healthz.Ping}, "/readyz": ready} {
		probe := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, probe)
		mux.Handle(path+"/", probe)
	}
	return addServer(ctx, mgr, "health probe", address, nil, mux)
}

// addServer adds a server for peers that are not authenticated, which starts first.
func addServer(
	ctx context.Context, mgr ctrl.Manager, name, address string, config *tls.Config, handler http.Handler,
) error {
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("failed to listen at %s: %w", address, err)
	}
	return mgr.Add(&ctrlmanager.Server{
		Name: name, Server: limitedhttp.NewServer(handler), Listener: limitedhttp.Limit(tcp, config),
		ShutdownTimeout: ptr.To(shutdownTimeout),
	})
}

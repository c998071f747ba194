// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manager runs the controllers of nslifecycle for one cluster.
//
// The exit status is 3 if no cluster is configured, so that callers can distinguish this error. It
// is 1 for other errors.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/pflag"
	"k8s.io/client-go/discovery"

	// Authentication plugins for kubeconfigs of managed clusters.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/version"
)

// exitNoCluster is the exit status if no cluster is configured.
const exitNoCluster = 3

// noCluster is the error message if the manager has neither a kubeconfig nor the ServiceAccount of
// a Pod.
const noCluster = "no cluster is configured: set KUBECONFIG or --kubeconfig, " +
	"or run in a Pod; to try nslifecycle without a cluster, run: make demo"

// noWebhooks is logged if the webhooks are disabled.
const noWebhooks = "The manager serves no webhooks, so the gate policy rejects early writes, and namespaces are " +
	"initialized only if the API server serves MutatingAdmissionPolicy v1; to serve them, set --webhook-bind-address, " +
	"and --webhook-url if the API server cannot reach Services"

func main() {
	// A user reads about invalid flags and a missing cluster: they are printed instead of logged.
	opts, err := parseOptions(os.Args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case opts.isVersion:
		fmt.Printf("manager %s\n", version.Read())
		return
	}
	restConfig, err := config.GetConfig()
	if clientcmd.IsEmptyConfig(err) {
		fmt.Fprintln(os.Stderr, noCluster)
		os.Exit(exitNoCluster)
	}
	ctrl.SetLogger(opts.logger)
	if err != nil {
		err = fmt.Errorf("failed to load the kubeconfig: %w", err)
	} else {
		err = run(restConfig, opts)
	}
	switch {
	case err != nil && opts.isCheck:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case err != nil:
		ctrl.Log.WithName("setup").Error(err, "Manager exited")
		os.Exit(1)
	}
}

// gcPercent is the default of GOGC. Most of the heap are caches: with the default of Go, 100, the process needs twice
// their size.
const gcPercent = 50

func run(restConfig *rest.Config, opts *options) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx := ctrl.SetupSignalHandler()
	if err := opts.preflight(ctx, restConfig); err != nil {
		return err
	}
	if opts.isCheck {
		return check(ctx, restConfig, opts, os.Stdout)
	}
	// API Priority and Fairness limits requests. A client-side limit only delays them and does not reduce their number
	// (docs/benchmarks.md).
	restConfig.QPS = -1
	opts.UseServerClock(restConfig)
	log := ctrl.Log.WithName("setup")
	if opts.Controllers.Runs(manager.Initialization) && !opts.Hold.IsServed() {
		log.Info(noWebhooks)
	}
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:    scheme.New(),
		Cache:     manager.CacheOptions(opts.Controllers),
		NewClient: nscache.NewClient,
		// The servers of controller-runtime accept any number of connections.
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:        "0",
		LeaderElection:                opts.leaderElect,
		LeaderElectionID:              opts.leaseName,
		LeaderElectionNamespace:       opts.SystemNamespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("failed to create the manager: %w", err)
	}
	if err := manager.Setup(ctx, mgr, opts.Options); err != nil {
		return err
	}
	log.Info("Starting manager", "version", version.Read().Version, "apiServer", restConfig.Host,
		"systemNamespace", opts.SystemNamespace, "controllers", opts.Controllers.String(),
		"namespaceFinalizer", opts.NamespaceFinalizer)
	return mgr.Start(ctx)
}

// preflight returns an error if the initialization or admission controllers run and the API server does not meet their
// requirements.
func (o *options) preflight(ctx context.Context, restConfig *rest.Config) error {
	if !o.Controllers.Runs(manager.Initialization) && !o.Controllers.Runs(manager.Admission) {
		return nil
	}
	client, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("failed to create a client for %s: %w", restConfig.Host, err)
	}
	return manager.Preflight(ctx, client)
}

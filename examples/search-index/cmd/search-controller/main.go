// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command search-controller creates an index for each new Namespace, and deletes it with the
// Namespace.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/examples/search-index/controller"
	"github.com/nslifecycle/nslifecycle/examples/search-index/indexclient"
)

type options struct {
	server         string
	timeout        time.Duration
	leaderElect    bool
	leaseNamespace string
	probeAddress   string
}

func main() {
	var opts options
	flag.StringVar(&opts.server, "index-server", "http://localhost:8080", "The URL of the index server.")
	flag.DurationVar(&opts.timeout, "index-timeout", 5*time.Second, "The timeout of each request to the index server.")
	flag.BoolVar(&opts.leaderElect, "leader-elect", false, "Enable leader election.")
	flag.StringVar(&opts.leaseNamespace, "leader-election-namespace", "",
		"The namespace of the leader election Lease. The default is the namespace of the Pod.")
	flag.StringVar(&opts.probeAddress, "health-probe-bind-address", "0",
		"The address of the health probes; 0 disables them.")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	klog.SetLogger(ctrl.Log.WithName("client-go"))
	if err := run(opts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(opts options) error {
	indices, err := indexclient.New(opts.server, opts.timeout)
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("failed to load the kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return fmt.Errorf("failed to add the Kubernetes types to the scheme: %w", err)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Cache:   cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: opts.probeAddress,
		LeaderElection: opts.leaderElect, LeaderElectionID: controller.InitializerName,
		LeaderElectionNamespace: opts.leaseNamespace, LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("failed to create the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := controller.Setup(mgr, indices); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

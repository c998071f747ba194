// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manager runs the reconcilers of nslifecycle against one cluster.
//
// It exits with status 3 where no cluster is configured at all, so that a caller can
// tell that from a failure, and with 1 on any other error.
package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery"

	// Kubeconfigs of managed clusters name these ways of authentication.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/internal/compat"
	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/version"
)

// exitNoCluster is the exit status where no cluster is configured.
const exitNoCluster = 3

const defaultSystemNamespace = "nslifecycle-system"

// noCluster is said where there is neither a kubeconfig nor a Pod's ServiceAccount.
const noCluster = "no cluster is configured: set KUBECONFIG or --kubeconfig, " +
	"or run in a Pod; to try nslifecycle without a cluster, run: make demo"

type options struct {
	metricsAddress      string
	metricsSecure       bool
	metricsCertDir      string
	probeAddress        string
	leaderElect         bool
	enableHTTP2         bool
	qps                 float64
	burst               int
	systemNamespace     string
	namespaceWorkers    int
	finalizationWorkers int
	leaseName           string
	controllers         string
	finalizerToken      string
	settlingTime        string
	diagnosisPatience   time.Duration
	diagnosisWorkers    int
	isExpiryDryRun      bool
	isCheck             bool
	checkTimeout        time.Duration
	isVersion           bool
}

// choices are the options that are more than a text.
type choices struct {
	controllers    manager.Controllers
	finalizerToken corev1.FinalizerName
	settlingTime   finalization.SettlingTime
}

func (o *options) parse() (choices, error) {
	controllers, controllersErr := manager.ParseControllers(o.controllers)
	token, tokenErr := finalization.ParseToken(o.finalizerToken)
	settlingTime, settlingErr := finalization.ParseSettlingTime(o.settlingTime)
	return choices{controllers: controllers, finalizerToken: token, settlingTime: settlingTime},
		errors.Join(controllersErr, tokenErr, settlingErr, o.checkPatience())
}

func (o *options) checkPatience() error {
	if o.diagnosisPatience < time.Second {
		return fmt.Errorf("diagnosis patience %s is too short: use 1s or more, "+
			"or --controllers=*,-diagnosis for no diagnosis", o.diagnosisPatience)
	}
	return nil
}

func (o *options) bind(flags *flag.FlagSet) {
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "0",
		`The address of the metrics endpoint, such as ":8443"; "0" switches it off.`)
	flags.BoolVar(&o.metricsSecure, "metrics-secure", true,
		"Serve metrics over HTTPS, to clients that the API server authenticates and authorizes only.")
	flags.StringVar(&o.metricsCertDir, "metrics-cert-path", "",
		"The directory of tls.crt and tls.key for the metrics endpoint; a self-signed certificate if empty.")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081",
		`The address of /healthz and /readyz; "0" switches them off.`)
	flags.BoolVar(&o.leaderElect, "leader-elect", false,
		"Let one of several managers be active at a time.")
	flags.StringVar(&o.leaseName, "leader-elect-resource-name", "nslifecycle.dev",
		"The Lease in --system-namespace that managers elect their leader by. Managers that do different work in one "+
			"namespace, with other --controllers or another --finalizer-token, need one each.")
	flags.StringVar(&o.controllers, "controllers", "*",
		"The controllers that run, separated by commas: "+
			"initialization, finalization, diagnosis, expiry; * for all but expiry, -name to leave one out.")
	flags.StringVar(&o.finalizerToken, "finalizer-token", string(corev1.FinalizerKubernetes),
		"The token in spec.finalizers of namespaces that finalization answers for and releases; "+
			"any but kubernetes makes it one agent among others.")
	flags.StringVar(&o.settlingTime, "settling-time", "auto",
		"The grace period between the deletion of a namespace and the check that it is empty for good, such as 5s; "+
			"auto takes 1s with one API server and no admission webhook that can delay a request, otherwise 5s.")
	flags.BoolVar(&o.enableHTTP2, "enable-http2", false,
		"Serve metrics with HTTP/2, which is off because of CVE-2023-44487 and CVE-2023-39325.")
	// No limit by default: the requests are the same with one and only come later, and the API
	// server knows better when it has too many (docs/benchmarks.md, "Limits of requests").
	flags.Float64Var(&o.qps, "kube-api-qps", -1,
		"Requests per second to the API server; -1 leaves it to API Priority and Fairness.")
	flags.IntVar(&o.burst, "kube-api-burst", 100,
		"Requests to the API server at once, where --kube-api-qps sets a limit.")
	flags.StringVar(&o.systemNamespace, "system-namespace", envOr("POD_NAMESPACE", defaultSystemNamespace),
		"The namespace that the operator is installed in; it is never initialized.")
	flags.IntVar(&o.namespaceWorkers, "initialization-workers", 10,
		"Namespaces whose initialization is worked on at a time.")
	flags.IntVar(&o.finalizationWorkers, "finalization-workers", 100,
		"Namespaces whose finalization is worked on at a time.")
	flags.DurationVar(&o.diagnosisPatience, "diagnosis-progress-deadline", manager.DefaultProgressDeadline,
		"How long the initialization or deletion of a namespace may stand still before it is found out why.")
	flags.IntVar(&o.diagnosisWorkers, "diagnosis-workers", 2,
		"Namespaces of which it is found out at a time why they stand still.")
	flags.BoolVar(&o.isExpiryDryRun, "expiry-dry-run", false,
		"Say which namespaces have expired, and do not delete them.")
	flags.BoolVar(&o.isCheck, "check", false,
		"Look whether the installation in the cluster works, say what was found, and exit: with 0 if it does.")
	// An installation needs a moment: a manager has to start and to become the leader, and the
	// API server takes up to 30 s to learn of a new kind of parameters.
	flags.DurationVar(&o.checkTimeout, "check-timeout", time.Minute,
		"How long --check looks again before it gives up.")
	flags.BoolVar(&o.isVersion, "version", false, "Print the version of the manager, and exit.")
}

func main() {
	var opts options
	opts.bind(flag.CommandLine)
	zapOptions := zap.Options{DestWriter: printable.Log{Writer: os.Stderr}}
	zapOptions.BindFlags(flag.CommandLine)
	flag.Parse()
	if opts.isVersion {
		fmt.Printf("manager %s\n", version.Read())
		return
	}

	// Before there is a logger: it would log what is wrong with a flag, and the lack of a
	// cluster, as an error with a stack trace, where one sentence does.
	chosen, err := opts.parse()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	restConfig, err := config.GetConfig()
	if clientcmd.IsEmptyConfig(err) {
		fmt.Fprintln(os.Stderr, noCluster)
		os.Exit(exitNoCluster)
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&zapOptions)))
	if err != nil {
		err = fmt.Errorf("reading the kubeconfig: %w", err)
	} else {
		err = run(restConfig, opts, chosen)
	}
	if err != nil {
		ctrl.Log.WithName("setup").Error(err, "The manager stops")
		os.Exit(1)
	}
}

func run(restConfig *rest.Config, opts options, chosen choices) error {
	ctx := ctrl.SetupSignalHandler()
	if opts.isCheck {
		return check(ctx, restConfig, opts, chosen, os.Stdout)
	}
	restConfig.QPS = float32(opts.qps)
	restConfig.Burst = opts.burst

	discoveryClient, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("creating a client for %s: %w", restConfig.Host, err)
	}
	var server compat.Server
	if chosen.controllers.Runs(manager.Initialization) {
		if server, err = manager.Preflight(ctx, discoveryClient); err != nil {
			return err
		}
		ctrl.Log.WithName("setup").Info(server.String())
	}

	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:                        scheme.New(),
		Cache:                         manager.CacheOptions(server, chosen.controllers),
		Metrics:                       metricsOptions(opts),
		HealthProbeBindAddress:        opts.probeAddress,
		LeaderElection:                opts.leaderElect,
		LeaderElectionID:              opts.leaseName,
		LeaderElectionNamespace:       opts.systemNamespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	if err := manager.Setup(ctx, mgr, manager.Options{
		Server:                    server,
		Controllers:               chosen.controllers,
		SystemNamespace:           opts.systemNamespace,
		OwnNamespace:              os.Getenv("POD_NAMESPACE"),
		FinalizerToken:            chosen.finalizerToken,
		SettlingTime:              chosen.settlingTime,
		NamespaceWorkers:          opts.namespaceWorkers,
		FinalizationWorkers:       opts.finalizationWorkers,
		DiagnosisProgressDeadline: opts.diagnosisPatience,
		DiagnosisWorkers:          opts.diagnosisWorkers,
		IsExpiryDryRun:            opts.isExpiryDryRun,
	}); err != nil {
		return err
	}
	ctrl.Log.WithName("setup").Info("Starting the manager",
		"version", version.Read().Version, "apiServer", restConfig.Host,
		"systemNamespace", opts.systemNamespace, "controllers", chosen.controllers.String(),
		"finalizerToken", chosen.finalizerToken)
	return mgr.Start(ctx)
}

func metricsOptions(opts options) metricsserver.Options {
	metrics := metricsserver.Options{
		BindAddress:   opts.metricsAddress,
		SecureServing: opts.metricsSecure,
		CertDir:       opts.metricsCertDir,
	}
	if opts.metricsSecure {
		metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if !opts.enableHTTP2 {
		metrics.TLSOpts = append(metrics.TLSOpts, func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} })
	}
	return metrics
}

func envOr(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

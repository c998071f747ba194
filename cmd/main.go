// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manager runs the reconcilers of nslifecycle against one cluster.
//
// It exits with status 3 if no cluster is configured, so that a caller can distinguish that from
// other errors, for which it exits with status 1.
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

	// Authentication plugins for kubeconfigs of managed clusters.
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
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/version"
)

// exitNoCluster is the exit status if no cluster is configured.
const exitNoCluster = 3

const defaultSystemNamespace = "nslifecycle-system"

// noCluster is the error if there is neither a kubeconfig nor the ServiceAccount of a Pod.
const noCluster = "no cluster is configured: set KUBECONFIG or --kubeconfig, " +
	"or run in a Pod; to try nslifecycle without a cluster, run: make demo"

type options struct {
	metricsAddress            string
	metricsSecure             bool
	metricsCertDir            string
	probeAddress              string
	leaderElect               bool
	enableHTTP2               bool
	qps                       float64
	burst                     int
	systemNamespace           string
	namespaceWorkers          int
	finalizationWorkers       int
	leaseName                 string
	controllers               string
	finalizerToken            string
	settlingTime              string
	diagnosisProgressDeadline time.Duration
	diagnosisWorkers          int
	isExpiryDryRun            bool
	holdAddress               string
	holdURL                   string
	holdDuration              time.Duration
	holdLimits                hold.Limits
	holdSecret                string
	holdService               string
	holdRotation              bool
	isCheck                   bool
	checkTimeout              time.Duration
	isVersion                 bool
}

// choices are the values of options that must be parsed.
type choices struct {
	controllers    manager.Controllers
	finalizerToken corev1.FinalizerName
	settlingTime   finalization.GracePeriod
}

func (o *options) parse() (choices, error) {
	controllers, controllersErr := manager.ParseControllers(o.controllers)
	finalizer, finalizerErr := finalization.ParseFinalizer(o.finalizerToken)
	settlingTime, settlingErr := finalization.ParseGracePeriod(o.settlingTime)
	return choices{controllers: controllers, finalizerToken: finalizer, settlingTime: settlingTime},
		errors.Join(controllersErr, finalizerErr, settlingErr, o.checkProgressDeadline())
}

func (o *options) checkProgressDeadline() error {
	if o.diagnosisProgressDeadline < time.Second {
		return fmt.Errorf("--diagnosis-progress-deadline %s is too short: use 1s or more, "+
			"or disable diagnosis with --controllers=*,-diagnosis", o.diagnosisProgressDeadline)
	}
	return nil
}

func (o *options) bind(flags *flag.FlagSet) {
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", "0",
		`The address of the metrics endpoint, for example ":8443"; "0" disables it.`)
	flags.BoolVar(&o.metricsSecure, "metrics-secure", true,
		"Serve metrics over HTTPS, with authentication and authorization by the API server.")
	flags.StringVar(&o.metricsCertDir, "metrics-cert-path", "",
		"The directory with tls.crt and tls.key for the metrics endpoint. If empty, a self-signed certificate is used.")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081",
		`The address of /healthz and /readyz; "0" disables them.`)
	flags.BoolVar(&o.leaderElect, "leader-elect", false,
		"Enable leader election, so that only one manager is active.")
	flags.StringVar(&o.leaseName, "leader-elect-resource-name", "nslifecycle.dev",
		"The name of the Lease for leader election, in --system-namespace. Managers in the same namespace that have "+
			"different --controllers or --finalizer-token must use different Leases.")
	flags.StringVar(&o.controllers, "controllers", "*",
		"A comma-separated list of controllers to run: initialization, finalization, diagnosis, expiry. "+
			"* enables all except expiry; the prefix - disables a controller.")
	flags.StringVar(&o.finalizerToken, "finalizer-token", string(corev1.FinalizerKubernetes),
		"The namespace finalizer (an entry of spec.finalizers) that the finalization controller removes from empty "+
			"namespaces. Use another value than kubernetes to run it in addition to the namespace controller of Kubernetes.")
	flags.StringVar(&o.settlingTime, "settling-time", "auto",
		"The grace period between the deletion of a namespace and the earliest check that it is empty, for example 5s. "+
			"auto is 1s if there is one API server and no admission webhook that can delay a request, otherwise 5s.")
	flags.BoolVar(&o.enableHTTP2, "enable-http2", false,
		"Serve metrics over HTTP/2, which is disabled because of CVE-2023-44487 and CVE-2023-39325.")
	// No limit by default: a client-side limit does not reduce the number of requests, it only delays
	// them (docs/benchmarks.md).
	flags.Float64Var(&o.qps, "kube-api-qps", -1,
		"The maximum number of requests per second to the API server; -1 means no limit other than API Priority and "+
			"Fairness.")
	flags.IntVar(&o.burst, "kube-api-burst", 100,
		"The maximum burst of requests to the API server if --kube-api-qps is set.")
	flags.StringVar(&o.systemNamespace, "system-namespace", envOr("POD_NAMESPACE", defaultSystemNamespace),
		"The namespace that the operator is installed in. It is never initialized.")
	flags.IntVar(&o.namespaceWorkers, "initialization-workers", 10,
		"The number of initializing namespaces that are reconciled concurrently.")
	flags.IntVar(&o.finalizationWorkers, "finalization-workers", 100,
		"The number of terminating namespaces that are finalized concurrently.")
	flags.DurationVar(&o.diagnosisProgressDeadline, "diagnosis-progress-deadline", manager.DefaultProgressDeadline,
		"How long the initialization or deletion of a namespace may make no progress before it is diagnosed.")
	flags.IntVar(&o.diagnosisWorkers, "diagnosis-workers", 2,
		"The number of namespaces whose stalled initialization or deletion is diagnosed concurrently.")
	flags.BoolVar(&o.isExpiryDryRun, "expiry-dry-run", false,
		"Report expired namespaces without deleting them.")
	flags.StringVar(&o.holdAddress, "hold-bind-address", "0",
		`The address of the webhooks that hold writes to initializing namespaces, for example ":9443"; "0" disables them.`)
	flags.DurationVar(&o.holdDuration, "hold-duration", 10*time.Second,
		"How long a write to an initializing namespace waits at most. It must be shorter than timeoutSeconds of the webhooks.")
	flags.IntVar(&o.holdLimits.Total, "hold-max-writes", 25,
		"The number of writes that are held concurrently. Each occupies a seat of API Priority and Fairness.")
	flags.IntVar(&o.holdLimits.PerUser, "hold-max-writes-per-user", 5,
		"The number of writes of one user that are held concurrently.")
	flags.StringVar(&o.holdURL, "hold-url", "",
		"The https URL of the webhooks, with a DNS name, for an API server that cannot reach Services, for example "+
			"https://manager.example.com:9443. The manager sets it in the webhook configuration.")
	flags.StringVar(&o.holdService, "hold-service", "nslifecycle-hold",
		"The Service of the webhooks, in --system-namespace.")
	flags.StringVar(&o.holdSecret, "hold-certificate-secret", "nslifecycle-hold-certificate",
		"The Secret with the certificate of the webhooks, in --system-namespace.")
	flags.BoolVar(&o.holdRotation, "hold-certificate-rotation", true,
		"Issue and rotate the certificate of the webhooks. Disable it if cert-manager issues the certificate.")
	flags.BoolVar(&o.isCheck, "check", false,
		"Check the installation in the cluster, print the results, and exit with 0 if all checks pass.")
	// After an installation, a manager must start and become the leader, and the API server takes
	// up to 30 s to discover a new parameter kind.
	flags.DurationVar(&o.checkTimeout, "check-timeout", time.Minute,
		"How long --check retries failed checks.")
	flags.BoolVar(&o.isVersion, "version", false, "Print the version and exit.")
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

	// Invalid flags and a missing cluster are printed instead of logged: the log would add a stack trace.
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
		err = fmt.Errorf("failed to load the kubeconfig: %w", err)
	} else {
		err = run(restConfig, opts, chosen)
	}
	if err != nil {
		ctrl.Log.WithName("setup").Error(err, "Manager exited")
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
		return fmt.Errorf("failed to create a client for %s: %w", restConfig.Host, err)
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
		return fmt.Errorf("failed to create the manager: %w", err)
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
		DiagnosisProgressDeadline: opts.diagnosisProgressDeadline,
		DiagnosisWorkers:          opts.diagnosisWorkers,
		IsExpiryDryRun:            opts.isExpiryDryRun,
		Hold:                      opts.hold(),
	}); err != nil {
		return err
	}
	ctrl.Log.WithName("setup").Info("Starting manager",
		"version", version.Read().Version, "apiServer", restConfig.Host,
		"systemNamespace", opts.systemNamespace, "controllers", chosen.controllers.String(),
		"finalizerToken", chosen.finalizerToken)
	return mgr.Start(ctx)
}

// hold returns the options of the hold webhooks, or nil if they are disabled.
func (o *options) hold() *hold.Options {
	if o.holdAddress == "0" {
		return nil
	}
	return &hold.Options{
		Address: o.holdAddress, URL: o.holdURL, Duration: o.holdDuration, Limits: o.holdLimits,
		Service: o.holdService, Secret: o.holdSecret, IsRotated: o.holdRotation,
	}
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

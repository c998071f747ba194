// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manager runs the controllers of nslifecycle for one cluster.
//
// The exit status is 3 if no cluster is configured, so that callers can distinguish this error. It
// is 1 for other errors.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
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
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/version"
	"github.com/nslifecycle/nslifecycle/internal/webhooks"
)

// exitNoCluster is the exit status if no cluster is configured.
const exitNoCluster = 3

const defaultSystemNamespace = "nslifecycle-system"

// noCluster is the error message if the manager has neither a kubeconfig nor the ServiceAccount of
// a Pod.
const noCluster = "no cluster is configured: set KUBECONFIG or --kubeconfig, " +
	"or run in a Pod; to try nslifecycle without a cluster, run: make demo"

// noWebhooks is logged if the webhooks are disabled.
const noWebhooks = "The manager serves no webhooks, so the gate policy rejects early writes, and namespaces are " +
	"initialized only if the API server serves MutatingAdmissionPolicy v1; to serve them, set --webhook-bind-address, " +
	"and --webhook-url if the API server cannot reach Services"

type options struct {
	manager.Options

	leaderElect  bool
	qps          float64
	burst        int
	leaseName    string
	isCheck      bool
	checkTimeout time.Duration
	isVersion    bool

	// Hold of manager.Options refers to these options.
	hold hold.Options

	// The method parse converts these flags to fields of manager.Options.
	controllers    repeatable
	finalizerToken string
	settlingTime   string
	clientNames    string
}

// parse validates the flags and converts the values of some flags to fields of manager.Options.
func (o *options) parse() error {
	errs := make([]error, 4)
	o.Controllers, errs[0] = manager.ParseControllers(o.controllers.list)
	o.FinalizerToken, errs[1] = finalization.ParseFinalizer(o.finalizerToken)
	o.SettlingTime, errs[2] = finalization.ParseGracePeriod(o.settlingTime)
	if o.DiagnosisProgressDeadline < time.Second {
		errs[3] = fmt.Errorf("--diagnosis-progress-deadline %s is too short: use 1s or more, "+
			"or disable diagnosis with --controllers=*,-diagnosis", o.DiagnosisProgressDeadline)
	}
	if o.clientNames != "" {
		o.hold.ClientNames = strings.Split(o.clientNames, ",")
	}
	o.Hold = &o.hold
	return errors.Join(append(errs, o.hold.Validate())...)
}

func (o *options) bind(flags *flag.FlagSet) {
	o.OwnNamespace = os.Getenv("POD_NAMESPACE")
	flags.StringVar(&o.Metrics.Address, "metrics-bind-address", "0",
		`The address of the metrics endpoint, for example ":8443"; "0" disables it.`)
	flags.BoolVar(&o.Metrics.IsSecure, "metrics-secure", true,
		"Serve metrics over HTTPS, with authentication and authorization by the API server.")
	flags.StringVar(&o.Metrics.CertDir, "metrics-cert-path", "",
		"The directory with tls.crt and tls.key for the metrics endpoint. If empty, a self-signed certificate is used.")
	flags.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081",
		`The address of /healthz and /readyz; "0" disables them.`)
	flags.BoolVar(&o.leaderElect, "leader-elect", false,
		"Enable leader election, so that only one manager is active at a time.")
	flags.StringVar(&o.leaseName, "leader-elect-resource-name", "nslifecycle.dev",
		"The name of the Lease for leader election, in --system-namespace. Managers in the same namespace must use "+
			"different Leases if their --controllers or --finalizer-token differ.")
	o.controllers.list = "*"
	flags.Var(&o.controllers, "controllers",
		"A comma-separated `list` of controllers to run: admission, initialization, templates, finalization, diagnosis, "+
			"expiry. * enables all controllers except expiry; the prefix - disables a controller. Can be repeated.")
	flags.StringVar(&o.finalizerToken, "finalizer-token", string(corev1.FinalizerKubernetes),
		"The namespace finalizer (an entry of spec.finalizers) that the finalization controller removes from empty "+
			"namespaces. Use a value other than kubernetes to run the finalization controller in addition to the namespace "+
			"controller of Kubernetes.")
	flags.StringVar(&o.settlingTime, "settling-time", "auto",
		"The grace period between the deletion of a namespace and the earliest check that it is empty, for example 5s. "+
			"auto means 1s if there is one API server and no admission webhook that can delay a request, and 5s otherwise.")
	flags.BoolVar(&o.Metrics.EnableHTTP2, "enable-http2", false,
		"Serve metrics over HTTP/2, which is disabled by default because of CVE-2023-44487 and CVE-2023-39325.")
	// There is no limit by default. A client-side limit only delays requests and does not
	// reduce their number (docs/benchmarks.md).
	flags.Float64Var(&o.qps, "kube-api-qps", -1,
		"The maximum number of requests per second to the API server. -1 means no limit except API Priority and "+
			"Fairness.")
	flags.IntVar(&o.burst, "kube-api-burst", 100,
		"The maximum burst of requests to the API server if --kube-api-qps is set.")
	flags.StringVar(&o.SystemNamespace, "system-namespace", cmp.Or(o.OwnNamespace, defaultSystemNamespace),
		"The namespace in which the operator is installed. The operator never initializes it.")
	flags.IntVar(&o.NamespaceWorkers, "initialization-workers", 10,
		"The number of initializing namespaces that are reconciled concurrently.")
	flags.IntVar(&o.TemplateWorkers, "template-workers", 16,
		"The number of new namespaces to which templates are applied concurrently. For open namespaces, it is a quarter.")
	flags.IntVar(&o.FinalizationWorkers, "finalization-workers", 250,
		"The number of terminating namespaces that are finalized concurrently.")
	flags.DurationVar(&o.DiagnosisProgressDeadline, "diagnosis-progress-deadline", manager.DefaultProgressDeadline,
		"How long the initialization or deletion of a namespace can make no progress before the operator diagnoses it.")
	flags.IntVar(&o.DiagnosisWorkers, "diagnosis-workers", 2,
		"The number of stalled namespaces that are diagnosed concurrently.")
	flags.BoolVar(&o.IsExpiryDryRun, "expiry-dry-run", false,
		"Report expired namespaces without deleting them.")
	o.hold.Options = webhooks.Defaults()
	flags.StringVar(&o.hold.Address, "webhook-bind-address", o.hold.Address,
		`The address of the webhooks, for example ":9443"; "0" disables them. They hold writes to initializing namespaces, `+
			"validate NamespaceTemplates and, before Kubernetes 1.36, inject initializers. They require the initialization "+
			"controller.")
	flags.DurationVar(&o.hold.Duration, "hold-duration", 10*time.Second,
		"The maximum duration that a write to an initializing namespace is held. "+
			"It must be shorter than the timeoutSeconds of the webhooks.")
	flags.IntVar(&o.hold.Limits.Total, "hold-max-writes", 25,
		"The number of writes that are held concurrently. Each occupies a seat of API Priority and Fairness.")
	flags.IntVar(&o.hold.Limits.PerUser, "hold-max-writes-per-user", 5,
		"The number of writes of one user that are held concurrently.")
	flags.StringVar(&o.hold.URL, "webhook-url", "",
		"The https URL of the webhooks, with a DNS name, for an API server that cannot reach Services, for example "+
			"https://manager.example.com:9443. The admission controller sets it in the webhook configurations.")
	flags.StringVar(&o.hold.Service, "webhook-service", o.hold.Service,
		"The Service of the webhooks, in --system-namespace.")
	flags.StringVar(&o.hold.Secret, "webhook-certificate-secret", o.hold.Secret,
		"The Secret with the certificate of the webhooks, in --system-namespace.")
	flags.BoolVar(&o.hold.IsRotated, "webhook-certificate-rotation", o.hold.IsRotated,
		"Whether the admission controller issues and rotates the certificate of the webhooks. Disable it if cert-manager "+
			"issues the certificate.")
	flags.StringVar(&o.hold.ClientCAFile, "webhook-client-ca-file", "",
		"A PEM file with the CAs of the client certificates with which API servers call the webhooks. If empty, the "+
			"webhooks also answer other clients.")
	flags.StringVar(&o.clientNames, "webhook-client-allowed-names", "",
		"A comma-separated list of the common names of these certificates. If empty, all names are allowed.")
	flags.BoolVar(&o.isCheck, "check", false,
		"Check the installation in the cluster, print the results, and exit. The exit status is 0 if all checks pass.")
	// After an installation, a manager must start and become the leader, and the API server can take
	// up to 30 s to discover a new parameter kind.
	flags.DurationVar(&o.checkTimeout, "check-timeout", time.Minute,
		"How long failed checks are retried with --check.")
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

	// Print invalid flags and a missing cluster instead of logging them: the log would add a stack
	// trace.
	if err := opts.parse(); err != nil {
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
		err = run(restConfig, opts)
	}
	if err != nil {
		ctrl.Log.WithName("setup").Error(err, "Manager exited")
		os.Exit(1)
	}
}

func run(restConfig *rest.Config, opts options) error {
	ctx := ctrl.SetupSignalHandler()
	if err := opts.preflight(ctx, restConfig); err != nil {
		return err
	}
	if opts.isCheck {
		return check(ctx, restConfig, opts, os.Stdout)
	}
	restConfig.QPS = float32(opts.qps)
	restConfig.Burst = opts.burst
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
		"finalizerToken", opts.FinalizerToken)
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

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/graceperiod"
	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/manager"
)

const (
	defaultSystemNamespace = "nslifecycle-system"
	defaultSourceNamespace = "nslifecycle-sources"
)

type options struct {
	manager.Options

	leaderElect bool
	leaseName   string
	isCheck     bool
	isVersion   bool
	logger      logr.Logger

	// Hold of manager.Options refers to these options.
	hold hold.Options

	// The method complete converts these flags.
	controllers         []string
	namespaceFinalizer  string
	gracePeriod         string
	namespaceSelector   string
	logLevel, logFormat string
}

// parseOptions parses the arguments of the manager. It returns pflag.ErrHelp after it has printed the flags.
func parseOptions(arguments []string) (*options, error) {
	opts := &options{}
	sections := opts.bind()
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	for _, name := range sections.Order {
		flags.AddFlagSet(sections.FlagSets[name])
	}
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "Usage:\n  manager [flags]")
		cliflag.PrintSections(flags.Output(), sections, 0)
	}
	// The error is returned. For an invalid flag, the list of all flags would hide it.
	flags.SetOutput(os.Stdout)
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	return opts, opts.complete()
}

// complete validates the flags and converts the values of some flags.
func (o *options) complete() error {
	errs := make([]error, 8)
	o.Controllers, errs[0] = manager.ParseControllers(strings.Join(o.controllers, ","))
	o.NamespaceFinalizer, errs[1] = finalization.ParseFinalizer(o.namespaceFinalizer)
	o.GracePeriod, errs[2] = graceperiod.ParseGracePeriod(o.gracePeriod)
	if o.DiagnosisProgressDeadline < time.Second {
		errs[3] = fmt.Errorf("--diagnosis-progress-deadline %s is too short: use 1s or more, "+
			"or disable diagnosis with --controllers=*,-diagnosis", o.DiagnosisProgressDeadline)
	}
	if o.FinalizationWorkers < 1 {
		errs[4] = fmt.Errorf("--concurrent-namespace-finalizations %d must be at least 1", o.FinalizationWorkers)
	}
	o.logger, errs[5] = newLogger(os.Stderr, o.logLevel, o.logFormat)
	if o.NamespaceRequirements, errs[6] = initialization.ParseRequirements(o.namespaceSelector); errs[6] != nil {
		errs[6] = fmt.Errorf("--namespace-selector: %w", errs[6])
	}
	if problems := validation.IsDNS1123Label(o.SourceNamespace); len(problems) > 0 {
		errs[7] = fmt.Errorf("--source-namespace %q is not the name of a namespace: %s", o.SourceNamespace, problems[0])
	}
	o.Hold = &o.hold
	return errors.Join(append(errs, o.hold.Validate())...)
}

// bind returns the flags in the sections of --help.
func (o *options) bind() cliflag.NamedFlagSets {
	var sections cliflag.NamedFlagSets
	o.bindGeneral(sections.FlagSet("general"))
	sections.FlagSet("initialization").StringVar(&o.namespaceSelector, "namespace-selector", "",
		"A label selector for new namespaces, for example trial=true. Namespaces that it does not select get no "+
			"initializers, whichever configuration selects them.")
	sections.FlagSet("templates").StringVar(&o.SourceNamespace, "source-namespace", defaultSourceNamespace,
		"The namespace with the Secrets and ConfigMaps that templates can copy. The operator never initializes it, and "+
			"applies no template to it.")
	o.bindWebhookServer(sections.FlagSet("webhook server"))
	o.bindHold(sections.FlagSet("hold"))
	o.bindFinalization(sections.FlagSet("finalization"))
	sections.FlagSet("diagnosis").DurationVar(&o.DiagnosisProgressDeadline, "diagnosis-progress-deadline",
		manager.DefaultProgressDeadline,
		"How long the initialization or deletion of a namespace can make no progress before the operator diagnoses it.")
	o.bindLogging(sections.FlagSet("logging"))
	return sections
}

func (o *options) bindGeneral(flags *pflag.FlagSet) {
	o.OwnNamespace = os.Getenv("POD_NAMESPACE")
	flags.BoolVar(&o.isCheck, "check", false,
		"Check the installation in the cluster, print the results, and exit. The exit status is 0 if all checks pass.")
	flags.StringSliceVar(&o.controllers, "controllers", []string{"*"},
		"A comma-separated list of controllers to run: admission, initialization, templates, finalization, diagnosis. "+
			"* enables all controllers; the prefix - disables a controller. Can be repeated.")
	flags.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081",
		`The address of /healthz and /readyz; "0" disables them.`)
	flags.AddGoFlag(flag.CommandLine.Lookup(config.KubeconfigFlagName))
	flags.BoolVar(&o.leaderElect, "leader-elect", false,
		"Enable leader election, so that only one manager is active at a time.")
	flags.StringVar(&o.leaseName, "leader-elect-resource-name", "nslifecycle.dev",
		"The name of the Lease for leader election, in --system-namespace. Managers in the same namespace must use "+
			"different Leases if their --controllers or --namespace-finalizer differ.")
	flags.StringVar(&o.Metrics.Address, "metrics-bind-address", "0",
		`The address of the metrics endpoint, for example ":8443"; "0" disables it. It is served over HTTPS, and the API `+
			"server authenticates and authorizes its clients.")
	flags.StringVar(&o.Metrics.CertDir, "metrics-cert-path", "",
		"The directory with tls.crt and tls.key for the metrics endpoint. If empty, a self-signed certificate is used.")
	flags.StringVar(&o.SystemNamespace, "system-namespace", cmp.Or(o.OwnNamespace, defaultSystemNamespace),
		"The namespace in which the operator is installed. The operator never initializes it. The environment variable "+
			"POD_NAMESPACE changes the default.")
	flags.BoolVar(&o.isVersion, "version", false, "Print the version and exit.")
}

func (o *options) bindWebhookServer(flags *pflag.FlagSet) {
	o.hold.Options = webhooks.Defaults()
	flags.StringVar(&o.hold.Address, "webhook-bind-address", o.hold.Address,
		`The address of the webhooks, for example ":9443"; "0" disables them. They hold writes to initializing namespaces, `+
			"validate NamespaceTemplates and, before Kubernetes 1.36, inject initializers. They require the initialization "+
			"controller.")
	flags.BoolVar(&o.hold.IsRotated, "webhook-certificate-rotation", o.hold.IsRotated,
		"Whether the admission controller issues and rotates the certificate of the webhooks. Disable it if cert-manager "+
			"issues the certificate.")
	flags.StringSliceVar(&o.hold.ClientNames, "webhook-client-allowed-names", nil,
		"A comma-separated list of the common names of the certificates that --webhook-client-ca-file verifies. If empty, "+
			"all names are allowed.")
	flags.StringVar(&o.hold.ClientCAFile, "webhook-client-ca-file", "",
		"A PEM file with the CAs of the client certificates with which API servers call the webhooks. If empty, the "+
			"webhooks also answer other clients.")
	flags.StringVar(&o.hold.URL, "webhook-url", "",
		"The https URL of the webhooks, with a DNS name, for an API server that cannot reach Services, for example "+
			"https://manager.example.com:9443. The admission controller sets it in the webhook configurations.")
}

func (o *options) bindHold(flags *pflag.FlagSet) {
	flags.DurationVar(&o.hold.Duration, "hold-duration", 10*time.Second,
		"The maximum duration that a request to an initializing namespace is held. It must be shorter than the "+
			"timeoutSeconds of the webhooks and the timeout of the authorizer.")
	flags.IntVar(&o.hold.Limits.Total, "hold-max-writes", 25,
		"The number of requests that are held concurrently. Each occupies a seat of API Priority and Fairness.")
	flags.IntVar(&o.hold.Limits.PerUser, "hold-max-writes-per-user", 5,
		"The number of requests of one user that are held concurrently.")
}

func (o *options) bindFinalization(flags *pflag.FlagSet) {
	flags.IntVar(&o.FinalizationWorkers, "concurrent-namespace-finalizations", manager.DefaultFinalizationWorkers,
		"The number of terminating namespaces that are finalized concurrently.")
	flags.StringVar(&o.gracePeriod, "finalization-grace-period", "Auto",
		"The grace period between the deletion of a namespace and the earliest check that it is empty, for example 5s. "+
			"Auto means 1s if there is one API server and no admission webhook that can delay a request, and 5s otherwise.")
	flags.StringVar(&o.namespaceFinalizer, "namespace-finalizer", string(corev1.FinalizerKubernetes),
		"The namespace finalizer (an entry of spec.finalizers) that the finalization controller removes from empty "+
			"namespaces. Use a value other than kubernetes to run the finalization controller in addition to the namespace "+
			"controller of Kubernetes.")
}

func (o *options) bindLogging(flags *pflag.FlagSet) {
	flags.StringVar(&o.logFormat, "log-format", formatJSON, "The format of the log: json or text.")
	flags.StringVar(&o.logLevel, "log-level", "info", "The lowest level of log messages: debug, info or error.")
}

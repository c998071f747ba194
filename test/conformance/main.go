// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/pkg/initializer"
)

// without is the state of a cluster in which nslifecycle is not installed, and admin the one in which an administrator
// runs the specs.
const (
	without = "without"
	admin   = "admin"
)

const (
	initializerName = "conformance.example.com"
	// initializationTime is how long the initializer takes.
	initializationTime = time.Second
	// user runs the specs, unless the state is admin.
	user = "nslifecycle-conformance-user"
)

// sigs are the parts of a run. Each has its own report, so that one that is interrupted can be repeated.
const sigs = "api-machinery,apps,architecture,auth,cli,instrumentation,network,node,scheduling,storage"

//go:embed setup.yaml
var setup string

type options struct {
	state, sigs, skip, binaries, output string
	processes                           int
	timeout                             time.Duration
	compare                             bool
	// command is run instead of the specs.
	command []string
}

func main() {
	var o options
	flag.StringVar(&o.state, "state", without, "The name of the state of the cluster.")
	flag.StringVar(&o.sigs, "sigs", sigs, "The groups whose specs are run.")
	flag.StringVar(&o.skip, "skip", "", "A regular expression for specs that cannot run in this cluster.")
	flag.StringVar(&o.binaries, "binaries", "bin/conformance", "The directory with e2e.test and ginkgo.")
	flag.StringVar(&o.output, "output", "bin/conformance", "The directory for the reports.")
	flag.IntVar(&o.processes, "processes", 4, "The number of specs that are run at the same time.")
	flag.DurationVar(&o.timeout, "timeout", 2*time.Hour, "The maximum time for the specs of one group.")
	flag.BoolVar(&o.compare, "compare", false, "Compare the reports of all states, instead of running specs.")
	flag.Parse()
	o.command = flag.Args()
	ctrl.SetLogger(zap.New(zap.Level(zapcore.ErrorLevel)))
	run := o.run
	if o.compare {
		run = func(context.Context) error { return compare(o.output, os.Stdout) }
	}
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// run runs the specs of all groups. Failed specs are no errors, since a cluster can fail some without nslifecycle, too.
func (o *options) run(ctx context.Context) error {
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		return errors.New("set KUBECONFIG to the kubeconfig of a cluster that can be used for tests")
	}
	err := kubectl(ctx, "", "get", "customresourcedefinition", "namespaceinitializerconfigurations.nslifecycle.dev")
	if isInstalled := err == nil; isInstalled != (o.state != without) {
		return fmt.Errorf("the state is %q, but whether nslifecycle is installed is: %t", o.state, isInstalled)
	}
	if o.state != without {
		var stop func()
		if stop, err = startInitializer(ctx); err != nil {
			return err
		}
		defer stop()
		if o.state != admin {
			if kubeconfig, err = o.userKubeconfig(); err != nil {
				return err
			}
		}
	}
	if len(o.command) > 0 {
		command := exec.CommandContext(ctx, o.command[0], o.command[1:]...)
		command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		return command.Run()
	}
	for _, sig := range strings.Split(o.sigs, ",") {
		if err := o.runGroup(ctx, kubeconfig, sig); err != nil {
			return err
		}
	}
	return nil
}

// startInitializer applies the manifests, and starts the initializer. The returned function ends and deletes both.
func startInitializer(ctx context.Context) (stop func(), err error) {
	if err := kubectl(ctx, setup, "apply", "--server-side", "-f", "-"); err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return nil, fmt.Errorf("failed to create a manager: %w", err)
	}
	if err := initializer.Add(mgr, initializerName, initialize); err != nil {
		return nil, fmt.Errorf("failed to add the initializer: %w", err)
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	stop = func() {
		err := kubectl(context.WithoutCancel(ctx), setup, "delete", "--ignore-not-found", "-f", "-")
		cancel()
		if err := errors.Join(err, <-ended); err != nil {
			fmt.Fprintln(os.Stderr, "conformance:", err)
		}
	}
	for object, condition := range map[string]string{"nsinit/conformance": "Active", "nstemplate/conformance": "Ready"} {
		if err := kubectl(ctx, "", "wait", "--for=condition="+condition, "--timeout=2m", object); err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

// initialize completes a namespace that is as old as initializationTime.
func initialize(_ context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
	if remaining := initializationTime - time.Since(namespace.CreationTimestamp.Time); remaining > 0 {
		return initializer.Result{}, initializer.NotYet(remaining, "Working", "preparing the namespace")
	}
	return initializer.Result{}, nil
}

// userKubeconfig writes a kubeconfig that impersonates the user, and returns its path.
func (o *options) userKubeconfig() (string, error) {
	config, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	if err == nil {
		err = clientcmdapi.MinifyConfig(config)
	}
	if err != nil {
		return "", fmt.Errorf("failed to load the kubeconfig: %w", err)
	}
	for _, credentials := range config.AuthInfos {
		credentials.Impersonate = user
	}
	path, err := filepath.Abs(filepath.Join(o.output, o.state, "user.kubeconfig"))
	if err != nil {
		return "", fmt.Errorf("failed to write a kubeconfig: %w", err)
	}
	return path, clientcmd.WriteToFile(*config, path)
}

// runGroup runs the specs of one group, and writes its report.
func (o *options) runGroup(ctx context.Context, kubeconfig, sig string) error {
	dir := filepath.Join(o.output, o.state)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("failed to create a directory for the reports: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, sig+".log"))
	if err != nil {
		return fmt.Errorf("failed to create a log: %w", err)
	}
	defer log.Close()
	command := exec.CommandContext(ctx, filepath.Join(o.binaries, "ginkgo"), "--no-color",
		fmt.Sprintf("--procs=%d", o.processes), "--timeout="+o.timeout.String(),
		`--focus=\[sig-`+sig+`\].*\[Conformance\]`, "--skip="+o.skip,
		"--output-dir="+dir, "--json-report="+sig+".json",
		filepath.Join(o.binaries, "e2e.test"), "--", "--kubeconfig="+kubeconfig, "--provider=skeleton")
	command.Stdout, command.Stderr = log, log
	started := time.Now()
	var failed *exec.ExitError
	if err := command.Run(); err != nil && !errors.As(err, &failed) {
		return fmt.Errorf("failed to run ginkgo: %w", err)
	}
	result, err := readReport(filepath.Join(dir, sig+".json"))
	if err != nil {
		return fmt.Errorf("the specs of %s were not run, see %s: %w", sig, log.Name(), err)
	}
	fmt.Printf("%s, sig-%s: %s in %s\n", o.state, sig, result.count(), time.Since(started).Round(time.Second))
	return nil
}

// kubectl runs kubectl with the kubeconfig in the environment.
func kubectl(ctx context.Context, input string, args ...string) error {
	command := exec.CommandContext(ctx, "kubectl", args...)
	command.Stdin = strings.NewReader(input)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s failed: %w: %s", strings.Join(args, " "), err, output)
	}
	return nil
}

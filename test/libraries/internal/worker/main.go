// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command worker is an initializer that runs in a separate process, so that tests can kill it. It
// creates a ConfigMap in each namespace, and writes an event log that remains after the process is
// killed. It can also kill itself at a given point.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nslifecycle/nslifecycle/pkg/initializer"
)

// eventLog is an unbuffered log file.
type eventLog struct{ file *os.File }

func (d eventLog) write(format string, args ...any) {
	// Write the line in one call, so that lines from several processes are not interleaved.
	_, err := fmt.Fprintf(d.file, "%d "+format+"\n", append([]any{os.Getpid()}, args...)...)
	if err == nil {
		err = d.file.Sync()
	}
	if err != nil {
		panic(err)
	}
}

// stop kills the process when it reaches a given point for the n-th time.
type stop struct {
	point    string
	left     atomic.Int64
	eventLog eventLog
}

func (s *stop) at(point string) {
	if point == s.point && s.left.Add(-1) == 0 {
		s.eventLog.write("stopped %s", point)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// wrap returns a transport that kills the process before or after a patch of a namespace.
func (s *stop) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		isPatch := request.Method == http.MethodPatch &&
			strings.HasPrefix(request.URL.Path, "/api/v1/namespaces/") && strings.Count(request.URL.Path, "/") == 4
		if isPatch {
			s.at("before-patch")
		}
		response, err := next.RoundTrip(request)
		if isPatch {
			s.at("after-patch")
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip sends a request.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

func main() {
	var name, path, stopAt, election string
	var stopAfter int64
	var isUnordered bool
	flag.StringVar(&name, "name", "", "The name of the initializer.")
	flag.StringVar(&path, "event-log", "", "The path of the event log.")
	flag.StringVar(&stopAt, "stop-at", "",
		"The point at which the process kills itself: before-work, after-work, before-return, before-patch or after-patch.")
	flag.Int64Var(&stopAfter, "stop-after", 1, "How many times the process reaches the point until it kills itself.")
	flag.StringVar(&election, "elect-in", "", "The namespace for leader election. If empty, no leader is elected.")
	flag.BoolVar(&isUnordered, "unordered", false, "Do not wait for the initializer's turn.")
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseDevMode(true)))
	if err := run(name, path, election, isUnordered, stopAt, stopAfter); err != nil {
		fmt.Fprintf(os.Stderr, "worker: %v\n", err)
		os.Exit(1)
	}
}

func run(name, path, election string, isUnordered bool, stopAt string, stopAfter int64) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("failed to open the log file: %w", err)
	}
	d := eventLog{file: file}
	s := &stop{point: stopAt, eventLog: d}
	s.left.Store(stopAfter)
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(unlimited(config))
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	config.Wrap(s.wrap)
	duration := func(d time.Duration) *time.Duration { return &d }
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:          metricsserver.Options{BindAddress: "0"},
		LeaderElection:   election != "",
		LeaderElectionID: name, LeaderElectionNamespace: election,
		// Shorter than the defaults, but long enough for a leader on a busy machine.
		LeaseDuration: duration(10 * time.Second), RenewDeadline: duration(8 * time.Second),
		RetryPeriod: duration(200 * time.Millisecond),
	})
	if err != nil {
		return err
	}
	var options []initializer.Option
	if isUnordered {
		options = append(options, initializer.Unordered())
	}
	err = initializer.Add(mgr, name, func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
		d.write("start %s %s", namespace.Name, namespace.UID)
		s.at("before-work")
		_, err := clientset.CoreV1().ConfigMaps(namespace.Name).Apply(ctx,
			applycorev1.ConfigMap(name, namespace.Name), metav1.ApplyOptions{FieldManager: name, Force: true})
		if err != nil {
			return initializer.Result{}, fmt.Errorf("failed to apply ConfigMap %q: %w", name, err)
		}
		s.at("after-work")
		d.write("success %s %s", namespace.Name, namespace.UID)
		s.at("before-return")
		return initializer.Result{Reason: "Prepared", Message: "the ConfigMap exists"}, nil
	}, options...)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

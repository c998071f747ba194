// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command plugin measures how long commands of the kubectl plugin take: one that sends no requests,
// and explain in a cluster with many types. It alternates between kubectl and the plugin, so that
// other load on the machine affects both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

const (
	// stuck is a terminating namespace with a remaining object.
	stuck = "stuck"
	// exitBlocked is the exit status of explain if it finds a cause.
	exitBlocked = 3
)

// line is one measured command.
type line struct {
	title  string
	binary string
	args   []string
	// exitStatus is the exit status of a successful run.
	exitStatus int
	goal       time.Duration
	took       []time.Duration
}

func main() {
	rounds := flag.Int("rounds", 20, "Number of runs of each command.")
	crds := flag.Int("crds", 300, "Number of CustomResourceDefinitions in the cluster.")
	flag.Parse()
	harness.Main("bench-plugin", func(ctx context.Context) error { return run(ctx, max(1, *rounds), max(0, *crds)) })
}

func run(ctx context.Context, rounds, crds int) (err error) {
	facts := harness.DescribeMachine()
	harness.Say("Starting a control plane and building the plugin")
	plane, err := controlplane.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	plugin := filepath.Join(plane.Dir, "kubectl-nslifecycle")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", plugin, "./cmd/kubectl-nslifecycle")
	build.Dir = controlplane.Root()
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("failed to build the plugin: %w: %s", err, output)
	}
	kubeconfig := filepath.Join(plane.Dir, "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, plane.Admin); err != nil {
		return err
	}
	harness.Say("Creating %d CustomResourceDefinitions and a stuck namespace", crds)
	if err := prepare(ctx, plane, crds); err != nil {
		return err
	}
	kubectl, server := plane.KubectlPath(), "--kubeconfig="+kubeconfig
	lines := []*line{
		{title: "kubectl version --client", binary: kubectl, args: []string{"version", "--client"}},
		{title: "kubectl-nslifecycle version", binary: plugin, args: []string{"version"}, goal: 100 * time.Millisecond},
		{title: "kubectl get namespace", binary: kubectl, args: []string{"get", "namespace", stuck, server}},
		{title: fmt.Sprintf("kubectl-nslifecycle explain, %d CRDs, stuck", crds), binary: plugin,
			args: []string{"explain", stuck, "--progress-deadline=1s", server}, exitStatus: exitBlocked, goal: 2 * time.Second},
	}
	for round := range rounds {
		harness.Say("Round %d of %d", round+1, rounds)
		for _, l := range lines {
			if err := l.measure(ctx); err != nil {
				return err
			}
		}
	}
	fmt.Print(harness.Text(facts, []harness.Table{tabulate(lines)}))
	return nil
}

// prepare creates the CustomResourceDefinitions and the stuck namespace.
func prepare(ctx context.Context, plane *controlplane.ControlPlane, crds int) error {
	config := controlplane.Unlimited(plane.Admin)
	admin, err := controlplane.NewClient(config)
	if err != nil {
		return err
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	if err := harness.SetCRDs(ctx, dynamicClient, discoveryClient, 0, crds); err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stuck}}
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: stuck, Name: "held", Finalizers: []string{"bench.example.com/hold"},
	}}
	for _, object := range []client.Object{namespace, held} {
		if err := admin.Create(ctx, object); err != nil {
			return fmt.Errorf("failed to create %s: %w", object.GetName(), err)
		}
	}
	for _, object := range []client.Object{held, namespace} {
		if err := admin.Delete(ctx, object); err != nil {
			return fmt.Errorf("failed to delete %s: %w", object.GetName(), err)
		}
	}
	// explain reports no cause before the progress deadline.
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * time.Second):
		return nil
	}
}

// measure runs the command once and records its duration.
func (l *line) measure(ctx context.Context) error {
	command := exec.CommandContext(ctx, l.binary, l.args...)
	began := time.Now()
	output, err := command.CombinedOutput()
	l.took = append(l.took, time.Since(began))
	if command.ProcessState.ExitCode() != l.exitStatus {
		return fmt.Errorf("%s: %w: %s", l.title, err, output)
	}
	return nil
}

func tabulate(lines []*line) harness.Table {
	table := harness.Table{
		Title:  "Duration of the commands",
		Header: []string{"Command", "Median", "95th percentile", "Goal", "Result"},
	}
	for _, l := range lines {
		goal, result := "-", "-"
		median := harness.Median(l.took)
		if l.goal > 0 {
			goal, result = "at most "+harness.FormatDuration(l.goal), "met"
			if median > l.goal {
				result = "missed"
			}
		}
		table.Rows = append(table.Rows, []string{
			l.title, harness.FormatDuration(median), harness.FormatDuration(harness.Percentile(l.took, 0.95)), goal, result,
		})
	}
	return table
}

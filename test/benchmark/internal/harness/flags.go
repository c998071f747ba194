// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Flags are the flags of all benchmarks that print a report.
type Flags struct {
	Quick, Check, Fsync bool
	Markdown            string
}

// Bind defines the flags except --check.
func (f *Flags) Bind(flags *flag.FlagSet) {
	flags.BoolVar(&f.Quick, "quick", false, "Measure little, to test the benchmark itself.")
	flags.BoolVar(&f.Fsync, "fsync", false, "Run etcd with fsync.")
	flags.StringVar(&f.Markdown, "markdown", "", "File to write the tables to, as Markdown for the documentation.")
}

// BindCheck defines --check, for a benchmark with goals.
func (f *Flags) BindCheck(flags *flag.FlagSet) {
	flags.BoolVar(&f.Check, "check", false, "Exit with status 1 if a goal is missed.")
}

// DescribeServer returns the fact of a report that describes the control plane.
func (f *Flags) DescribeServer(version string) string {
	if f.Fsync {
		return fmt.Sprintf("Kubernetes %s, etcd runs with fsync", version)
	}
	return fmt.Sprintf("Kubernetes %s, etcd runs without fsync", version)
}

// Publish prints a report and writes it to the file of --markdown.
func (f *Flags) Publish(facts []string, tables []Table) error {
	fmt.Print(Text(facts, tables))
	if f.Markdown == "" {
		return nil
	}
	return WriteFile(f.Markdown, []byte(Markdown(facts, tables)))
}

// Verify returns an error for missed goals if --check is set.
func (f *Flags) Verify(missed []string) error {
	if !f.Check || len(missed) == 0 {
		return nil
	}
	return fmt.Errorf("goals were missed: %s", strings.Join(missed, "; "))
}

// Require returns an error if one of the numbers is not positive.
func Require(numbers ...int) error {
	for _, number := range numbers {
		if number < 1 {
			return errors.New("all numbers must be at least 1")
		}
	}
	return nil
}

// ParseNumbers parses the positive numbers in the value of a flag, separated by commas.
func ParseNumbers(name, value string) ([]int, error) {
	var numbers []int
	for text := range strings.SplitSeq(value, ",") {
		number, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("failed to parse --%s: %w", name, err)
		}
		numbers = append(numbers, number)
	}
	return numbers, Require(numbers...)
}

// WriteFile writes a file of a report.
func WriteFile(path string, content []byte) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, content, 0o644)
	}
	if err != nil {
		return fmt.Errorf("failed to write the report: %w", err)
	}
	return nil
}

// Main runs a benchmark until it ends or is interrupted. After an error, it prints the error with the name of
// the program and exits with status 1.
func Main(name string, run func(context.Context) error) {
	// Otherwise, warnings of controller-runtime about a missing logger would interrupt the tables.
	ctrl.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// DescribeMachine describes the machine, so that readers can interpret the results. The description
// does not identify the machine.
func DescribeMachine() []string {
	facts := []string{
		time.Now().UTC().Format("2006-01-02"),
		fmt.Sprintf("%d CPUs, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version()),
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		if fields := strings.Fields(string(load)); len(fields) > 0 {
			facts = append(facts, fmt.Sprintf("load average %s before the run", fields[0]))
		}
	}
	return facts
}

// Say reports progress on stderr; stdout is for the tables.
func Say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+" ...\n", args...) }

// Parallel is the number of concurrent requests of InParallel.
const Parallel = 32

// InParallel calls the function do for each number from 0 to count-1, concurrently.
func InParallel(ctx context.Context, count int, do func(ctx context.Context, i int) error) error {
	return InParallelWithLimit(ctx, Parallel, count, do)
}

// InParallelWithLimit is like InParallel with another number of concurrent requests.
func InParallelWithLimit(ctx context.Context, limit, count int, do func(ctx context.Context, i int) error) error {
	group, groupContext := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for i := range count {
		group.Go(func() error { return do(groupContext, i) })
	}
	return group.Wait()
}

// Sleep waits until the duration has passed or the context is canceled.
func Sleep(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

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

// WriteTables writes tables to a file, or nothing if the path is empty.
func WriteTables(path, tables string) error {
	if path == "" {
		return nil
	}
	if err := os.WriteFile(path, []byte(tables), 0o644); err != nil {
		return fmt.Errorf("failed to write the tables: %w", err)
	}
	return nil
}

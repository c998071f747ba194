// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Command index-server serves indices from a directory over HTTP.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nslifecycle/nslifecycle/examples/search-index/indexserver"
)

// Limits on connections, so that slow clients cannot block the server.
const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = 10 * time.Second
	idleTimeout   = time.Minute
	stopTimeout   = 10 * time.Second
	maxHeader     = 16 << 10
)

func main() {
	var address, dir string
	flag.StringVar(&address, "listen-address", ":8080", "The address to listen on.")
	flag.StringVar(&dir, "data-dir", "data", "The directory that contains the indices.")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(flag.CommandLine.Output(), "index-server accepts no arguments.")
		flag.Usage()
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, address, dir)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until the context is canceled, and then completes the active requests.
func run(ctx context.Context, address, dir string) error {
	log := zap.New()
	store, err := indexserver.Open(dir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("failed to listen: %w", err)
	}
	server := &http.Server{
		Handler:           indexserver.NewHandler(store, log),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      bodyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
	}
	log.Info("Serving", "address", listener.Addr().String(), "indices", len(store.List()))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("failed to serve: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err = server.Shutdown(stopping)
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	if err != nil {
		return fmt.Errorf("failed to stop the server: %w", err)
	}
	return nil
}

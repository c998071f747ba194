// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/nslifecycle/nslifecycle/internal/limitedhttp"
)

const (
	// refusalInterval is the time between two log lines about refused reviews.
	refusalInterval = time.Minute
	// shutdownTimeout limits the time for the last responses.
	shutdownTimeout = 10 * time.Second
)

// Server serves webhooks at one address. The server of controller-runtime has fixed limits, and its webhooks
// accept 7 MiB of YAML.
type Server struct {
	// IsReady is a check for the readiness probe.
	IsReady healthz.Checker

	address  string
	tls      *tls.Config
	log      logr.Logger
	mux      *http.ServeMux
	refusals *rate.Sometimes
	buffers  *limitedhttp.Quota
	token    *token

	isServing atomic.Bool
}

func newServer(address string, config *tls.Config, log logr.Logger) *Server {
	return &Server{
		address: address, tls: config, log: log, mux: http.NewServeMux(),
		refusals: &rate.Sometimes{Interval: refusalInterval}, buffers: limitedhttp.NewQuota(maxBuffered), token: &token{},
	}
}

// Register adds a webhook, before the server is started.
func (s *Server) Register(webhook Webhook) {
	s.handle(handler{
		path: webhook.Path, limit: webhook.Fields.limit(), decode: webhook.decode,
	})
}

// RegisterAuthorizer adds an authorization webhook, before the server is started.
func (s *Server) RegisterAuthorizer(authorizer Authorizer) {
	s.handle(handler{path: authorizer.Path, authenticate: s.token.isIn, limit: maxHead, decode: authorizer.decode})
}

func (s *Server) handle(h handler) {
	h.buffers, h.log, h.refusals = s.buffers, s.log, s.refusals
	s.mux.Handle(h.path, &h)
}

// NewHandler returns webhooks, for a server of limitedhttp.
func NewHandler(log logr.Logger, webhooks ...Webhook) http.Handler {
	server := newServer("", nil, log)
	for _, webhook := range webhooks {
		server.Register(webhook)
	}
	return server.mux
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. The server runs on every replica.
func (*Server) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. The manager starts it when its caches have synced.
func (s *Server) Start(ctx context.Context) error {
	tcp, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("failed to listen at %s: %w", s.address, err)
	}
	return s.serve(ctx, tcp)
}

func (s *Server) serve(ctx context.Context, tcp net.Listener) error {
	server := limitedhttp.NewServer(s.mux)
	// Webhooks answer the last requests when the manager stops.
	server.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
	// Serve returns when the shutdown begins, and the manager exits when this function returns.
	isShutDown := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(isShutDown)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})
	s.isServing.Store(true)
	err := server.Serve(limitedhttp.Limit(tcp, s.tls))
	s.isServing.Store(false)
	if !stop() {
		<-isShutDown
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// check returns a check that succeeds while the server can answer.
func (s *Server) check(certificate *Certificate) healthz.Checker {
	return func(*http.Request) error {
		if !s.isServing.Load() {
			return errors.New(messageNotServing)
		}
		_, err := certificate.Get(nil)
		return err
	}
}

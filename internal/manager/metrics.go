// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
)

// maxScrapes and scrapeBurst limit the requests for metrics per second. The API server authenticates each token.
// maxScrapesOfPeer limits those of one peer, so that a Pod cannot keep out Prometheus.
const maxScrapes, scrapeBurst, maxScrapesOfPeer = 50, 100, 5

// MetricsOptions configure the server of the metrics. The one of controller-runtime accepts any number of connections.
type MetricsOptions struct {
	Address string
	// CertDir contains the certificate. If it contains none, the server uses a self-signed one.
	CertDir string
}

// addMetrics adds a server that requires TLS, and authenticates and authorizes requests: the metrics contain the names
// of templates and initializers.
func addMetrics(ctx context.Context, mgr ctrl.Manager, options MetricsOptions) error {
	if options.Address == "" || options.Address == disabledAddress {
		return nil
	}
	filter, err := filters.WithAuthenticationAndAuthorization(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("failed to set up the authorization of metrics: %w", err)
	}
	handler, err := filter(mgr.GetLogger().WithName("metrics"),
		promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	if err != nil {
		return fmt.Errorf("failed to set up the authorization of metrics: %w", err)
	}
	config, err := metricsTLS(mgr, options.CertDir)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", limitRate(handler))
	return addServer(ctx, mgr, "metrics", options.Address, config, mux)
}

// limitRate limits the requests of all peers and of each peer.
func limitRate(handler http.Handler) http.Handler {
	limiter := &scrapeLimiter{all: rate.NewLimiter(maxScrapes, scrapeBurst)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, _, _ := net.SplitHostPort(r.RemoteAddr)
		if !limiter.allow(peer, time.Now()) {
			http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// scrapeLimiter counts the requests of each peer in the current second.
type scrapeLimiter struct {
	all *rate.Limiter

	lock   sync.Mutex
	begin  time.Time
	byPeer map[string]int
}

func (l *scrapeLimiter) allow(peer string, now time.Time) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	if now.Sub(l.begin) >= time.Second {
		l.begin, l.byPeer = now, map[string]int{}
	}
	l.byPeer[peer]++
	return l.byPeer[peer] <= maxScrapesOfPeer && l.all.AllowN(now, 1)
}

func metricsTLS(mgr ctrl.Manager, directory string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	certificate := filepath.Join(directory, corev1.TLSCertKey)
	if _, err := os.Stat(certificate); directory == "" || os.IsNotExist(err) {
		certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{{127, 0, 0, 1}}, nil)
		if err != nil {
			return nil, fmt.Errorf("failed to generate a certificate for metrics: %w", err)
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("failed to load the certificate for metrics: %w", err)
		}
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
		return config, nil
	}
	watcher, err := certwatcher.New(certificate, filepath.Join(directory, corev1.TLSPrivateKeyKey))
	if err != nil {
		return nil, fmt.Errorf("failed to load the certificate for metrics: %w", err)
	}
	config.GetCertificate = watcher.GetCertificate
	return config, mgr.Add(watcher)
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// HTTPProxy forwards requests to an API server.
type HTTPProxy struct {
	server  *httptest.Server
	forward http.Handler
	infos   apirequest.RequestInfoFactory

	lock    sync.Mutex
	choose  func(*Request) Fault
	watches map[*Request]context.CancelFunc
}

// Request is a request to an API server.
type Request struct {
	*apirequest.RequestInfo
	HTTP *http.Request
}

// ImpersonatedUser returns the name of the impersonated user, "" if there is none.
func (r *Request) ImpersonatedUser() string {
	return r.HTTP.Header.Get(authenticationv1.ImpersonateUserHeader)
}

// Body returns the body of the request.
func (r *Request) Body() string {
	content, _ := io.ReadAll(r.HTTP.Body) // If it is incomplete, the API server rejects the request.
	r.HTTP.Body = io.NopCloser(bytes.NewReader(content))
	return string(content)
}

// IsWrite reports whether the request changes an object. Dry runs and access reviews do not.
func (r *Request) IsWrite() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return r.HTTP.URL.Query().Get("dryRun") == "" && r.APIGroup != "authorization.k8s.io" &&
			r.APIGroup != "authentication.k8s.io"
	}
	return false
}

// Fault handles a request in place of the API server, to which forward sends it.
type Fault func(w http.ResponseWriter, r *http.Request, forward http.Handler)

// StartHTTPProxy starts a proxy for the API server in the configuration, which runs until Stop is called.
func StartHTTPProxy(config *rest.Config) (*HTTPProxy, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("failed to parse URL %q: %w", config.Host, err)
	}
	// The proxy forwards the credentials in each request.
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	if err != nil {
		return nil, fmt.Errorf("failed to create the transport of an HTTP proxy: %w", err)
	}
	quiet := log.New(io.Discard, "", 0) // The tests expect errors.
	p := &HTTPProxy{
		forward: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: transport, FlushInterval: -1, ErrorLog: quiet,
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		},
		infos: apirequest.RequestInfoFactory{
			APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
		},
		watches: map[*Request]context.CancelFunc{},
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = quiet
	p.server.StartTLS()
	return p, nil
}

// Stop closes all connections.
func (p *HTTPProxy) Stop() {
	p.Set(nil)
	p.CloseWatches()
	p.server.CloseClientConnections()
	p.server.Close()
}

// ConfigFor returns a copy of a configuration with the proxy as the API server.
func (p *HTTPProxy) ConfigFor(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host = p.server.URL
	config.CAFile, config.CAData = "", pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw,
	})
	return config
}

// Set replaces the function that chooses the fault of each request. If the fault is nil, the proxy forwards the
// request.
func (p *HTTPProxy) Set(choose func(*Request) Fault) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.choose = choose
}

// CloseWatches closes the connections of all watches.
func (p *HTTPProxy) CloseWatches() {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, cancel := range p.watches {
		cancel()
	}
}

// ServeHTTP implements http.Handler.
func (p *HTTPProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := p.infos.NewRequestInfo(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request := &Request{RequestInfo: info, HTTP: r}
	p.lock.Lock()
	choose := p.choose
	if info.Verb == "watch" {
		ctx, cancel := context.WithCancel(r.Context())
		r = r.WithContext(ctx)
		p.watches[request] = cancel
		defer func() {
			cancel()
			p.lock.Lock()
			defer p.lock.Unlock()
			delete(p.watches, request)
		}()
	}
	p.lock.Unlock()
	if choose != nil {
		if fault := choose(request); fault != nil {
			fault(w, r, p.forward)
			return
		}
	}
	p.forward.ServeHTTP(w, r)
}

// Fail responds with an error, and does not forward the request. retryAfter is omitted if it is 0.
func Fail(code int, reason metav1.StatusReason, retryAfter time.Duration) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		status := metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: int32(code), Reason: reason, Message: "the test has rejected the request",
		}
		if seconds := int(retryAfter.Seconds()); seconds > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
			status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(status)
	}
}

// Delay forwards the request after a delay.
func Delay(delay time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		select {
		case <-r.Context().Done():
		case <-time.After(delay):
		}
		forward.ServeHTTP(w, r)
	}
}

// Abort closes the request without a response, after it calls a function.
func Abort(before func()) Fault {
	return func(http.ResponseWriter, *http.Request, http.Handler) {
		before()
		panic(http.ErrAbortHandler)
	}
}

// LoseResponse forwards the request, drops the response, and continues with another fault, such as Fail.
func LoseResponse(then Fault) Fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		// The API server executes the request even if the client closes it.
		r = r.WithContext(context.WithoutCancel(r.Context()))
		forward.ServeHTTP(httptest.NewRecorder(), r)
		then(w, r, forward)
	}
}

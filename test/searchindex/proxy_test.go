// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package searchindex

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
)

// fault handles a request in place of the server, and can forward the request to the server.
type fault func(w http.ResponseWriter, r *http.Request, pass http.Handler)

// proxy forwards requests from the controller to the server, or injects a fault.
type proxy struct {
	fault atomic.Pointer[fault]
	to    http.Handler
}

// newProxy starts a proxy that forwards requests from a listener to a server. If the server is
// unreachable, the proxy closes the connection without a response.
func newProxy(listener net.Listener, server string) (*proxy, *http.Server, error) {
	target, err := url.Parse(server)
	if err != nil {
		return nil, nil, err
	}
	reverse := httputil.NewSingleHostReverseProxy(target)
	reverse.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	p := &proxy{to: reverse}
	p.set(nothing)
	front := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*p.fault.Load())(w, r, p.to)
	})}
	go func() { _ = front.Serve(listener) }()
	return p, front, nil
}

func (p *proxy) set(f fault) { p.fault.Store(&f) }

func nothing(w http.ResponseWriter, r *http.Request, pass http.Handler) { pass.ServeHTTP(w, r) }

// down closes the connection without a response.
func down(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// slow does not respond before the client times out.
func slow(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }

// returning returns a fault that responds with a status and, optionally, Retry-After.
func returning(status int, retryAfter string) fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
	}
}

// responseLost forwards the request and drops the response.
func responseLost(_ http.ResponseWriter, r *http.Request, pass http.Handler) {
	pass.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// onlyFor limits a fault to one method.
func onlyFor(method string, f fault) fault {
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == method {
			f(w, r, pass)
		} else {
			nothing(w, r, pass)
		}
	}
}

// serveLate forwards a request whose client has timed out, and returns the status of the response.
func serveLate(r *http.Request, body []byte, pass http.Handler) int {
	r = r.Clone(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	pass.ServeHTTP(answer, r)
	return answer.Code
}

// nameIn returns the name of the Namespace that owns the index in a path.
func nameIn(path string) string {
	index := strings.Split(strings.TrimPrefix(path, "/indices/"), "/")[0]
	return index[:max(0, strings.LastIndex(index, "-"))]
}

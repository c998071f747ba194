// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// Exchange is a request and the function that sends it.
type Exchange struct {
	*http.Request
	Send func(*http.Request) (*http.Response, error)
}

// Intercept returns a copy of a configuration whose requests are passed to handle.
func Intercept(config *rest.Config, handle func(Exchange) (*http.Response, error)) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			return handle(Exchange{Request: request, Send: next.RoundTrip})
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import "testing"

func TestDescribeConnectionProblem(t *testing.T) {
	const webhook = `Internal error occurred: failed calling webhook "a.b.c": failed to call webhook: Post "https://a.b.svc:443/x?timeout=5s": `
	const server = `failing or missing response from https://10.0.0.1:443/apis/a.b/v1: Get "https://10.0.0.1:443/apis/a.b/v1": `
	for message, expected := range map[string]string{
		webhook + `dial tcp 127.0.0.1:9: connect: connection refused`:                                                    "refuses connections",
		webhook + `context deadline exceeded`:                                                                            "does not respond in time",
		webhook + `net/http: TLS handshake timeout`:                                                                      "does not respond in time",
		webhook + `no endpoints available for service "a"`:                                                               "has no ready endpoint",
		webhook + `service "a" not found`:                                                                                "has no Service",
		webhook + `tls: failed to verify certificate: x509: certificate signed by unknown authority`:                     "has a certificate that the API server does not trust",
		webhook + `tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time …`: "has a certificate that has expired or is not yet valid",
		webhook + `tls: failed to verify certificate: x509: certificate is valid for b, not a.b.svc`:                     "has a certificate for another host name",
		webhook + `tls: failed to verify certificate: x509: certificate is not valid for any names, but wanted a.b.svc`:  "has a certificate for another host name",
		webhook + `remote error: tls: handshake failure`:                                                                 "fails in the TLS handshake",
		webhook + `http: server gave HTTP response to HTTPS client`:                                                      "fails in the TLS handshake",
		webhook + `dial tcp: lookup a.b.svc on 10.0.0.10:53: no such host`:                                               "has a host name that cannot be resolved",
		webhook + `EOF`: "closes connections before it responds",
		server + `net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)`: "does not respond in time",
		server + `dial tcp 10.0.0.1:443: connect: no route to host`:                                                         "cannot be reached through the network",
		server + `read tcp 10.0.0.2:41->10.0.0.1:443: read: connection reset by peer`:                                       "closes connections before it responds",
		`MissingEndpoints endpoints for service/a in "b" have no addresses with port name "https"`:                          "has no ready endpoint",
		`failing or missing response from https://10.0.0.1:443/apis/a.b/v1: bad status from https://10.0.0.1: 401`:          "is failing",
		`the server is currently unable to handle the request`:                                                              "is failing",
	} {
		if found := describeConnectionProblem([]string{"no problem", message}); found != expected {
			t.Errorf("%s: got %q, want %q", message, found, expected)
		}
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import "testing"

func TestFindConnectionProblem(t *testing.T) {
	const webhook = `Internal error occurred: failed calling webhook "a.b.c": failed to call webhook: Post "https://a.b.svc:443/x?timeout=5s": `
	const server = `failing or missing response from https://10.0.0.1:443/apis/a.b/v1: Get "https://10.0.0.1:443/apis/a.b/v1": `
	for message, expected := range map[string]ConnectionProblem{
		webhook + `dial tcp 127.0.0.1:9: connect: connection refused`:                                                    ConnectionRefused,
		webhook + `context deadline exceeded`:                                                                            ConnectionTimeout,
		webhook + `net/http: TLS handshake timeout`:                                                                      ConnectionTimeout,
		webhook + `no endpoints available for service "a"`:                                                               ConnectionNoEndpoints,
		webhook + `service "a" not found`:                                                                                ConnectionNoService,
		webhook + `tls: failed to verify certificate: x509: certificate signed by unknown authority`:                     ConnectionCertificateUnknown,
		webhook + `tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time …`: ConnectionCertificateExpired,
		webhook + `tls: failed to verify certificate: x509: certificate is valid for b, not a.b.svc`:                     ConnectionCertificateName,
		webhook + `tls: failed to verify certificate: x509: certificate is not valid for any names, but wanted a.b.svc`:  ConnectionCertificateName,
		webhook + `remote error: tls: handshake failure`:                                                                 ConnectionTLS,
		webhook + `http: server gave HTTP response to HTTPS client`:                                                      ConnectionTLS,
		webhook + `dial tcp: lookup a.b.svc on 10.0.0.10:53: no such host`:                                               ConnectionUnresolvable,
		webhook + `EOF`: ConnectionClosed,
		server + `net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)`: ConnectionTimeout,
		server + `dial tcp 10.0.0.1:443: connect: no route to host`:                                                         ConnectionUnroutable,
		server + `read tcp 10.0.0.2:41->10.0.0.1:443: read: connection reset by peer`:                                       ConnectionClosed,
		`MissingEndpoints endpoints for service/a in "b" have no addresses with port name "https"`:                          ConnectionNoEndpoints,
		`failing or missing response from https://10.0.0.1:443/apis/a.b/v1: bad status from https://10.0.0.1: 401`:          ConnectionProblemUnknown,
		`the server is currently unable to handle the request`:                                                              ConnectionProblemUnknown,
	} {
		if found := FindConnectionProblem("no problem", message); found != expected {
			t.Errorf("%s: got %q, want %q", message, found, expected)
		}
	}
}

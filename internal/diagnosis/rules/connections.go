// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import "regexp"

// connectionProblems describe why the API server cannot call a webhook or an aggregated API server. The patterns match
// the messages of kube-apiserver and of Go's packages net, net/http and crypto. The first match is the most specific
// one. For example, a TLS handshake can also time out.
var connectionProblems = []struct {
	text    string
	pattern *regexp.Regexp
}{
	{"has a certificate that has expired or is not yet valid",
		regexp.MustCompile(`x509: certificate has expired or is not yet valid`)},
	{"has a certificate for another host name",
		regexp.MustCompile(`x509: (certificate is (not )?valid for|certificate is not valid for|` +
			`cannot validate certificate for|certificate relies on legacy Common Name)`)},
	{"has a certificate that the API server does not trust",
		regexp.MustCompile(`x509: |tls: failed to verify certificate`)},
	{"has no ready endpoint",
		regexp.MustCompile(`no endpoints available for service|\b(MissingEndpoints|EndpointsNotFound)\b`)},
	{"has no Service", regexp.MustCompile(`service "[^"]*" not found|\bServiceNotFound\b`)},
	{"refuses connections", regexp.MustCompile(`connection refused`)},
	{"has a host name that cannot be resolved", regexp.MustCompile(`no such host|server misbehaving`)},
	{"cannot be reached through the network",
		regexp.MustCompile(`no route to host|network is unreachable|host is down`)},
	{"does not respond in time",
		regexp.MustCompile(`TLS handshake timeout|i/o timeout|deadline exceeded|Client\.Timeout exceeded|` +
			`connection timed out|did not complete within|[Tt]imeout: `)},
	{"fails in the TLS handshake", regexp.MustCompile(`tls: |server gave HTTP response to HTTPS client`)},
	{"closes connections before it responds", regexp.MustCompile(`\bEOF\b|connection reset by peer|broken pipe`)},
}

// describeConnectionProblem describes the first known error in the messages.
func describeConnectionProblem(messages []string) string {
	for _, message := range messages {
		for _, known := range connectionProblems {
			if known.pattern.MatchString(message) {
				return known.text
			}
		}
	}
	return "is failing"
}

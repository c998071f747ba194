// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import "regexp"

// Cause states why a namespace makes no progress. The names of causes are public, because they are
// reasons of conditions and values of a metric label. Because of the metric label, the number of
// causes must be small.
type Cause string

// The causes. Their order and their descriptions are in the table of package rules.
const (
	CauseNamespaceControllerUnresponsive Cause = "NamespaceControllerUnresponsive"
	CauseForbidden                       Cause = "Forbidden"
	CauseAPIServiceUnavailable           Cause = "APIServiceUnavailable"
	CauseDiscoveryStale                  Cause = "DiscoveryStale"
	CauseDiscoveryFailing                Cause = "DiscoveryFailing"
	CauseGroupVersionInvalid             Cause = "GroupVersionInvalid"
	CauseConversionWebhookFailing        Cause = "ConversionWebhookFailing"
	CauseStorageUnreadable               Cause = "StorageUnreadable"
	CauseAdmissionWebhookFailing         Cause = "AdmissionWebhookFailing"
	CauseAdmissionRejected               Cause = "AdmissionRejected"
	CauseFinalizerRemovalInvalid         Cause = "FinalizerRemovalInvalid"
	CauseDependencyMissing               Cause = "DependencyMissing"
	CauseFinalizerOwnerFailing           Cause = "FinalizerOwnerFailing"
	CauseObjectPaused                    Cause = "ObjectPaused"
	CauseFinalizerOwnerInNamespace       Cause = "FinalizerOwnerInNamespace"
	CauseFinalizerOwnerNotRunning        Cause = "FinalizerOwnerNotRunning"
	CauseFinalizerOwnerForbidden         Cause = "FinalizerOwnerForbidden"
	CauseFinalizerOwnerNotFound          Cause = "FinalizerOwnerNotFound"
	CausePodOnUnreachableNode            Cause = "PodOnUnreachableNode"
	CausePodNotTerminating               Cause = "PodNotTerminating"
	CausePodFinalizer                    Cause = "PodFinalizer"
	CauseCloudResource                   Cause = "CloudResource"
	CauseVolumeInUse                     Cause = "VolumeInUse"
	CauseForegroundDeletion              Cause = "ForegroundDeletion"
	CauseFinalizerPending                Cause = "FinalizerPending"
	CauseCRDTerminating                  Cause = "CustomResourceDefinitionTerminating"
	CauseThrottled                       Cause = "Throttled"
	CauseTooManyObjects                  Cause = "TooManyObjects"
	CauseNamespaceFinalizer              Cause = "NamespaceFinalizer"
	CauseNamespaceMetadataFinalizer      Cause = "NamespaceMetadataFinalizer"
	CauseUnknown                         Cause = "Unknown"
	CauseInitializerNotRegistered        Cause = "InitializerNotRegistered"
	CauseInitializerFailing              Cause = "InitializerFailing"
	CauseInitializerNotRunning           Cause = "InitializerNotRunning"
	CauseInitializerSlow                 Cause = "InitializerSlow"
	CauseInitializerPending              Cause = "InitializerPending"
)

// ConnectionProblem is the kind of error that prevents the API server from calling a webhook or an
// aggregated API server.
type ConnectionProblem string

// Kinds of errors. ConnectionProblemUnknown is every other error.
const (
	ConnectionProblemUnknown     ConnectionProblem = ""
	ConnectionRefused            ConnectionProblem = "Refused"
	ConnectionClosed             ConnectionProblem = "Closed"
	ConnectionTimeout            ConnectionProblem = "Timeout"
	ConnectionUnroutable         ConnectionProblem = "Unroutable"
	ConnectionUnresolvable       ConnectionProblem = "Unresolvable"
	ConnectionNoEndpoints        ConnectionProblem = "NoEndpoints"
	ConnectionNoService          ConnectionProblem = "NoService"
	ConnectionCertificateExpired ConnectionProblem = "CertificateExpired"
	ConnectionCertificateName    ConnectionProblem = "CertificateName"
	ConnectionCertificateUnknown ConnectionProblem = "CertificateUnknown"
	ConnectionTLS                ConnectionProblem = "TLS"
)

// connectionProblems match the messages of kube-apiserver and of Go's packages net, net/http and
// crypto. The first match is the most specific one. For example, a TLS handshake can also time out.
var connectionProblems = []struct {
	pattern *regexp.Regexp
	problem ConnectionProblem
}{
	{regexp.MustCompile(`x509: certificate has expired or is not yet valid`), ConnectionCertificateExpired},
	{regexp.MustCompile(`x509: (certificate is (not )?valid for|certificate is not valid for|` +
		`cannot validate certificate for|certificate relies on legacy Common Name)`), ConnectionCertificateName},
	{regexp.MustCompile(`x509: |tls: failed to verify certificate`), ConnectionCertificateUnknown},
	{regexp.MustCompile(`no endpoints available for service|\b(MissingEndpoints|EndpointsNotFound)\b`),
		ConnectionNoEndpoints},
	{regexp.MustCompile(`service "[^"]*" not found|\bServiceNotFound\b`), ConnectionNoService},
	{regexp.MustCompile(`connection refused`), ConnectionRefused},
	{regexp.MustCompile(`no such host|server misbehaving`), ConnectionUnresolvable},
	{regexp.MustCompile(`no route to host|network is unreachable|host is down`), ConnectionUnroutable},
	{regexp.MustCompile(`TLS handshake timeout|i/o timeout|deadline exceeded|Client\.Timeout exceeded|` +
		`connection timed out|did not complete within|[Tt]imeout: `), ConnectionTimeout},
	{regexp.MustCompile(`tls: |server gave HTTP response to HTTPS client`), ConnectionTLS},
	{regexp.MustCompile(`\bEOF\b|connection reset by peer|broken pipe`), ConnectionClosed},
}

// FindConnectionProblem returns the kind of the first known error in the messages.
func FindConnectionProblem(messages ...string) ConnectionProblem {
	for _, message := range messages {
		for _, known := range connectionProblems {
			if known.pattern.MatchString(message) {
				return known.problem
			}
		}
	}
	return ConnectionProblemUnknown
}

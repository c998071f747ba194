// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import "regexp"

// Cause states why a namespace makes no progress. The names of causes are public, because they are
// reasons of conditions and values of a metric label. Because of the metric label, the number of
// causes must be small.
type Cause string

// Causes that block a terminating namespace.
const (
	// CauseAPIServiceUnavailable: an aggregated API server does not respond, so its objects in the
	// namespace can be neither listed nor deleted.
	CauseAPIServiceUnavailable Cause = "APIServiceUnavailable"
	// CauseDiscoveryStale: the discovery cache of the API server is stale for a group version.
	CauseDiscoveryStale Cause = "DiscoveryStale"
	// CauseDiscoveryFailing: discovery of a group version fails for another reason.
	CauseDiscoveryFailing Cause = "DiscoveryFailing"
	// CauseGroupVersionInvalid: the name of a group version cannot be parsed.
	CauseGroupVersionInvalid Cause = "GroupVersionInvalid"
	// CauseFinalizerOwnerFailing: a controller published why an object with a finalizer is not deleted.
	CauseFinalizerOwnerFailing Cause = "FinalizerOwnerFailing"
	// CauseObjectPaused: a setting of an object makes the controller responsible for a finalizer ignore it.
	CauseObjectPaused Cause = "ObjectPaused"
	// CauseFinalizerOwnerNotRunning: the controller that is inferred to be responsible for a finalizer has
	// no ready pods.
	CauseFinalizerOwnerNotRunning Cause = "FinalizerOwnerNotRunning"
	// CauseFinalizerOwnerNotFound: no workload was found that could be responsible for a finalizer.
	CauseFinalizerOwnerNotFound Cause = "FinalizerOwnerNotFound"
	// CauseFinalizerOwnerInNamespace: the controller responsible for a finalizer, or its permissions,
	// were in the namespace and are deleted with it.
	CauseFinalizerOwnerInNamespace Cause = "FinalizerOwnerInNamespace"
	// CauseFinalizerOwnerForbidden: the controller responsible for a finalizer lacks permissions.
	CauseFinalizerOwnerForbidden Cause = "FinalizerOwnerForbidden"
	// CauseFinalizerPending: the controller responsible for a finalizer is running or unknown, and has
	// not removed the finalizer.
	CauseFinalizerPending Cause = "FinalizerPending"
	// CauseDependencyMissing: a controller published that an object cannot be finalized because another
	// object does not exist.
	CauseDependencyMissing Cause = "DependencyMissing"
	// CauseConversionWebhookFailing: objects of a CustomResourceDefinition cannot be read because its
	// conversion webhook fails.
	CauseConversionWebhookFailing Cause = "ConversionWebhookFailing"
	// CauseCRDTerminating: a CustomResourceDefinition is being deleted, but the deletion of its objects
	// makes no progress.
	CauseCRDTerminating Cause = "CustomResourceDefinitionTerminating"
	// CauseAdmissionWebhookFailing: an admission webhook with failurePolicy Fail does not respond.
	CauseAdmissionWebhookFailing Cause = "AdmissionWebhookFailing"
	// CauseAdmissionRejected: an admission webhook or policy denies the necessary requests.
	CauseAdmissionRejected Cause = "AdmissionRejected"
	// CauseFinalizerRemovalInvalid: a finalizer cannot be removed because the object is invalid.
	CauseFinalizerRemovalInvalid Cause = "FinalizerRemovalInvalid"
	// CausePodOnUnreachableNode: the node of a pod is unreachable or does not exist.
	CausePodOnUnreachableNode Cause = "PodOnUnreachableNode"
	// CausePodNotTerminating: a pod exceeded its grace period on a node that is ready.
	CausePodNotTerminating Cause = "PodNotTerminating"
	// CausePodFinalizer: a finalizer blocks a pod that has terminated.
	CausePodFinalizer Cause = "PodFinalizer"
	// CauseVolumeInUse: a pod that is not being deleted uses a PersistentVolumeClaim.
	CauseVolumeInUse Cause = "VolumeInUse"
	// CauseCloudResource: a load balancer or another resource outside the cluster has not been deleted.
	CauseCloudResource Cause = "CloudResource"
	// CauseForegroundDeletion: an object waits for the deletion of its dependents.
	CauseForegroundDeletion Cause = "ForegroundDeletion"
	// CauseNamespaceFinalizer: a namespace finalizer (an entry of spec.finalizers) has not been
	// removed.
	CauseNamespaceFinalizer Cause = "NamespaceFinalizer"
	// CauseNamespaceMetadataFinalizer: a finalizer in metadata.finalizers of the Namespace has not
	// been removed.
	CauseNamespaceMetadataFinalizer Cause = "NamespaceMetadataFinalizer"
	// CauseTooManyObjects: requests time out because the namespace contains too many objects.
	CauseTooManyObjects Cause = "TooManyObjects"
	// CauseStorageUnreadable: stored objects cannot be read.
	CauseStorageUnreadable Cause = "StorageUnreadable"
	// CauseNamespaceControllerUnresponsive: no namespace controller deletes the content of the
	// namespace.
	CauseNamespaceControllerUnresponsive Cause = "NamespaceControllerUnresponsive"
	// CauseForbidden: the namespace controller lacks permissions, which can be those that an aggregated API server
	// requires.
	CauseForbidden Cause = "Forbidden"
	// CauseThrottled: the API server throttles the namespace controller.
	CauseThrottled Cause = "Throttled"
	// CauseUnknown: the deletion makes no progress for an unknown reason.
	CauseUnknown Cause = "Unknown"
)

// Causes that block an initializing namespace.
const (
	// CauseInitializerFailing: the initializer published why the initialization is not complete.
	CauseInitializerFailing Cause = "InitializerFailing"
	// CauseInitializerNotRunning: no identity with the "initialize" verb for the namespace is running,
	// except the control plane.
	CauseInitializerNotRunning Cause = "InitializerNotRunning"
	// CauseInitializerSlow: an identity that may initialize the namespace seems to be running, but has
	// not acted within the progress deadline.
	CauseInitializerSlow Cause = "InitializerSlow"
	// CauseInitializerPending: it is unknown whether the initializer is running.
	CauseInitializerPending Cause = "InitializerPending"
	// CauseInitializerNotRegistered: no configuration registers the initializer.
	CauseInitializerNotRegistered Cause = "InitializerNotRegistered"
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

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import "github.com/nslifecycle/nslifecycle/internal/diagnosis"

// Summaries of a diagnosis without findings.
const (
	summaryInitialized    = "The namespace is initialized"
	summaryFailed         = "The initialization failed"
	summaryInitializing   = "Waiting for initializer %s, the first of %d pending"
	summaryDeleted        = "Deleted %s ago; "
	summaryEmptyUnnoticed = "the namespace is empty, but the namespace controller has not observed this yet"
	summaryHeld           = "waiting for %s"
	summaryEmpty          = "no remaining objects are known"
	summaryGracePeriod    = "the grace periods of pods end at %s; %s"
	summaryDecreasing     = "%s, and their number is decreasing"
)

// Strings that several rules share.
const (
	remedyInspectObject = "kubectl get %s %s --namespace=%s --output=yaml --show-managed-fields"
	remedyForcePreview  = "To preview the removal of the finalizer without its owner"

	evidenceCondition        = "condition %s=%s, %s since %s: %s"
	evidenceReport           = "%s of %s %s%s: %s"
	evidenceFinalizer        = "%s %q has deletionTimestamp %s and finalizer %s"
	evidenceBackendDeleted   = " was in this namespace and was deleted with it"
	evidenceBackendMissing   = " does not exist"
	evidenceBackendNotReady  = " has no ready endpoint"
	evidenceLeasesUnread     = "the Leases in kube-system could not be read"
	evidenceNoLease          = "there is no Lease kube-system/%s"
	evidenceNoManagerLease   = "there is no Lease %s of the nslifecycle manager"
	evidenceUnlisted         = "only the first %d of %d %s were examined"
	evidenceTerminatingCRD   = "CustomResourceDefinition %q has deletionTimestamp %s"
	evidenceCRDCondition     = " and condition Terminating=%s, %s: %s"
	evidenceCRDWaits         = "; it is waiting for the deletion of these objects"
	evidencePVCWaits         = "persistentvolumeclaims %q is waiting for pod %q, which mounts it"
	evidenceServiceOfWebhook = "the webhook is served by Service %s"

	remaining        = "%s still exist"
	remainingOne     = "%s still exists"
	remainingAtLeast = "at least %s still exist"
	remainingUnknown = "an unknown number of objects still exist"
)

// connectionProblems describe what prevents the API server from calling a webhook or an aggregated
// API server.
var connectionProblems = map[diagnosis.ConnectionProblem]string{
	diagnosis.ConnectionProblemUnknown:     "is failing",
	diagnosis.ConnectionRefused:            "refuses connections",
	diagnosis.ConnectionClosed:             "closes connections before it responds",
	diagnosis.ConnectionTimeout:            "does not respond in time",
	diagnosis.ConnectionUnroutable:         "cannot be reached through the network",
	diagnosis.ConnectionUnresolvable:       "has a host name that cannot be resolved",
	diagnosis.ConnectionNoEndpoints:        "has no ready endpoint",
	diagnosis.ConnectionNoService:          "has no Service",
	diagnosis.ConnectionCertificateExpired: "has a certificate that has expired or is not yet valid",
	diagnosis.ConnectionCertificateName:    "has a certificate for another host name",
	diagnosis.ConnectionCertificateUnknown: "has a certificate that the API server does not trust",
	diagnosis.ConnectionTLS:                "fails in the TLS handshake",
}

// Discovery.
const (
	messageAPIServiceUnavailable = "The server of APIService %s %s, so its objects in this namespace can be neither " +
		"listed nor deleted"
	messageDiscoveryStale = "The discovery cache of the API server is stale for %s: a direct request returns its " +
		"resource types"
	messageDiscoveryFailing      = "Discovery of %s is failing"
	messageControllerDiscovery   = "The namespace controller cannot discover all resource types"
	messageGroupVersionInvalid   = "The name of a group version cannot be parsed"
	evidenceAPIServiceCondition  = "APIService %s: Available=False, %s since %s: %s"
	evidenceDiscoveryError       = "discovery of %s: %s"
	evidenceDirectDiscoveryError = "direct request for %s: %s"
	evidenceDirectDiscovery      = "%s succeeds"
)

// CustomResourceDefinitions.
const (
	messageConversionFailing = "Objects of kind %s (%s) can be neither read nor deleted because the conversion webhook " +
		"of their CustomResourceDefinition is failing"
	messageCRDTerminating = "CustomResourceDefinition %q is being deleted, but the API server is making no progress in " +
		"deleting %s"
	evidenceNoCABundle = "spec.conversion.webhook.clientConfig of the CustomResourceDefinition has no caBundle"

	remedyListCRDs          = "kubectl get customresourcedefinitions"
	remedyRestoreConversion = "Restore the conversion webhook of this kind"
)

// Storage and requests of the namespace controller.
const (
	messageStorageUnreadable = "Stored objects of type %s cannot be read"
	messageTooManyObjects    = "%d objects of type %s remain, and requests to delete them time out"
	messageThrottled         = "The API server is throttling the requests that delete the content of the namespace"
	messageForbidden         = "The namespace controller lacks a permission: %s"
	messageServerForbidden   = "The server of APIService %s denies a request of the namespace controller: %s"
	// The namespace controller has published no error.
	messageServerForbidsDiagnosis = "The server of APIService %s denies a request of the diagnosis: %s; it may deny the " +
		"namespace controller, too"
	textDenied         = "%s cannot %s %s"
	textUser           = "user %q"
	evidenceGranted    = "kube-apiserver grants %s the verb %s on %s; the server may apply other rules"
	evidenceNotGranted = "kube-apiserver does not grant %s the verb %s on %s"

	remedyGrantRole    = "kubectl create clusterrole %s --verb=%s --resource=%s"
	remedyGrantBinding = "kubectl create clusterrolebinding %s --clusterrole=%s --%s"
	remedyGrantByHand  = "Grant user %q the verb %s on resource %s of API group %s with a ClusterRole and a " +
		"ClusterRoleBinding"
	remedyCanI = "kubectl auth can-i %s %s --namespace=%s --as=%s"
)

// Admission.
const (
	messageWebhookFailing = "Admission webhook %q %s, so %s"
	messageWebhookDenies  = "Admission webhook %q denies requests, so %s"
	messagePolicyDenies   = "ValidatingAdmissionPolicy %q denies requests, so %s"
	messageServerDenies   = "The API server denies requests, so %s"
	messageInvalid        = "Finalizer %s cannot be removed from %s %q because the object is invalid"

	rejectedContent   = "the content of the namespace cannot be deleted"
	rejectedWrite     = "the operator cannot write the Namespace"
	rejectedObject    = "%s %q cannot be deleted"
	rejectedObjects   = "%s %q and other objects cannot be deleted"
	rejectedFinalizer = "finalizer %s cannot be removed from %s %q"
	rejectedStatus    = "the deletion conditions of %s %q cannot be written"

	evidenceDryRunDelete   = "dry run of the deletion of %s %q: %s"
	evidenceDryRunRemoval  = "dry run of the removal of finalizer %s from %s %q: %s"
	evidenceDryRunStatus   = "dry run of a write to the status of %s %q: %s"
	evidenceWebhookURL     = "%s %q calls %s"
	evidenceWebhookService = "%s %q calls Service %s"

	remedyGetConfiguration = "kubectl get %s %s --output=yaml"
	remedyGetPolicy        = "kubectl get validatingadmissionpolicy %s --output=yaml"
	remedyGetBinding       = "kubectl get validatingadmissionpolicybinding %s --output=yaml"
	remedyEditBinding      = "kubectl edit validatingadmissionpolicybinding %s"
	remedyDeleteBinding    = "kubectl delete validatingadmissionpolicybinding %s"
	remedyDeleteWebhook    = "If the webhook was uninstalled permanently, delete its configuration with all its webhooks"

	remedyDeleteConfiguration = "kubectl delete %s %s"
	remedyEditConfiguration   = "kubectl edit %s %s"
	remedyExcludeFromWebhook  = "Or exclude this namespace with the webhook's namespaceSelector"
	remedyExcludeFromBinding  = "Or exclude this namespace with the binding's namespaceSelector"
	remedyPolicyUnused        = "If the policy is no longer needed, delete its binding"

	remedyServerDenies = "Resolve the problem that the error reports"
)

// Finalizers of objects.
const (
	messageFinalizerHeldByOne  = "%s should have been deleted %s ago but has finalizer %s"
	messageFinalizerHeldByMany = "%s should have been deleted %s ago but have finalizer %s"
	messageOwnerFailing        = "%s; %s"
	messageOwnerRunning        = "%s; its owner seems to be running but has not removed it"
	messageOwnerForbidden      = "%s; its owner seems to lack permissions to remove it"
	messageOwnerNotRunning     = "%s; its owner seems not to be running"
	messageOwnerInNamespace    = "%s; its owner seems to have been in this namespace"
	messageKnownNotFound       = "%s, which %s removes; no workload of this controller was found"
	messageOwnerNotFound       = "%s; no Deployment, StatefulSet or DaemonSet was identified as its owner"
	messageOwnerKnown          = "%s, which %s removes"
	messageOwnerUnknown        = "%s; the controller responsible for it is unknown"
	messagePaused              = "%s; its controller does not reconcile it: %s"
	messageBuiltInPending      = "%s should have been deleted %s ago; %s has not removed finalizer %s"
	messageBuiltInNotRunning   = "%s should have been deleted %s ago; finalizer %s must be removed by %s, which is " +
		"not running"

	evidencePaused     = "%s %q has %s %s"
	evidenceDependency = "%s %q does not exist in the namespace"
	evidenceForbidden  = "ServiceAccount %s cannot %s %s in namespace %q"
	evidenceSearch     = "searched for the finalizer's owner in managedFields, Deployments, StatefulSets, DaemonSets, " +
		"ClusterRoles, ClusterRoleBindings and the labels of the CustomResourceDefinition; an owner outside the " +
		"cluster cannot be found"
	evidenceSearchUnread = "; could not read %s"

	remedyOwnerCan       = "kubectl auth can-i %s %s --namespace=%s --as=system:serviceaccount:%s:%s"
	remedyOwnerKnown     = "Check that %s is running, and let it remove the finalizer"
	remedyReadMore       = "Some objects could not be read: ask an administrator to run kubectl nslifecycle explain"
	lossUnknownFinalizer = "Anything that the finalizer's owner has not cleaned up for these objects, inside or " +
		"outside the cluster, is left behind"
)

// Pods.
const (
	messagePodNode        = "%s should have terminated %s ago, but %s"
	messagePodKubelet     = "%s should have terminated %s ago, when the grace period ended"
	messagePodKubeletNode = "; node %q is ready, but its kubelet has not reported the termination"
	evidenceNodeMissing   = "node %q does not exist"
	evidenceNodeNotReady  = "node %q is Ready=%s since %s: %s"
	evidencePod           = "pods %q has deletionTimestamp %s, which includes its grace period of %ds"

	lossPod = "The pod's containers may keep running on the node and using the mounted volumes"
)

// Objects that wait for other objects or for resources outside the cluster.
const (
	messageVolumeInUse = "persistentvolumeclaims %q is in use by pod %q, which is not being deleted"
	messageCloud       = "%s should have been deleted %s ago; %s has not deleted the corresponding resources outside " +
		"the cluster"
	messageForeground = "%s is being deleted in the foreground and is waiting for its dependents, which are not being " +
		"deleted"

	evidencePodMounts   = "pod %q is %s on node %q and mounts it"
	evidenceDependent   = "%s %q is waiting for %s %q, which names it as owner with blockOwnerDeletion"
	evidenceNoDependent = "no remaining dependent in this namespace blocks it"
)

// The Namespace itself.
const (
	messageNamespaceFinalizer   = "The namespace is empty, but %s in its %s has been blocking its deletion for %s"
	messageInitializerFinalizer = "; the finalizer belongs to initializer %s of configuration %q, whose controller must " +
		"remove the finalizer"
	messageNotProcessed = "No namespace controller is processing the deletion: after %s, the Namespace has " +
		"no deletion conditions"
	messageNotProcessedOrDenied = "No namespace controller is processing the deletion, or its writes are denied to its " +
		"user by %s: after %s, the Namespace has no deletion conditions"
	messageNotContinued = "No namespace controller is continuing the deletion: %s, and no namespace controller is " +
		"renewing its Lease"
	messageObjectsRemain    = "some objects have not been deleted"
	messageEmptyUnnoticed   = "the namespace is empty but has not been finalized"
	messageUnknown          = "The deletion is making no progress for an unknown reason"
	messageUnknownRemaining = "%s in the namespace for an unknown reason"
	messageUnprotected      = "%s in the namespace, although the kubernetes finalizer of the Namespace was removed; " +
		"this finalizer must remain until the content is deleted"

	evidenceNamespaceFinalizers  = "%s: [%s], deletionTimestamp %s"
	evidenceInitializerFinalizer = "NamespaceInitializerConfiguration %q has finalizer %s for initializer %s"
	evidenceTerminating          = "deletionTimestamp %s, spec.finalizers: [%s]"
	evidenceWritable             = "the dry runs of writes to the Namespace succeed"

	remedyGetNamespace = "kubectl get namespace %s --output=yaml"
	remedyInitializer  = "Keep the controller of initializer %s running until the namespace is deleted. If the " +
		"controller does not handle deletion, remove finalizer %s from the configuration, so that the finalizer is not " +
		"added to new namespaces"
	remedyUserDependent = "Check that the webhooks and policies exempt the namespace controller " +
		"(ServiceAccount kube-system/namespace-controller, or the one of the nslifecycle manager)"
	remedyUnprotected = "Delete the remaining objects before the last finalizer of the Namespace is removed; " +
		"afterwards, they cannot be reached"
	lossUnprotected = "The remaining objects remain in storage without a namespace"
)

// Initializers.
const (
	messageTurn               = "Initializer %s has been first in the pending list for %s but has not removed its name"
	messageInitializerFailing = "%s; %s"
	messageOnlyWildcards      = "%s; only identities that have all verbs may initialize the namespace, so it is " +
		"unknown which of them is the initializer"
	messageInitializerSubjects   = "%s; the identities with the initialize verb are unknown"
	messageNoInitializerSubject  = "%s; RBAC grants the initialize verb for this namespace only to the control plane"
	messageInitializerRunning    = "%s; it seems to be running"
	messageInitializerUnknown    = "%s; it is unknown whether it is running"
	messageInitializerNotRunning = "%s; it seems not to be running"
	messageNotRegistered         = "%s; no configuration registers it"
	messageInitializationFailed  = "The initialization failed, but the namespace still exists"

	textCondition         = "condition %s=%s, %s: %s"
	evidenceTimeout       = "annotation %s: a deadline counts from %q"
	evidenceTurn          = "pending: %s; %s has been first in the pending list since %s"
	evidenceLastChange    = "the Namespace was last changed at %s, by %q"
	evidenceNotRegistered = "no NamespaceInitializerConfiguration registers %s"

	messageWriteRejected = "the API server rejects a write of the operator to the Namespace: %s"
	remedyWriteRejected  = "Exempt the ServiceAccounts of the operator from the policy or webhook, or grant them the " +
		"permission"
	lossWriteRejected = "Without these writes, the operator can neither continue nor report its progress"
	remedyTemplates   = "Resolve the failures of the templates; if there are none, check that " +
		"nslifecycle-controller-manager is running, and check its log"
	remedyTemplateStatus = "kubectl nslifecycle template status %s"
	remedySkip           = "To use the namespace without the initializer, an administrator can remove it from the " +
		"pending list"
	remedyInstallInitializer = "Install the controller of the initializer, with a ClusterRoleBinding to a ClusterRole " +
		"that grants the initialize verb on namespaces"
	remedyDeleteFailed = "Correct the cause, then delete the namespace and create it again"
	lossFailed         = "All objects in the namespace are deleted"
	lossInitializer    = "The namespace is initialized without the objects that the initializer creates, such as " +
		"quotas, network policies or role bindings"
)

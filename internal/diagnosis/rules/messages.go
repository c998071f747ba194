// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

// Texts that several rules or their tests use.
const (
	remedyForcePreview      = "To preview the removal of the finalizer without its owner"
	evidenceBackendDeleted  = " was in this namespace and was deleted with it"
	evidenceBackendNotReady = " has no ready endpoint"
	evidenceLeasesUnread    = "the Leases in kube-system could not be read"
	evidenceNoLease         = "there is no Lease kube-system/%s"
	evidenceUnlisted        = "only the first %d of %d %s were examined"
	evidenceCRDWaits        = "; it is waiting for the deletion of these objects"

	messageControllerDiscovery   = "The namespace controller cannot discover all resource types"
	evidenceDirectDiscoveryError = "direct request for %s: %s"

	evidenceNoCABundle = "spec.conversion.webhook.clientConfig of the CustomResourceDefinition has no caBundle"

	messageThrottled       = "The API server is throttling the requests that delete the content of the namespace"
	messageServerForbidden = "The server of APIService %s denies a request of the namespace controller: %s"
	// The namespace controller has published no error.
	messageServerForbidsDiagnosis = "The server of APIService %s denies a request of the diagnosis: %s; it may deny the " +
		"namespace controller, too"
	evidenceGranted = "kube-apiserver grants %s the verb %s on %s; the server may apply other rules"

	messageServerDenies  = "The API server denies requests, so %s"
	rejectedWrite        = "the operator cannot write the Namespace"
	rejectedStatus       = "the deletion conditions of %s %q cannot be written"
	evidenceDryRunDelete = "dry run of the deletion of %s %q: %s"
	evidenceDryRunStatus = "dry run of a write to the status of %s %q: %s"

	messageOwnerRunning      = "%s; its owner seems to be running but has not removed it"
	messageOwnerForbidden    = "%s; its owner seems to lack permissions to remove it"
	messageOwnerNotRunning   = "%s; its owner seems not to be running"
	messageOwnerInNamespace  = "%s; its owner seems to have been in this namespace"
	messageKnownNotFound     = "%s, which %s removes; no workload of this controller was found"
	messageOwnerNotFound     = "%s; no Deployment, StatefulSet or DaemonSet was identified as its owner"
	messageOwnerKnown        = "%s, which %s removes"
	messageOwnerUnknown      = "%s; the controller responsible for it is unknown"
	messageBuiltInNotRunning = "%s should have been deleted %s ago; finalizer %s must be removed by %s, which is " +
		"not running"
	evidenceForbidden = "ServiceAccount %s cannot %s %s in namespace %q"
	evidenceSearch    = "searched for the finalizer's owner in managedFields, Deployments, StatefulSets, DaemonSets, " +
		"ClusterRoles, ClusterRoleBindings and the labels of the CustomResourceDefinition; an owner outside the " +
		"cluster cannot be found"
	lossUnknownFinalizer = "Anything that the finalizer's owner has not cleaned up for these objects, inside or " +
		"outside the cluster, is left behind"

	messagePodKubelet     = "%s should have terminated %s ago, when the grace period ended"
	messagePodKubeletNode = "; node %q is ready, but its kubelet has not reported the termination"
	lossPod               = "The pod's containers may keep running on the node and using the mounted volumes"

	messageCloud = "%s should have been deleted %s ago; %s has not deleted the corresponding resources outside " +
		"the cluster"
	messageForeground = "%s is being deleted in the foreground and is waiting for its dependents, which are not being " +
		"deleted"
	evidenceNoDependent = "no remaining dependent in this namespace blocks it"

	messageInitializerFinalizer = "; the finalizer belongs to initializer %s of configuration %q, whose controller must " +
		"remove the finalizer"
	messageNotProcessed = "No namespace controller is processing the deletion: after %s, the Namespace has " +
		"no deletion conditions"
	messageObjectsRemain  = "some objects have not been deleted"
	messageEmptyUnnoticed = "the namespace is empty but has not been finalized"
	messageUnknown        = "The deletion is making no progress for an unknown reason"
	messageUnprotected    = "%s in the namespace, although the kubernetes finalizer of the Namespace was removed; " +
		"this finalizer must remain until the content is deleted"

	messageOnlyWildcards = "%s; only identities that have all verbs may initialize the namespace, so it is " +
		"unknown which of them is the initializer"
	messageInitializerSubjects   = "%s; the identities with the initialize verb are unknown"
	messageNoInitializerSubject  = "%s; RBAC grants the initialize verb for this namespace only to the control plane"
	messageInitializerRunning    = "%s; it seems to be running"
	messageInitializerUnknown    = "%s; it is unknown whether it is running"
	messageInitializerNotRunning = "%s; it seems not to be running"
	messageNotRegistered         = "%s; no configuration registers it"
	messageInitializationFailed  = "The initialization failed, but the namespace still exists"
	evidenceNotRegistered        = "no NamespaceInitializerConfiguration registers %s"

	remedyWriteRejected = "Exempt the ServiceAccounts of the operator from the policy or webhook, or grant them the " +
		"permission"
)

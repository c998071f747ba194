// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Stage is where in its life a namespace is.
type Stage string

const (
	// StageInitializing means: initializers are pending.
	StageInitializing Stage = "Initializing"
	// StageActive means: it can be used.
	StageActive Stage = "Active"
	// StageTerminating means: it has a deletionTimestamp.
	StageTerminating Stage = "Terminating"
)

// State is how a namespace is getting on.
type State string

const (
	// Healthy means: nothing is being waited for.
	Healthy State = "Healthy"
	// Progressing means: something is being waited for, and there is nothing to blame yet.
	Progressing State = "Progressing"
	// Blocked means: there is a finding.
	Blocked State = "Blocked"
)

// Certainty is how sure a finding is.
type Certainty string

const (
	// Proven means: the facts leave no other explanation.
	Proven Certainty = "Proven"
	// Likely means: the facts speak for it.
	Likely Certainty = "Likely"
)

// Cause is why a namespace does not get on. It is the reason of the condition and a label
// of the metrics, so there are few of them, and their names are public.
type Cause string

// Causes that hold a namespace that is being deleted.
const (
	// CauseAPIServiceUnavailable: an aggregated API server does not answer, so that what it
	// holds in the namespace can neither be found nor deleted.
	CauseAPIServiceUnavailable Cause = "APIServiceUnavailable"
	// CauseDiscoveryStale: the API server's discovery of a group version is out of date.
	CauseDiscoveryStale Cause = "DiscoveryStale"
	// CauseDiscoveryFailing: the types of a group version cannot be discovered, for another
	// reason.
	CauseDiscoveryFailing Cause = "DiscoveryFailing"
	// CauseGroupVersionInvalid: a group version has a name that cannot be parsed.
	CauseGroupVersionInvalid Cause = "GroupVersionInvalid"
	// CauseFinalizerOwnerGone: objects have a finalizer, and who should take it off does not
	// exist any more.
	CauseFinalizerOwnerGone Cause = "FinalizerOwnerGone"
	// CauseFinalizerOwnerInNamespace: who should take the finalizer off, or its rights, was
	// in the namespace and is gone with it.
	CauseFinalizerOwnerInNamespace Cause = "FinalizerOwnerInNamespace"
	// CauseFinalizerOwnerForbidden: who should take the finalizer off may not.
	CauseFinalizerOwnerForbidden Cause = "FinalizerOwnerForbidden"
	// CauseFinalizerPending: who should take the finalizer off is there, or is not known,
	// and has not done it.
	CauseFinalizerPending Cause = "FinalizerPending"
	// CauseDependencyDeleted: an object cannot be finalized since another one that it needs
	// was deleted first.
	CauseDependencyDeleted Cause = "DependencyDeleted"
	// CauseConversionWebhookFailing: objects of a CustomResourceDefinition cannot be read
	// since its conversion webhook does not answer.
	CauseConversionWebhookFailing Cause = "ConversionWebhookFailing"
	// CauseCRDTerminating: a CustomResourceDefinition is being deleted, and its objects hold
	// it and the namespace.
	CauseCRDTerminating Cause = "CustomResourceDefinitionTerminating"
	// CauseAdmissionWebhookFailing: an admission webhook that has to agree does not answer.
	CauseAdmissionWebhookFailing Cause = "AdmissionWebhookFailing"
	// CauseAdmissionRefused: an admission webhook or policy refuses what has to be done.
	CauseAdmissionRefused Cause = "AdmissionRefused"
	// CauseFinalizerRemovalInvalid: the finalizer cannot be taken off since the object does
	// not pass validation any more.
	CauseFinalizerRemovalInvalid Cause = "FinalizerRemovalInvalid"
	// CausePodOnUnreachableNode: the kubelet that should end a pod does not answer, or its node is
	// gone.
	CausePodOnUnreachableNode Cause = "PodOnUnreachableNode"
	// CausePodNotTerminating: a pod has outlived its grace period on a node that is alive.
	CausePodNotTerminating Cause = "PodNotTerminating"
	// CausePodFinalizer: a pod has ended and is held by a finalizer.
	CausePodFinalizer Cause = "PodFinalizer"
	// CauseVolumeInUse: a PersistentVolumeClaim is in use by a pod.
	CauseVolumeInUse Cause = "VolumeInUse"
	// CauseCloudResource: a load balancer or another resource outside of the cluster has not
	// been removed.
	CauseCloudResource Cause = "CloudResource"
	// CauseForegroundDeletion: an object waits for its dependents to go.
	CauseForegroundDeletion Cause = "ForegroundDeletion"
	// CauseNamespaceFinalizer: an agent has not released its token in spec.finalizers.
	CauseNamespaceFinalizer Cause = "NamespaceFinalizer"
	// CauseNamespaceMetadataFinalizer: somebody has not taken off a finalizer in
	// metadata.finalizers of the Namespace.
	CauseNamespaceMetadataFinalizer Cause = "NamespaceMetadataFinalizer"
	// CauseTooManyObjects: there are so many objects that requests time out.
	CauseTooManyObjects Cause = "TooManyObjects"
	// CauseStorageUnreadable: stored objects cannot be read.
	CauseStorageUnreadable Cause = "StorageUnreadable"
	// CauseNamespaceControllerUnresponsive: nobody deletes the content of the namespace.
	CauseNamespaceControllerUnresponsive Cause = "NamespaceControllerUnresponsive"
	// CauseForbidden: the namespace controller may not do what it has to.
	CauseForbidden Cause = "Forbidden"
	// CauseThrottled: the API server puts the namespace controller off.
	CauseThrottled Cause = "Throttled"
	// CauseUnknown: something is left, and nothing says why.
	CauseUnknown Cause = "Unknown"
)

// Causes that hold a namespace that is being initialized.
const (
	// CauseInitializerNotRunning: nobody but the control plane holds the verb initialize for the
	// namespace, or nobody who holds it is alive.
	CauseInitializerNotRunning Cause = "InitializerNotRunning"
	// CauseInitializerSlow: somebody who could act seems to be alive, and has not acted for a
	// while.
	CauseInitializerSlow Cause = "InitializerSlow"
	// CauseInitializerUnregistered: the initializer is in no configuration any more.
	CauseInitializerUnregistered Cause = "InitializerUnregistered"
)

// Object names one object of a finding.
type Object struct {
	// Resource is the type as kubectl takes it: deployments.apps, or pods.
	Resource string `json:"resource"`
	// Namespace is empty for a cluster-scoped object.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Finding is one cause, with what speaks for it.
type Finding struct {
	Cause     Cause     `json:"cause"`
	Certainty Certainty `json:"certainty"`
	// Message is one sentence: what holds the namespace, and who should have acted.
	Message string `json:"message"`
	// Objects are a few of those concerned, sorted; Count is the number of all.
	Objects []Object `json:"objects,omitempty"`
	Count   int      `json:"count,omitempty"`
	// Evidence is what the finding rests on, word for word where somebody else said it: a
	// condition, an error, a timestamp.
	Evidence []string `json:"evidence,omitempty"`
	// Remedies are what to do, the best first: each a sentence, or a command that starts
	// with "kubectl ".
	Remedies []string `json:"remedies,omitempty"`
	// Finalizer is what the finding is about, if that is one finalizer: of the objects, with
	// CauseNamespaceMetadataFinalizer of the Namespace, and with CauseNamespaceFinalizer a token in its
	// spec.finalizers.
	Finalizer string `json:"finalizer,omitempty"`
	// IsOwnerGone tells that nobody was found who would take the finalizer off, although
	// it was possible to look: as sure as the finding itself.
	IsOwnerGone bool `json:"isOwnerGone,omitempty"`
	// Loss says what would be lost or left behind if the finalizer or token were removed by
	// force; empty where that is not possible or loses nothing.
	Loss string `json:"loss,omitempty"`
}

// Diagnosis is what Diagnose finds out about a namespace at one moment.
type Diagnosis struct {
	Namespace string    `json:"namespace"`
	UID       types.UID `json:"uid"`
	Stage     Stage     `json:"stage"`
	State     State     `json:"state"`
	// Since is when the stage began.
	Since time.Time `json:"since"`
	// Summary is one sentence: what is being waited for, or the leading finding.
	Summary string `json:"summary"`
	// Findings are sorted, the most likely cause first: proven before likely, and a cause
	// before what follows from it.
	Findings []Finding `json:"findings,omitempty"`
	// Unread says what could not be read, and why: a cause may be hidden there.
	Unread []string `json:"unread,omitempty"`
}

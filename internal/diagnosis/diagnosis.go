// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Stage is a stage in the lifecycle of a namespace.
type Stage string

const (
	// StageInitializing is the stage of a namespace with pending initializers.
	StageInitializing Stage = "Initializing"
	// StageActive is the stage of a namespace that is neither initializing nor terminating.
	StageActive Stage = "Active"
	// StageTerminating is the stage of a namespace with a deletionTimestamp.
	StageTerminating Stage = "Terminating"
)

// State summarizes the diagnosis of a namespace.
type State string

const (
	// Healthy means that the namespace is active.
	Healthy State = "Healthy"
	// Progressing means that the namespace is initializing or terminating, without findings.
	Progressing State = "Progressing"
	// Blocked means that there is at least one finding.
	Blocked State = "Blocked"
	// Unknown means that no cause was found and that it might be among what could not be read.
	Unknown State = "Unknown"
)

// Certainty states how certain a finding is.
type Certainty string

const (
	// Confirmed means that the facts leave no other explanation.
	Confirmed Certainty = "Confirmed"
	// Likely means that the facts support the finding but do not exclude other explanations.
	Likely Certainty = "Likely"
)

// Object identifies an object that a finding is about.
type Object struct {
	// Resource is the resource type as kubectl names it, such as pods or deployments.apps.
	Resource string `json:"resource"`
	// Namespace is empty for a cluster-scoped object.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Finding is one cause with its evidence.
type Finding struct {
	Cause     Cause     `json:"cause"`
	Certainty Certainty `json:"certainty"`
	// Message is a sentence that states what blocks the namespace and which controller is responsible.
	Message string `json:"message"`
	// Objects lists at most MaxObjects of the affected objects, sorted. Count is the total number.
	Objects []Object `json:"objects,omitempty"`
	Count   int      `json:"count,omitempty"`
	// Evidence lists the conditions, errors and timestamps that the finding is based on, verbatim.
	Evidence []string `json:"evidence,omitempty"`
	// Remedies list what the user can do, the recommended action first.
	Remedies []Remedy `json:"remedies,omitempty"`
	// Finalizer is the finalizer that the finding is about, if any. For CauseNamespaceFinalizer it
	// is an entry of spec.finalizers of the Namespace, for CauseNamespaceMetadataFinalizer an entry
	// of metadata.finalizers of the Namespace, and otherwise an entry of metadata.finalizers of
	// Objects.
	Finalizer string `json:"finalizer,omitempty"`
	// IsOwnerGone reports whether the owner of the finalizer is not running or was not found. It is as
	// certain as the finding.
	IsOwnerGone bool `json:"isOwnerGone,omitempty"`
	// Loss states what is lost or left behind if the finalizer is removed by force. It is empty if the
	// removal is not possible or if nothing is lost.
	Loss string `json:"loss,omitempty"`
}

// Diagnosis is the result of diagnosing a namespace.
type Diagnosis struct {
	Namespace string    `json:"namespace"`
	UID       types.UID `json:"uid"`
	Stage     Stage     `json:"stage"`
	State     State     `json:"state"`
	// Since is the time at which the stage began.
	Since time.Time `json:"since"`
	// Summary is the message of the first finding. Without findings, it is a sentence that states what
	// the namespace waits for.
	Summary string `json:"summary"`
	// Findings are sorted: confirmed before likely, and a cause before its consequences.
	Findings []Finding `json:"findings,omitempty"`
	// Unread lists what could not be read, and why. If it is not empty, findings might be missing.
	Unread []string `json:"unread,omitempty"`
}

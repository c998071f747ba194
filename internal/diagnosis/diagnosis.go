// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Stage is the phase of the life cycle that a namespace is in.
type Stage string

const (
	// StageInitializing is the stage of a namespace with pending initializers.
	StageInitializing Stage = "Initializing"
	// StageActive is the stage of a namespace that can be used.
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
)

// Certainty is the degree of certainty of a finding.
type Certainty string

const (
	// Confirmed means that the facts leave no other explanation.
	Confirmed Certainty = "Confirmed"
	// Likely means that the facts support the finding, and do not exclude others.
	Likely Certainty = "Likely"
)

// Object identifies one object of a finding.
type Object struct {
	// Resource is the resource type in the form of kubectl: deployments.apps, or pods.
	Resource string `json:"resource"`
	// Namespace is empty for a cluster-scoped object.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Finding is one cause with its evidence.
type Finding struct {
	Cause     Cause     `json:"cause"`
	Certainty Certainty `json:"certainty"`
	// Message is one sentence: what blocks the namespace, and which controller should have acted.
	Message string `json:"message"`
	// Objects are at most MaxObjects of the objects concerned, sorted. Count is the number of all.
	Objects []Object `json:"objects,omitempty"`
	Count   int      `json:"count,omitempty"`
	// Evidence is what the finding is based on: conditions, errors and timestamps, quoted verbatim.
	Evidence []string `json:"evidence,omitempty"`
	// Remedies list what the user can do, the recommended action first. Each is a sentence, or a
	// command that starts with "kubectl ".
	Remedies []string `json:"remedies,omitempty"`
	// Finalizer is the finalizer that the finding is about, if any. For CauseNamespaceFinalizer it
	// is an entry of spec.finalizers of the Namespace, for CauseNamespaceMetadataFinalizer an entry
	// of metadata.finalizers of the Namespace, and otherwise an entry of metadata.finalizers of
	// Objects.
	Finalizer string `json:"finalizer,omitempty"`
	// IsOwnerGone reports whether no owner of the finalizer was found although all places could be
	// read. It is as certain as the finding.
	IsOwnerGone bool `json:"isOwnerGone,omitempty"`
	// Loss is what is lost or left behind if the finalizer is removed by force; empty if that is not
	// possible or loses nothing.
	Loss string `json:"loss,omitempty"`
}

// Diagnosis is the result of a diagnosis of one namespace.
type Diagnosis struct {
	Namespace string    `json:"namespace"`
	UID       types.UID `json:"uid"`
	Stage     Stage     `json:"stage"`
	State     State     `json:"state"`
	// Since is when the stage began.
	Since time.Time `json:"since"`
	// Summary is one sentence: what the namespace waits for, or the message of the first finding.
	Summary string `json:"summary"`
	// Findings are sorted: confirmed before likely, and a cause before its consequences.
	Findings []Finding `json:"findings,omitempty"`
	// Unread lists what could not be read, and why. The cause may be hidden there.
	Unread []string `json:"unread,omitempty"`
}

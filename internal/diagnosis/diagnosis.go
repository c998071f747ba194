// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"slices"
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

// Rank states what evidence is based on, and what a finding is based on.
type Rank string

const (
	// RankProven is the rank of answers of the API server itself: responses to dry runs and to
	// discovery, deletionTimestamps, managedFields, and whether an object exists. A proven finding has no
	// other explanation.
	RankProven Rank = "Proven"
	// RankPublished is the rank of what a controller published: conditions and Events. It is quoted.
	RankPublished Rank = "Published"
	// RankInferred is the rank of conclusions that do not exclude other explanations, for example which
	// controller is the owner of a finalizer.
	RankInferred Rank = "Inferred"
)

// Evidence is a fact that a finding is based on.
type Evidence struct {
	Rank Rank   `json:"rank"`
	Text string `json:"text"`
}

// Proven returns evidence with RankProven.
func Proven(texts ...string) []Evidence { return makeEvidence(RankProven, texts) }

// Published returns evidence with RankPublished.
func Published(texts ...string) []Evidence { return makeEvidence(RankPublished, texts) }

// Inferred returns evidence with RankInferred.
func Inferred(texts ...string) []Evidence { return makeEvidence(RankInferred, texts) }

// TextsOf returns the texts of evidence.
func TextsOf(evidence []Evidence) []string {
	var texts []string
	for _, one := range evidence {
		texts = append(texts, one.Text)
	}
	return texts
}

// makeEvidence omits empty texts.
func makeEvidence(rank Rank, texts []string) []Evidence {
	var evidence []Evidence
	for _, text := range texts {
		if text != "" {
			evidence = append(evidence, Evidence{rank, text})
		}
	}
	return evidence
}

// OwnerState states whether the controller responsible for a finalizer can still remove it.
type OwnerState string

const (
	// OwnerRunning means that a workload that is inferred to be the owner has ready pods, or that the
	// owner has changed an object since its deletion.
	OwnerRunning OwnerState = "Running"
	// OwnerNotRunning means that the workloads that are inferred to be the owner have no ready pods.
	OwnerNotRunning OwnerState = "NotRunning"
	// OwnerNotFound means that no workload is known to be the owner. The owner can still exist, in the
	// cluster or outside.
	OwnerNotFound OwnerState = "NotFound"
	// OwnerAbsent means that the owner provably does not exist.
	OwnerAbsent OwnerState = "Absent"
	// OwnerUnknown means that the search was not complete, or that it found several possible owners.
	OwnerUnknown OwnerState = "Unknown"
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
	Cause Cause `json:"cause"`
	// Rank is the rank of the evidence for the cause.
	Rank Rank `json:"rank"`
	// Message is a sentence that states what blocks the namespace and which controller is responsible.
	Message string `json:"message"`
	// Objects lists at most MaxObjects of the affected objects, sorted. Count is the total number.
	Objects []Object `json:"objects,omitempty"`
	Count   int      `json:"count,omitempty"`
	// Evidence lists what the finding is based on. Conditions, Events and errors are quoted.
	Evidence []Evidence `json:"evidence,omitempty"`
	// Remedies list what the user can do, the recommended action first.
	Remedies []Remedy `json:"remedies,omitempty"`
	// Finalizer is the finalizer that the finding is about, if any. For CauseNamespaceFinalizer it
	// is an entry of spec.finalizers of the Namespace, for CauseNamespaceMetadataFinalizer an entry
	// of metadata.finalizers of the Namespace, and otherwise an entry of metadata.finalizers of
	// Objects.
	Finalizer string `json:"finalizer,omitempty"`
	// OwnerState is the state of the owner of Finalizer. It is empty if the finding is not about a
	// finalizer.
	OwnerState OwnerState `json:"ownerState,omitempty"`
	// Loss states what is lost or left behind if the finalizer is removed by force. It is empty if the
	// removal is not possible or if nothing is lost.
	Loss string `json:"loss,omitempty"`
}

// HasEvidence reports whether the finding has evidence of a rank.
func (f *Finding) HasEvidence(rank Rank) bool {
	return slices.ContainsFunc(f.Evidence, func(evidence Evidence) bool { return evidence.Rank == rank })
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
	// Findings are sorted: by rank, and a cause before its consequences.
	Findings []Finding `json:"findings,omitempty"`
	// Unread lists what could not be read, and why. If it is not empty, findings might be missing.
	Unread []string `json:"unread,omitempty"`
}

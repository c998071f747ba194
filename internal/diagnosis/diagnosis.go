// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/shell"
)

// NamespaceState is the state of a namespace.
type NamespaceState string

const (
	// StateInitializing is the state of a namespace with pending initializers.
	StateInitializing NamespaceState = v1alpha1.ReasonInitializing
	// StateInitialized is the state of a namespace without pending initializers.
	StateInitialized NamespaceState = v1alpha1.ReasonInitialized
	// StateFailed is the state of a namespace whose initialization has failed.
	StateFailed NamespaceState = v1alpha1.ReasonFailed
	// StateTerminating is the state of a namespace with a deletionTimestamp.
	StateTerminating NamespaceState = v1alpha1.ReasonTerminating
)

// Health summarizes the diagnosis of a namespace.
type Health string

const (
	// Healthy means that the namespace is initialized.
	Healthy Health = "Healthy"
	// Degraded means that the namespace is initialized, but that a template fails in it. Only the plugin reads templates.
	Degraded Health = "Degraded"
	// Progressing means that the namespace is in another state, without findings.
	Progressing Health = "Progressing"
	// Blocked means that there is at least one finding.
	Blocked Health = "Blocked"
	// Unknown means that no cause was found, but that some facts could not be read.
	Unknown Health = "Unknown"
)

// Rank states how reliable evidence or a finding is.
type Rank string

const (
	// RankProven is the rank of answers of the API server itself: responses to dry runs and to
	// discovery, deletionTimestamps, managedFields, and whether an object exists. A proven finding has no
	// other explanation.
	RankProven Rank = "Proven"
	// RankPublished is the rank of conditions and Events that a controller published. They are quoted.
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
	Namespace string         `json:"namespace"`
	UID       types.UID      `json:"uid"`
	State     NamespaceState `json:"state"`
	Result    Health         `json:"result"`
	// Since is the time at which the state began.
	Since time.Time `json:"since"`
	// Summary is the message of the first finding. Without findings, it is a sentence that states what
	// the namespace waits for.
	Summary string `json:"summary"`
	// Findings are sorted: by rank, and a cause before its consequences.
	Findings []Finding `json:"findings,omitempty"`
	// Unread lists the facts that could not be read, with the errors. If it is not empty, findings might be missing.
	Unread []string `json:"unread,omitempty"`
}

// Remedy is something that the user can do about a finding: a sentence, a command, or a command with a
// sentence that states when to run it.
type Remedy struct {
	Text string `json:"text,omitempty"`
	// Command is a kubectl command that users can copy.
	Command string `json:"command,omitempty"`
	// Changes reports whether the remedy changes something. All other remedies only help to inspect the cause.
	Changes bool `json:"changes,omitempty"`
}

// Inspect returns a remedy that changes nothing. The text is a sentence or a command.
func Inspect(text string) Remedy {
	if shell.IsCommand(text) {
		return Remedy{Command: text}
	}
	return Remedy{Text: text}
}

// Resolve returns a remedy that changes something. The text is a sentence or a command.
func Resolve(text string) Remedy {
	remedy := Inspect(text)
	remedy.Changes = true
	return remedy
}

// ResolveWith returns a command that changes something, with a sentence that states when to run it.
func ResolveWith(text, command string) Remedy {
	if !shell.IsCommand(command) {
		return Resolve(text + ": " + command)
	}
	return Remedy{Text: text, Command: command, Changes: true}
}

// String returns the remedy as one line.
func (r Remedy) String() string {
	if r.Text == "" || r.Command == "" {
		return r.Text + r.Command
	}
	return r.Text + ": " + r.Command
}

// Public findings are published in conditions and Events of the Namespace, where users who cannot
// read other namespaces can read them. They name only objects in the namespace and cluster-scoped
// objects, and quote no errors. They do not depend on workloads, ServiceAccounts and Leases in
// other namespaces. Otherwise, a user could add a finalizer with a guessed name to determine whether
// this name exists in another namespace.

// MayName reports whether findings may name, and depend on, objects in a namespace.
func (f *Facts) MayName(namespace string) bool {
	return !f.IsPublic || namespace == f.Namespace.Name
}

// UnlessPublic returns public if the findings are published, and text otherwise.
func (f *Facts) UnlessPublic(text, public string) string {
	if f.IsPublic {
		return public
	}
	return text
}

// Detail returns text for the end of a message, such as an error. It returns "" for public findings,
// because the text can name any object.
func (f *Facts) Detail(text string) string { return f.UnlessPublic(": "+OneLine(text), "") }

// ServiceName returns a name for the Service of a webhook or an aggregated API server.
func (f *Facts) ServiceName(name types.NamespacedName) string {
	if f.MayName(name.Namespace) {
		return "Service " + name.String()
	}
	return "its Service"
}

// Redact removes texts that must not be published. It keeps the first remedy of each finding, which names
// only objects in the namespace and cluster-scoped objects. Other remedies can name other objects.
func (f *Facts) Redact(findings []Finding) {
	for i := range findings {
		finding := &findings[i]
		finding.Evidence, finding.Remedies = nil, finding.Remedies[:min(len(finding.Remedies), 1)]
		finding.Objects = slices.DeleteFunc(finding.Objects, func(object Object) bool {
			return object.Namespace != "" && !f.MayName(object.Namespace)
		})
	}
}

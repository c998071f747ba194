// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// Phase is the state of a Namespace that is not being deleted.
type Phase string

// The states of a Namespace that is not being deleted. The reasons of its conditions are the same words.
const (
	// PhaseInitializing means that initializers are pending.
	PhaseInitializing Phase = v1alpha1.ReasonInitializing
	// PhaseInitialized means that no initializers are pending.
	PhaseInitialized Phase = v1alpha1.ReasonInitialized
	// PhaseFailed means that an initializer, or the operator after a timeout, has set a failure
	// result.
	PhaseFailed Phase = v1alpha1.ReasonFailed
)

// State is the state of the initialization as recorded in the labels and annotations of a
// Namespace.
type State struct {
	Phase Phase
	// All are the names of all initializers that the Namespace has or had, in order.
	All []string
	// Pending are the names on the pending list, in order.
	Pending []string
	// Failure is the failure result. It is set only in PhaseFailed.
	Failure *metav1.Status
	// ResultProblem is the reason why the result is invalid; empty if the result is valid. In
	// PhaseInitializing, an invalid result is ignored.
	ResultProblem string
	// LabelRepair is the value that the label v1alpha1.LabelInitializing should have if the label
	// does not match the pending list; nil if it matches. The empty string means that the label
	// should not exist.
	LabelRepair *string
}

// ParseState returns the state that the labels and annotations record. It does not depend on conditions, which users
// can change while the admission policies are not installed. The pending list is authoritative; the label exists only
// for selectors. The result is used only while initializers
// are pending.
func ParseState(namespace *corev1.Namespace) State {
	state := State{
		All:     SplitNames(namespace.Annotations[v1alpha1.AnnotationInitializers]),
		Pending: SplitNames(namespace.Annotations[v1alpha1.AnnotationPendingInitializers]),
	}
	for _, name := range state.Pending {
		if !slices.Contains(state.All, name) {
			state.All = append(state.All, name)
		}
	}

	state.Phase = PhaseInitialized
	if len(state.Pending) > 0 {
		state.Phase = PhaseInitializing
		if state.Failure, state.ResultProblem = parseResult(namespace); state.Failure != nil {
			state.Phase = PhaseFailed
		}
	}

	want := ""
	if len(state.Pending) > 0 {
		want = "true"
	}
	if current, ok := namespace.Labels[v1alpha1.LabelInitializing]; current != want || (ok && want == "") {
		state.LabelRepair = &want
	}
	return state
}

// blanks are the whitespace characters that the admission policies ignore in a list (\s in RE2). If
// the definitions differed, the policies would restore a blank list that the operator removes.
const blanks = "\t\n\f\r "

// SplitNames splits a comma-separated list of names. It drops blanks, empty names and duplicates,
// which manually edited lists can contain.
func SplitNames(list string) []string {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.Trim(name, blanks); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// FailurePattern matches a JSON object with "status":"Failure" at its top level. The admission policies contain it,
// because CEL cannot parse JSON. If the operator and the policies disagreed on whether an initialization has failed, a
// namespace could neither complete its initialization nor be deleted.
const FailurePattern = `(?s)^\s*[{]([^{}]|[{][^{}]*[}])*"status"\s*:\s*"Failure".*[}]\s*$`

var failurePattern = regexp.MustCompile(FailurePattern)

// IsFailure reports whether the result of an initialization is a failure.
func IsFailure(result string) bool { return failurePattern.MatchString(result) }

// parseResult returns the failure that the result of a Namespace contains, and why the result is
// invalid.
func parseResult(namespace *corev1.Namespace) (failure *metav1.Status, problem string) {
	text := namespace.Annotations[v1alpha1.AnnotationInitializationResult]
	if text == "" {
		return nil, ""
	}
	var status metav1.Status
	err := json.Unmarshal([]byte(text), &status)
	switch {
	case !IsFailure(text):
		return nil, ignoredResultMessage(err, status.Status)
	case err != nil:
		// The fields that were decoded before the error are not reliable.
		return &metav1.Status{Status: metav1.StatusFailure}, invalidResultMessage(err)
	}
	status.Status = metav1.StatusFailure // The JSON can contain the field twice.
	return &status, ""
}

// WhyNotDelete returns why the operator must not delete a Namespace after its initialization has
// failed, or "" if it may delete the Namespace. The Namespace is kept unless it is certain that it
// was created with initializers.
func WhyNotDelete(namespace *corev1.Namespace, state State, exempt []string) string {
	switch {
	case state.Phase != PhaseFailed:
		return messageNotFailed
	case slices.Contains(exempt, namespace.Name):
		return messageExempt
	case namespace.Labels[v1alpha1.LabelInitializing] != "true":
		return messageNoLabel
	case namespace.Annotations[v1alpha1.AnnotationInitializers] == "":
		return messageNoInitializer
	}
	return nsobject.ProtectionMessage(namespace)
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/protection"
)

// Stage is where a Namespace stands in its initialization.
type Stage string

// The stages.
const (
	// StageNotRequired: the Namespace never had to wait for an initializer.
	StageNotRequired Stage = "NotRequired"
	// StagePending: initializers have work to do.
	StagePending Stage = "Pending"
	// StageCompleted: all initializers have done their work.
	StageCompleted Stage = "Completed"
	// StageFailed: an initializer has said that the Namespace cannot be initialized.
	StageFailed Stage = "Failed"
)

// State is what a Namespace says about its own initialization.
type State struct {
	Stage Stage
	// All names every initializer that the Namespace has or had to wait for, in order.
	All []string
	// Pending names those that have not done their work, in order.
	Pending []string
	// Failure is the result that an initializer left; set exactly in StageFailed.
	Failure *metav1.Status
	// ResultProblem says what is wrong with the result, or is empty. In StagePending the result
	// is ignored.
	ResultProblem string
	// Repair is the value that label v1alpha1.LabelInitializing should have where
	// it disagrees with the list, nil where it does agree. An empty value means
	// that the label should not be there.
	Repair *string
}

// Observe reads the state from labels and annotations. The list decides: the label
// only mirrors it for selectors. A result counts while something is pending.
func Observe(namespace *corev1.Namespace) State {
	state := State{
		All:     SplitNames(namespace.Annotations[v1alpha1.AnnotationInitializers]),
		Pending: SplitNames(namespace.Annotations[v1alpha1.AnnotationPendingInitializers]),
	}
	for _, name := range state.Pending {
		if !slices.Contains(state.All, name) {
			state.All = append(state.All, name)
		}
	}

	switch {
	case len(state.Pending) > 0:
		state.Stage = StagePending
		state.Failure, state.ResultProblem = parseResult(namespace)
		if state.Failure != nil {
			state.Stage = StageFailed
		}
	case len(state.All) > 0 || conditionReason(namespace) == v1alpha1.ReasonCompleted ||
		conditionReason(namespace) == v1alpha1.ReasonPending:
		state.Stage = StageCompleted
	default:
		state.Stage = StageNotRequired
	}

	want := ""
	if len(state.Pending) > 0 {
		want = "true"
	}
	if have, found := namespace.Labels[v1alpha1.LabelInitializing]; have != want || (found && want == "") {
		state.Repair = &want
	}
	return state
}

// blanks are the characters that do not make an entry of a list, as the admission policies see them
// (\s of RE2). With others, the policies would put back what the operator removes as blank.
const blanks = "\t\n\f\r "

// SplitNames splits a comma-separated list of names. Blanks, empty names and repeats are dropped, so
// that a list that was edited by hand can still be read.
func SplitNames(list string) []string {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.Trim(name, blanks); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// failurePattern matches a JSON object with "status":"Failure" at its top level, as the admission
// policies complete and guard match it, since CEL cannot parse JSON. It alone decides whether an
// initialization has failed: with two definitions, a namespace could be neither opened nor deleted.
var failurePattern = regexp.MustCompile(`(?s)^\s*[{]([^{}]|[{][^{}]*[}])*"status"\s*:\s*"Failure".*[}]\s*$`)

// parseResult returns the failure in a Namespace's result, and a message about what is wrong with
// the result. Without a failure the message says why the result is ignored.
func parseResult(namespace *corev1.Namespace) (*metav1.Status, string) {
	text := namespace.Annotations[v1alpha1.AnnotationInitializationResult]
	if text == "" {
		return nil, ""
	}
	var status metav1.Status
	err := json.Unmarshal([]byte(text), &status)
	switch {
	case failurePattern.MatchString(text) && err != nil:
		// The fields that were parsed before the error are not reliable.
		return &metav1.Status{Status: metav1.StatusFailure}, fmt.Sprintf(
			"annotation %s is not the JSON of a metav1.Status: %v", v1alpha1.AnnotationInitializationResult, err)
	case failurePattern.MatchString(text):
		status.Status = metav1.StatusFailure // Also if the field occurs twice.
		return &status, ""
	case err != nil:
		return nil, fmt.Sprintf("annotation %s is ignored because it is not the JSON of a metav1.Status: %v",
			v1alpha1.AnnotationInitializationResult, err)
	case status.Status == metav1.StatusFailure:
		return nil, fmt.Sprintf(`annotation %s is ignored because it does not contain "status":%q as plain text `+
			"at the top level, before any text with braces",
			v1alpha1.AnnotationInitializationResult, metav1.StatusFailure)
	}
	return nil, fmt.Sprintf("annotation %s is ignored because its status is %q and not %q; "+
		"to report success, remove the initializer's name from %s instead",
		v1alpha1.AnnotationInitializationResult, status.Status, metav1.StatusFailure,
		v1alpha1.AnnotationPendingInitializers)
}

// WhyNotDelete returns why a Namespace in StageFailed must not be deleted, or ""
// where it may be. Whatever is not plainly a Namespace that the API server itself
// has put under initialization stays.
func WhyNotDelete(namespace *corev1.Namespace, state State, systemNamespace string) string {
	switch {
	case state.Stage != StageFailed:
		return "its initialization has not failed"
	case IsExempt(namespace.Name, systemNamespace):
		return "it is never initialized"
	case namespace.Labels[v1alpha1.LabelInitializing] != "true":
		return fmt.Sprintf("it lacks label %s", v1alpha1.LabelInitializing)
	case namespace.Annotations[v1alpha1.AnnotationInitializers] == "":
		return fmt.Sprintf("it lacks annotation %s, so it was not created to be initialized",
			v1alpha1.AnnotationInitializers)
	case openFor(namespace) >= maxWindow:
		return fmt.Sprintf("it was open for %s before the operator gave it its initializers, and may hold what others "+
			"have put there; delete it yourself, or correct annotation %s",
			openFor(namespace), v1alpha1.AnnotationInitializationResult)
	}
	return protection.WhyNotDelete(namespace)
}

// IsExempt tells whether a Namespace never waits for initializers: those that the
// API server cannot do without, and the one that the operator runs in. It says in
// Go what config/admission/inject.yaml says in CEL.
func IsExempt(name, systemNamespace string) bool {
	switch name {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease:
		return true
	}
	return name == systemNamespace
}

func conditionReason(namespace *corev1.Namespace) string {
	if condition := nscondition.Find(namespace, v1alpha1.ConditionInitializing); condition != nil {
		return condition.Reason
	}
	return ""
}

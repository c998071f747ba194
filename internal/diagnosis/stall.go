// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// maxFingerprints is the maximum number of recorded states of a Namespace. Controllers that overwrite
// each other's conditions alternate between fewer states.
const maxFingerprints = 16

// StallDetector detects whether a Namespace makes progress. The zero value is ready to use.
type StallDetector struct {
	uid   types.UID
	state NamespaceState
	since time.Time
	// seen are the fingerprints of the latest distinct states.
	seen []fingerprint
}

// fingerprint is a hash of the fields that show the progress of a Namespace.
type fingerprint [sha256.Size]byte

// Update records the state of a Namespace, and reports whether the Namespace made progress: its UID
// or state differs from the recorded one, or its state was not recorded recently. A Namespace makes
// no progress if two controllers keep overwriting each other's conditions.
func (d *StallDetector) Update(namespace *corev1.Namespace, now time.Time) bool {
	state, current := StateOf(namespace), fingerprintOf(namespace)
	if d.uid != namespace.UID || d.state != state {
		*d = StallDetector{uid: namespace.UID, state: state}
	}
	if slices.Contains(d.seen, current) {
		return false
	}
	d.seen = append(d.seen, current)
	if len(d.seen) > maxFingerprints {
		d.seen = slices.Delete(d.seen, 0, 1)
	}
	d.since = now
	return true
}

// IsStalled reports whether the state of a Namespace was recorded before.
func (d *StallDetector) IsStalled(namespace *corev1.Namespace) bool {
	return d.uid == namespace.UID && d.state == StateOf(namespace) && slices.Contains(d.seen, fingerprintOf(namespace))
}

// UID returns the UID of the recorded Namespace.
func (d *StallDetector) UID() types.UID { return d.uid }

// State returns the recorded state.
func (d *StallDetector) State() NamespaceState { return d.state }

// Since returns when the Namespace last made progress.
func (d *StallDetector) Since() time.Time { return d.since }

// fingerprintOf hashes the namespace finalizers, the finalizers, the pending initializers, the
// result, and all conditions except those written by the diagnosis, and Ready and Stalled, which repeat them.
func fingerprintOf(namespace *corev1.Namespace) fingerprint {
	var conditions []string
	for _, condition := range namespace.Status.Conditions {
		switch condition.Type {
		case v1alpha1.ConditionDeletionBlocked, v1alpha1.ConditionInitializationBlocked,
			v1alpha1.ConditionReady, v1alpha1.ConditionStalled:
			continue
		}
		message := condition.Message
		if ListsErrors(condition.Type) {
			message = wordsOf(message)
		}
		conditions = append(conditions, fmt.Sprintf("%q",
			[]string{string(condition.Type), string(condition.Status), condition.Reason, message}))
	}
	slices.Sort(conditions)
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q",
		conditions, namespace.Spec.Finalizers, namespace.Finalizers,
		namespace.Annotations[v1alpha1.AnnotationPendingInitializers],
		namespace.Annotations[v1alpha1.AnnotationInitializationResult]))
}

// ListsErrors reports whether the message of a condition lists errors. In messages of other
// conditions, numbers show progress.
func ListsErrors(conditionType corev1.NamespaceConditionType) bool {
	return slices.Contains(FailureConditions, conditionType)
}

// wordsOf returns the sorted, distinct words of text without numbers, because ports and times in
// errors vary, and kube-controller-manager lists errors in random order.
func wordsOf(text string) string {
	words := strings.FieldsFunc(text, func(char rune) bool { return !unicode.IsLetter(char) })
	slices.Sort(words)
	return strings.Join(slices.Compact(words), " ")
}

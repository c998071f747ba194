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

// maxRemembered is how many states of a Namespace are remembered. It is more than those
// that writers who disagree take turns with.
const maxRemembered = 16

// Standstill tells how long a Namespace has not moved. The zero value has seen nothing.
type Standstill struct {
	uid   types.UID
	stage Stage
	since time.Time
	// seen are the latest different states.
	seen []fingerprint
}

// fingerprint is what a Namespace shows of its progress.
type fingerprint [sha256.Size]byte

// Observe takes notice of a Namespace as it is now, and returns whether that is new. It is
// new if the Namespace is another one, is in another stage of its life, or shows a state
// that it has not shown lately. Where two controllers disagree, and each writes its own
// conditions in turn, the Namespace stands still all the same.
func (s *Standstill) Observe(namespace *corev1.Namespace, now time.Time) bool {
	stage, shown := stageOf(namespace), fingerprintOf(namespace)
	if s.uid != namespace.UID || s.stage != stage {
		*s = Standstill{uid: namespace.UID, stage: stage}
	}
	if slices.Contains(s.seen, shown) {
		return false
	}
	s.seen = append(s.seen, shown)
	if len(s.seen) > maxRemembered {
		s.seen = slices.Delete(s.seen, 0, 1)
	}
	s.since = now
	return true
}

// Knows tells whether a Namespace is in a state that was observed before.
func (s *Standstill) Knows(namespace *corev1.Namespace) bool {
	return s.uid == namespace.UID && s.stage == stageOf(namespace) && slices.Contains(s.seen, fingerprintOf(namespace))
}

// UID is that of the Namespace.
func (s *Standstill) UID() types.UID { return s.uid }

// Stage is where in its life the Namespace is.
func (s *Standstill) Stage() Stage { return s.stage }

// Since is when the last new state was observed.
func (s *Standstill) Since() time.Time { return s.since }

// fingerprintOf condenses what tells of the progress of a Namespace: tokens, finalizers, the list
// of pending initializers, a result, and all conditions but those that say it stands still.
func fingerprintOf(namespace *corev1.Namespace) fingerprint {
	var conditions []string
	for _, condition := range namespace.Status.Conditions {
		if condition.Type == v1alpha1.ConditionDeletionBlocked || condition.Type == v1alpha1.ConditionInitializationBlocked {
			continue
		}
		message := condition.Message
		if isOfErrors(condition.Type) {
			message = essence(message)
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

// isOfErrors tells whether the message of a condition lists errors. Other messages have
// counts, and they tell of progress.
func isOfErrors(conditionType corev1.NamespaceConditionType) bool {
	switch conditionType {
	case corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
		corev1.NamespaceDeletionContentFailure:
		return true
	}
	return false
}

// essence returns the words of a text, sorted, and no numbers: errors name ports and times
// that are others each time, and kube-controller-manager lists them in no particular order.
func essence(text string) string {
	words := strings.FieldsFunc(text, func(char rune) bool { return !unicode.IsLetter(char) })
	slices.Sort(words)
	return strings.Join(slices.Compact(words), " ")
}

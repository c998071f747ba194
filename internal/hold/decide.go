// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// decision is what happens to a write.
type decision int

const (
	// decideResend: the client sends the write again.
	decideResend decision = iota
	// decideHold: the write waits for the initialization.
	decideHold
	// decideFail: the initialization has failed, and the gate never admits the write.
	decideFail
	// decideAllow: the gate decides, because it admits deletions, and updates of objects that are being deleted.
	decideAllow
)

// decide returns the decision about a write that has not been held. The Namespace is from the cache, and nil if
// the cache does not contain it. Only an initializing Namespace, with the same label as for the gate, makes a
// difference: otherwise, the response does not depend on whether the Namespace exists.
func decide(operation admissionv1.Operation, namespace *corev1.Namespace) decision {
	switch {
	case namespace == nil || !hasLabel(namespace):
		return decideResend
	case namespace.DeletionTimestamp != nil && operation == admissionv1.Create:
		return decideResend
	case namespace.DeletionTimestamp != nil:
		return decideAllow
	case initialization.ParseState(namespace).Phase == initialization.PhaseFailed:
		return decideFail
	}
	return decideHold
}

// hasEnded reports whether there is nothing to wait for any more. The Namespaces are those when the hold
// began and now, which is nil if it does not exist.
func hasEnded(before, now *corev1.Namespace) bool {
	return now == nil || now.UID != before.UID || decide(admissionv1.Create, now) != decideHold
}

func hasLabel(namespace *corev1.Namespace) bool {
	_, ok := namespace.Labels[v1alpha1.LabelInitializing]
	return ok
}

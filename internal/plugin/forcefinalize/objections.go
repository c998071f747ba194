// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// computeObjections returns the objections to a plan, except those that the permissions override.
func computeObjections(plan *Plan, allowed Permissions) []string {
	var objections []string
	if number := len(plan.Orphans); number > 0 && !allowed.Orphan {
		objections = append(objections, objectionOrphans(number))
	}
	if len(plan.Unread) > 0 && !allowed.AllowUnread {
		objections = append(objections, objectionUnread(plan.Unread))
	}
	if reason := activeOwnerReason(plan.Diagnosis, plan.Removal); reason != "" && !allowed.IgnoreActiveOwner {
		objections = append(objections, objectionActiveOwner(reason))
	}
	return objections
}

// activeOwnerReason returns why the owner of a finalizer might still be active, or "" if the
// diagnosis rules this out.
func activeOwnerReason(found *diagnosis.Diagnosis, wanted *Removal) string {
	if found.State != diagnosis.Blocked {
		return reasonNotBlocked(found.Summary)
	}
	if wanted.NamespaceFinalizer == string(corev1.FinalizerKubernetes) {
		return "" // The owner of this finalizer waits for other owners, and one of them is blocked.
	}
	matching := matchingFindings(found, wanted)
	if len(matching) == 0 {
		return reasonNoFinding(wanted)
	}
	for i := range matching {
		if !matching[i].IsOwnerGone {
			return reasonOwnerNotGone(wanted, &matching[i])
		}
	}
	return ""
}

// matchingFindings returns the findings for the finalizer that a removal selects. It also compares
// the fields that contain the finalizers, because different finalizers can have the same name.
func matchingFindings(found *diagnosis.Diagnosis, wanted *Removal) []diagnosis.Finding {
	var matching []diagnosis.Finding
	for i := range found.Findings {
		name := wanted.Finalizer
		switch found.Findings[i].Cause {
		case diagnosis.CauseNamespaceFinalizer:
			name = wanted.NamespaceFinalizer
		case diagnosis.CauseNamespaceMetadataFinalizer:
			name = wanted.MetadataFinalizer
		}
		if name != "" && name == found.Findings[i].Finalizer {
			matching = append(matching, found.Findings[i])
		}
	}
	return matching
}

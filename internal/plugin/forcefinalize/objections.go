// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package forcefinalize

import (
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

// activeOwnerReason returns why the owner of a finalizer might still be active, or "" if it provably does
// not exist. That no owner was found is not sufficient, because it can run outside the cluster.
func activeOwnerReason(found *diagnosis.Diagnosis, wanted *Removal) string {
	matching := matchingFindings(found, wanted)
	switch {
	case found.State != diagnosis.Blocked:
		return reasonNotBlocked(found.Summary)
	case len(matching) == 0:
		return reasonNoFinding(wanted)
	}
	for i := range matching {
		if matching[i].OwnerState != diagnosis.OwnerAbsent {
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

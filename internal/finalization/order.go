// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// stage is one of the steps in which a namespace is emptied.
type stage int

const (
	// stagePods comes first: no pod runs on without the NetworkPolicies, Secrets and
	// whatever else it was set up with (KEP-5080).
	stagePods stage = iota
	// stageMost is everything else.
	stageMost
	// stageSupport is what others need in order to go: the rights, identities and settings
	// of controllers that have finalizers to release, and what shows their owners what
	// happens (kubernetes/kubernetes#115070). Upstream has no such stage.
	stageSupport
	stageCount
)

var podsResource = corev1.SchemeGroupVersion.WithResource("pods").GroupResource()

var supportResources = map[schema.GroupResource]bool{
	{Resource: "configmaps"}:                                       true,
	{Resource: "secrets"}:                                          true,
	{Resource: "serviceaccounts"}:                                  true,
	{Group: "coordination.k8s.io", Resource: "leases"}:             true,
	{Group: "networking.k8s.io", Resource: "networkpolicies"}:      true,
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}: true,
	{Group: "rbac.authorization.k8s.io", Resource: "roles"}:        true,
}

func stageOf(resource schema.GroupResource) stage {
	switch {
	case resource == podsResource:
		return stagePods
	case supportResources[resource]:
		return stageSupport
	default:
		return stageMost
	}
}

// whyWait returns why the stages after this one have to wait, or nothing if they need
// not. Known are what is left of all types of the stage, and what went wrong with them.
//
// An object that is being deleted is waited for, and one that has yet to be because it came
// when the others were being deleted. One whose deletion was refused is not:
// nobody works on its end. A type whose server is not there is not waited for either, or
// one dead APIService would hold everything (kubernetes/kubernetes#75788). In any other
// doubt the rest waits. Pods are always waited for: what they may run without is not
// known.
func whyWait(current stage, types []*typeState) string {
	var waiting, unknown []string
	for _, state := range types {
		isUnknown := state.listError != nil && (current == stagePods || !isUnavailable(state.listError))
		isLeft := state.Terminating > 0 || state.HasNew || state.hasMore || state.isInDoubt ||
			(current == stagePods && state.Count > 0)
		switch {
		case isUnknown:
			unknown = append(unknown, state.Type.GroupResource().String())
		case isLeft:
			waiting = append(waiting, state.Type.GroupResource().String())
		}
	}
	next := "everything else is"
	if current == stageMost {
		next = "access rights, identities, settings and leases are"
	}
	switch {
	case len(unknown) > 0:
		return next + " not deleted before it is known what is left of " + joinSome(unknown)
	case len(waiting) > 0:
		return next + " deleted after " + joinSome(waiting)
	default:
		return ""
	}
}

// maxNamed is how many names a message lists before it counts.
const maxNamed = 3

// joinSome joins the first few of some names and counts the rest.
func joinSome(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:maxNamed], ", ") + " and " + plural(len(names)-maxNamed, "other")
}

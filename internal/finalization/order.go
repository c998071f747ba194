// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// stage is a stage of the deletion of a namespace's content.
type stage int

const (
	// stagePods comes first, so that no pod runs without the NetworkPolicies, Secrets and other
	// objects that it was created with (KEP-5080).
	stagePods stage = iota
	// stageDefault is everything else.
	stageDefault
	// stageDependencies contains the objects that other controllers need to finish: the permissions,
	// identities and settings of controllers that remove finalizers, and the permissions that users need
	// to follow the deletion (kubernetes/kubernetes#115070). Upstream has no such stage.
	stageDependencies
	stageCount
)

var podsResource = corev1.SchemeGroupVersion.WithResource("pods").GroupResource()

var dependencyResources = map[schema.GroupResource]bool{
	{Resource: "configmaps"}:                                       true,
	{Resource: "secrets"}:                                          true,
	{Resource: "serviceaccounts"}:                                  true,
	{Group: "coordination.k8s.io", Resource: "leases"}:             true,
	{Group: "networking.k8s.io", Resource: "networkpolicies"}:      true,
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}: true,
	{Group: "rbac.authorization.k8s.io", Resource: "roles"}:        true,
	// OpenShift serves the same objects in another group.
	{Group: "authorization.openshift.io", Resource: "rolebindings"}: true,
	{Group: "authorization.openshift.io", Resource: "roles"}:        true,
}

func stageOf(resource schema.GroupResource) stage {
	switch {
	case resource == podsResource:
		return stagePods
	case dependencyResources[resource]:
		return stageDependencies
	default:
		return stageDefault
	}
}

// computeWaitReason returns the reason why the next stage must wait, or "" if it need not wait. The
// given types are the types of the current stage, and failing are the calls that have not failed for long.
//
// The next stage waits for terminating objects, and for objects that were created in the meantime and
// must still be deleted. It does not wait for an object whose deletion was rejected, because no
// controller is finalizing that object. It also does not wait for calls that have failed for
// failedCallDelay, because otherwise one broken webhook or APIService would block the whole deletion
// (kubernetes/kubernetes#75788). If the state of objects is unknown for another reason, it waits. It
// always waits for pods, because the objects that they need are unknown.
func computeWaitReason(current stage, types []*typeState, failing []string) string {
	var waiting, unknown []string
	for _, state := range types {
		isUnknown := state.listError != nil && (current == stagePods || !apierrors.IsServiceUnavailable(state.listError))
		isRemaining := state.Terminating > 0 || state.HasNew || state.isIncomplete || state.isUncertain ||
			(current == stagePods && state.Count > 0)
		switch {
		case isUnknown:
			unknown = append(unknown, state.Type.GroupResource().String())
		case isRemaining:
			waiting = append(waiting, state.Type.GroupResource().String())
		}
	}
	next := nextDefault
	if current == stageDefault {
		next = nextDependencies
	}
	switch {
	case len(unknown) > 0:
		return fmt.Sprintf(waitForList, joinSome(unknown), next)
	case len(waiting) > 0:
		return fmt.Sprintf(waitForDeletion, joinSome(waiting), next)
	case len(failing) > 0:
		return fmt.Sprintf(waitForCalls, joinSome(failing), failedCallDelay, next)
	default:
		return ""
	}
}

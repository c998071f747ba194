// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestStageOf(t *testing.T) {
	tests := map[schema.GroupResource]stage{
		{Resource: "pods"}:                                              stagePods,
		{Resource: "configmaps"}:                                        stageDependencies,
		{Resource: "secrets"}:                                           stageDependencies,
		{Resource: "serviceaccounts"}:                                   stageDependencies,
		{Group: "coordination.k8s.io", Resource: "leases"}:              stageDependencies,
		{Group: "networking.k8s.io", Resource: "networkpolicies"}:       stageDependencies,
		{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}:  stageDependencies,
		{Group: "rbac.authorization.k8s.io", Resource: "roles"}:         stageDependencies,
		{Group: "authorization.openshift.io", Resource: "rolebindings"}: stageDependencies,
		{Group: "authorization.openshift.io", Resource: "roles"}:        stageDependencies,

		{Resource: "services"}:                       stageDefault,
		{Group: "apps", Resource: "deployments"}:     stageDefault,
		{Group: "example.com", Resource: "widgets"}:  stageDefault,
		{Group: "metrics.k8s.io", Resource: "pods"}:  stageDefault,
		{Group: "example.com", Resource: "secrets"}:  stageDefault,
		{Group: "events.k8s.io", Resource: "events"}: stageDefault,
	}
	for resource, want := range tests {
		t.Run(resource.String(), func(t *testing.T) {
			NewWithT(t).Expect(stageOf(resource)).To(Equal(want))
		})
	}
}

func TestComputeWaitReason(t *testing.T) {
	unavailable := fmt.Errorf("failed to list widgets: %w", apierrors.NewServiceUnavailable("unavailable"))
	state := func(resourceType ResourceType, change func(*typeState)) *typeState {
		result := &typeState{Remaining: Remaining{Type: resourceType}}
		change(result)
		return result
	}
	empty := func(*typeState) {}
	left := func(s *typeState) { s.Count = 1 }
	ending := func(s *typeState) { s.Count, s.Terminating = 1, 1 }
	many := func(change func(*typeState)) []*typeState {
		var states []*typeState
		for _, resource := range []string{"a", "b", "c", "d", "e"} {
			states = append(states, state(resourceType("", "v1", resource), change))
		}
		return states
	}

	tests := map[string]struct {
		stage stage
		types []*typeState
		// failing are the calls that have not failed for long.
		failing []string
		want    string
	}{
		"no pods remain": {stage: stagePods, types: []*typeState{state(podsType, empty)}},
		"the API server does not serve pods": {
			stage: stagePods,
		},
		"a terminating pod": {
			stage: stagePods, types: []*typeState{state(podsType, ending)},
			want: waitForPods,
		},
		"a pod whose deletion was rejected": {
			stage: stagePods, types: []*typeState{state(podsType, left)},
			want: waitForPods,
		},
		"unprocessed pods": {
			stage: stagePods, types: []*typeState{state(podsType, func(s *typeState) { s.isIncomplete = true })},
			want: waitForPods,
		},
		"pods that cannot be listed": {
			stage: stagePods, types: []*typeState{state(podsType, func(s *typeState) { s.listError = errOutage })},
			want: unlistedPods,
		},
		"pods whose server is unavailable": {
			stage: stagePods, types: []*typeState{state(podsType, func(s *typeState) { s.listError = unavailable })},
			want: unlistedPods,
		},
		"no other objects remain": {stage: stageDefault, types: []*typeState{state(widgetsType, empty)}},
		"a terminating object": {
			stage: stageDefault, types: []*typeState{state(widgetsType, ending)},
			want: waitForWidgets,
		},
		"an object whose deletion was rejected": {
			stage: stageDefault, types: []*typeState{state(widgetsType, left)},
		},
		"an object whose deletion may have succeeded": {
			stage: stageDefault, types: []*typeState{state(widgetsType, func(s *typeState) { s.isUncertain = true })},
			want: waitForWidgets,
		},
		"unprocessed objects": {
			stage: stageDefault, types: []*typeState{state(widgetsType, func(s *typeState) { s.isIncomplete = true })},
			want: waitForWidgets,
		},
		"a type that cannot be listed": {
			stage: stageDefault, types: []*typeState{state(widgetsType, func(s *typeState) { s.listError = errOutage })},
			want: unlistedWidgets,
		},
		"a type whose server is unavailable": {
			stage: stageDefault, types: []*typeState{state(widgetsType, func(s *typeState) { s.listError = unavailable })},
		},
		"calls that have not failed for long": {
			stage: stageDefault, types: []*typeState{state(widgetsType, left)}, failing: []string{"widgets.example.com"},
			want: fmt.Sprintf(waitForCalls, "widgets.example.com", failedCallDelay, nextDependencies),
		},
		"terminating objects of a type whose server is no longer available": {
			stage: stageDefault, types: []*typeState{state(widgetsType, func(s *typeState) {
				s.listError, s.Terminating = unavailable, 1
			})},
			want: waitForWidgets,
		},
		"a type that cannot be listed has priority over a terminating object": {
			stage: stageDefault, types: []*typeState{
				state(configMapsType, ending),
				state(widgetsType, func(s *typeState) { s.listError = errOutage }),
			},
			want: unlistedWidgets,
		},
		"three types are named": {
			stage: stageDefault, types: many(ending)[:3],
			want: fmt.Sprintf(waitForDeletion, "a, b, c", nextDependencies),
		},
		"a fourth type is counted": {
			stage: stageDefault, types: many(ending)[:4],
			want: fmt.Sprintf(waitForDeletion, "a, b, c and 1 other", nextDependencies),
		},
		"two more types are counted": {
			stage: stageDefault, types: many(ending),
			want: fmt.Sprintf(waitForDeletion, "a, b, c and 2 others", nextDependencies),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(computeWaitReason(test.stage, test.types, test.failing)).To(Equal(test.want))
		})
	}
}

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
		{Resource: "pods"}:                                             stagePods,
		{Resource: "configmaps"}:                                       stageSupport,
		{Resource: "secrets"}:                                          stageSupport,
		{Resource: "serviceaccounts"}:                                  stageSupport,
		{Group: "coordination.k8s.io", Resource: "leases"}:             stageSupport,
		{Group: "networking.k8s.io", Resource: "networkpolicies"}:      stageSupport,
		{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}: stageSupport,
		{Group: "rbac.authorization.k8s.io", Resource: "roles"}:        stageSupport,

		{Resource: "services"}:                       stageMost,
		{Group: "apps", Resource: "deployments"}:     stageMost,
		{Group: "example.com", Resource: "widgets"}:  stageMost,
		{Group: "metrics.k8s.io", Resource: "pods"}:  stageMost,
		{Group: "example.com", Resource: "secrets"}:  stageMost,
		{Group: "events.k8s.io", Resource: "events"}: stageMost,
	}
	for resource, want := range tests {
		t.Run(resource.String(), func(t *testing.T) {
			NewWithT(t).Expect(stageOf(resource)).To(Equal(want))
		})
	}
}

func TestWhyWait(t *testing.T) {
	unavailable := fmt.Errorf("listing widgets: %w", apierrors.NewServiceUnavailable("nobody home"))
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
		want  string
	}{
		"no pods": {stage: stagePods, types: []*typeState{state(podsType, empty)}},
		"the API server has no type of pods": {
			stage: stagePods,
		},
		"a pod that is being deleted": {
			stage: stagePods, types: []*typeState{state(podsType, ending)},
			want: "everything else is deleted after pods",
		},
		"a pod whose deletion was refused": {
			stage: stagePods, types: []*typeState{state(podsType, left)},
			want: "everything else is deleted after pods",
		},
		"pods that nobody has come to": {
			stage: stagePods, types: []*typeState{state(podsType, func(s *typeState) { s.hasMore = true })},
			want: "everything else is deleted after pods",
		},
		"pods that cannot be listed": {
			stage: stagePods, types: []*typeState{state(podsType, func(s *typeState) { s.listError = errOutage })},
			want: "everything else is not deleted before it is known what is left of pods",
		},
		"pods whose server is not there": {
			stage: stagePods, types: []*typeState{state(podsType, func(s *typeState) { s.listError = unavailable })},
			want: "everything else is not deleted before it is known what is left of pods",
		},
		"nothing else": {stage: stageMost, types: []*typeState{state(widgetsType, empty)}},
		"something that is being deleted": {
			stage: stageMost, types: []*typeState{state(widgetsType, ending)},
			want: "access rights, identities, settings and leases are deleted after widgets.example.com",
		},
		"something whose deletion was refused": {
			stage: stageMost, types: []*typeState{state(widgetsType, left)},
		},
		"something whose deletion may have come through": {
			stage: stageMost, types: []*typeState{state(widgetsType, func(s *typeState) { s.isInDoubt = true })},
			want: "access rights, identities, settings and leases are deleted after widgets.example.com",
		},
		"something that nobody has come to": {
			stage: stageMost, types: []*typeState{state(widgetsType, func(s *typeState) { s.hasMore = true })},
			want: "access rights, identities, settings and leases are deleted after widgets.example.com",
		},
		"something that cannot be listed": {
			stage: stageMost, types: []*typeState{state(widgetsType, func(s *typeState) { s.listError = errOutage })},
			want: "access rights, identities, settings and leases are not deleted before it is known what is left of widgets.example.com",
		},
		"something whose server is not there": {
			stage: stageMost, types: []*typeState{state(widgetsType, func(s *typeState) { s.listError = unavailable })},
		},
		"something is left of a type whose server is not there any more": {
			stage: stageMost, types: []*typeState{state(widgetsType, func(s *typeState) {
				s.listError, s.Terminating = unavailable, 1
			})},
			want: "access rights, identities, settings and leases are deleted after widgets.example.com",
		},
		"not knowing goes first": {
			stage: stageMost, types: []*typeState{
				state(configMapsType, ending),
				state(widgetsType, func(s *typeState) { s.listError = errOutage }),
			},
			want: "access rights, identities, settings and leases are not deleted before it is known what is left of widgets.example.com",
		},
		"three types are named": {
			stage: stageMost, types: many(ending)[:3],
			want: "access rights, identities, settings and leases are deleted after a, b, c",
		},
		"one more is counted": {
			stage: stageMost, types: many(ending)[:4],
			want: "access rights, identities, settings and leases are deleted after a, b, c and 1 other",
		},
		"two more are counted": {
			stage: stageMost, types: many(ending),
			want: "access rights, identities, settings and leases are deleted after a, b, c and 2 others",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(whyWait(test.stage, test.types)).To(Equal(test.want))
		})
	}
}

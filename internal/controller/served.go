// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

const (
	// servedInterval is how long it is until somebody looks again whether initializers are
	// served: nothing tells that nobody acts.
	servedInterval = 30 * time.Second
	// rightsInterval is how long it is believed that somebody may serve. That nobody may is
	// looked at every time: there are not many rights to read then, and a configuration waits.
	rightsInterval = 5 * time.Minute
)

// Service finds out whether somebody does the work of the initializers.
type Service struct {
	client.Client
	// Live reads rights from the API server: all of them in a cache would be a large one.
	Live  client.Reader
	Clock clock.PassiveClock

	// confirmed is when the rights were last found to be there, for these configurations.
	confirmed    time.Time
	confirmedFor string
}

// observe returns what is known; nothing of it is an error: the condition says what is not.
func (s *Service) observe(
	ctx context.Context, configurations []v1alpha1.NamespaceInitializerConfiguration,
) initialization.Service {
	now := s.Clock.Now()
	var service initialization.Service
	var waiting corev1.NamespaceList
	err := s.List(ctx, &waiting, client.HasLabels{v1alpha1.LabelInitializing}, client.UnsafeDisableDeepCopy)
	if err != nil {
		service.WhyUnknown = fmt.Sprintf("listing the namespaces that wait for initializers: %v", err)
		return service
	}
	service.Neglected = initialization.Neglected(waiting.Items, now)
	asked := generations(configurations)
	if s.confirmedFor == asked && now.Sub(s.confirmed) < rightsInterval {
		service.IsPossible = true
		return service
	}
	isPossible, err := s.mayAnybodyServe(ctx)
	if err != nil {
		service.WhyUnknown = err.Error()
		return service
	}
	if service.IsPossible = isPossible; isPossible {
		s.confirmed, s.confirmedFor = now, asked
	}
	return service
}

// mayAnybodyServe tells whether somebody but the control plane holds the verb. No special
// right is needed where finalization runs, which may list everything.
func (s *Service) mayAnybodyServe(ctx context.Context) (bool, error) {
	var bindings rbacv1.ClusterRoleBindingList
	if err := s.Live.List(ctx, &bindings); err != nil {
		return false, fmt.Errorf("listing the ClusterRoleBindings: %w", err)
	}
	var roles rbacv1.ClusterRoleList
	if err := s.Live.List(ctx, &roles); err != nil {
		return false, fmt.Errorf("listing the ClusterRoles: %w", err)
	}
	return owners.CanAnyoneInitialize(roles.Items, bindings.Items), nil
}

// generations identifies what the configurations say, in whatever order they are. A deletion
// that has begun is a generation as well.
func generations(configurations []v1alpha1.NamespaceInitializerConfiguration) string {
	keys := make([]string, 0, len(configurations))
	for i := range configurations {
		keys = append(keys, fmt.Sprintf("%s/%d", configurations[i].UID, configurations[i].Generation))
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

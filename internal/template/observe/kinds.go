// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// mapperResetInterval limits how often an unknown kind triggers a new discovery.
const mapperResetInterval = 5 * time.Second

// Kinds knows which kinds the API server serves.
type Kinds struct {
	Mapper    meta.ResettableRESTMapper
	Discovery discovery.DiscoveryInterfaceWithContext
	Clock     clock.PassiveClock

	mutex   sync.Mutex
	resetAt time.Time
}

// ResourceOf returns the resource of a namespaced kind, in the preferred version if the kind has none.
func (k *Kinds) ResourceOf(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	resource, err := template.ResourceOf(k.Mapper, kind)
	// A CustomResourceDefinition can have been created since the last discovery, or replaced by one with another scope.
	var known *template.ReasonError
	if errors.As(err, &known) && k.reset() {
		resource, err = template.ResourceOf(k.Mapper, kind)
	}
	return resource, err
}

// IsServed reports whether the API server serves any version of a kind that the mapper lacks. The mapper also lacks the
// kinds of an aggregated API server that is unavailable.
func (k *Kinds) IsServed(ctx context.Context, kind schema.GroupKind) (bool, error) {
	group := metav1.APIGroup{Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "v1"}}}
	if kind.Group != "" {
		// The list of all groups can lack a group whose discovery is not complete.
		group = metav1.APIGroup{}
		err := k.Discovery.RESTClient().Get().AbsPath("/apis", kind.Group).Do(ctx).Into(&group)
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("failed to discover group %q: %w", kind.Group, err)
		}
	}
	for _, version := range group.Versions {
		list, err := k.Discovery.ServerResourcesForGroupVersionWithContext(ctx, version.GroupVersion)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return false, fmt.Errorf("failed to discover kind %q: %w", kind.Kind, err)
		case slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind.Kind }):
			return true, nil
		}
	}
	return false, nil
}

// isServed reports whether the mapper does not lack a kind.
func (k *Kinds) isServed(kind schema.GroupVersionKind) bool {
	_, err := k.ResourceOf(kind)
	return err == nil || template.ToProblem("", "", err).Reason != v1alpha1.ReasonKindNotFound
}

// reset repeats the discovery of kinds unless it is recent.
func (k *Kinds) reset() bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if k.Clock.Since(k.resetAt) < mapperResetInterval {
		return false
	}
	k.resetAt = k.Clock.Now()
	k.Mapper.Reset()
	return true
}

// ResetIfUnserved repeats the discovery, and returns true, if the API server does not serve a resource any more.
func (k *Kinds) ResetIfUnserved(err error) bool {
	isUnserved := apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	if isUnserved {
		k.reset()
	}
	return isUnserved
}

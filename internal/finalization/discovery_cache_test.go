// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

var errOutage = errors.New("the API server is unavailable")

func TestDiscoveryCacheCachesDiscovery(t *testing.T) {
	complete := discoveryResult{lists: served("v1/configmaps")}
	incomplete := discoveryResult{lists: served("v1/configmaps"), err: errOutage}
	unparsable := discoveryResult{lists: append(served("v1/configmaps"), served("a/b/c/d")...)}

	tests := map[string]struct {
		first discoveryResult
		// passes is the time between the first and the second call of get.
		passes time.Duration
		// invalidateAt is the time of the call of invalidate, relative to the first discovery.
		invalidateAt *time.Duration
		// notBefore is the parameter of the second call, relative to the first discovery.
		notBefore time.Duration
		wantCount int
	}{
		"requested again":                     {first: complete, passes: time.Second, wantCount: 1},
		"requested again immediately":         {first: complete, wantCount: 1},
		"almost too old":                      {first: complete, passes: maxDiscoveryAge - time.Nanosecond, wantCount: 1},
		"too old":                             {first: complete, passes: maxDiscoveryAge, wantCount: 2},
		"exactly as recent as required":       {first: complete, passes: time.Second, notBefore: 0, wantCount: 1},
		"older than required":                 {first: complete, passes: time.Second, notBefore: time.Nanosecond, wantCount: 2},
		"a type changed after the discovery":  {first: complete, passes: time.Second, invalidateAt: new(time.Millisecond), wantCount: 2},
		"a type changed during the discovery": {first: complete, passes: time.Second, invalidateAt: new(time.Duration(0)), wantCount: 2},
		"a type changed before the discovery": {first: complete, passes: time.Second, invalidateAt: new(-time.Millisecond), wantCount: 1},
		"some groups did not respond":         {first: incomplete, passes: time.Second, wantCount: 2},
		"some groups could not be parsed":     {first: unparsable, passes: time.Second, wantCount: 2},
		"the discovery failed":                {first: discoveryResult{err: errOutage}, passes: time.Second, wantCount: 2},
		"the response was empty":              {first: discoveryResult{}, passes: time.Second, wantCount: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			passive := clocktesting.NewFakePassiveClock(now)
			api := &discoverer{results: []discoveryResult{test.first, complete}}
			cache := newDiscoveryCache(api, isAggregated, passive)
			if test.invalidateAt != nil && *test.invalidateAt < 0 {
				passive.SetTime(now.Add(*test.invalidateAt))
				cache.invalidate()
				passive.SetTime(now)
			}
			_, err := cache.get(t.Context(), time.Time{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(api.count).To(Equal(1))
			if test.invalidateAt != nil && *test.invalidateAt >= 0 {
				passive.SetTime(now.Add(*test.invalidateAt))
				cache.invalidate()
			}

			passive.SetTime(now.Add(test.passes))
			resources, err := cache.get(t.Context(), now.Add(test.notBefore))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(resources.Types).To(Equal([]ResourceType{configMapsType}))
			g.Expect(resources.IsComplete()).To(BeTrue())
			g.Expect(api.count).To(Equal(test.wantCount))
		})
	}
}

func TestDiscoveryCacheSharesDiscovery(t *testing.T) {
	tests := map[string]struct{ result discoveryResult }{
		"a complete discovery": {result: discoveryResult{lists: served("v1/configmaps")}},
		// All callers waited for this discovery, and another one would have the same result.
		"an incomplete discovery": {result: discoveryResult{lists: served("v1/configmaps"), err: errOutage}},
		"a failed discovery":      {result: discoveryResult{err: errOutage}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				api := &discoverer{results: []discoveryResult{test.result}, delay: time.Second}
				cache := newDiscoveryCache(api, isAggregated, clock.RealClock{})
				var group sync.WaitGroup
				inventories := make([]*ResourceSet, 5)
				for i := range inventories {
					group.Go(func() { inventories[i], _ = cache.get(t.Context(), time.Time{}) })
				}
				group.Wait()
				g.Expect(api.count).To(Equal(1))
				for _, resources := range inventories {
					g.Expect(resources).To(BeIdenticalTo(inventories[0]))
				}
			})
		})
	}
}

// A caller that arrives during a discovery that turns out to be incomplete needs another discovery.
func TestDiscoveryCacheDoesNotShareAnIncompleteDiscoveryWithLateCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		api := &discoverer{results: []discoveryResult{{err: errOutage}}, delay: time.Second}
		cache := newDiscoveryCache(api, isAggregated, clock.RealClock{})
		go func() { _, _ = cache.get(t.Context(), time.Time{}) }()
		time.Sleep(time.Millisecond)
		_, err := cache.get(t.Context(), time.Time{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(api.count).To(Equal(2))
	})
}

func TestDiscoveryCacheStopsWhenTheContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		api := &discoverer{
			results: []discoveryResult{{lists: served("v1/configmaps")}}, delay: 2 * time.Second,
		}
		cache := newDiscoveryCache(api, isAggregated, clock.RealClock{})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		var waiting error
		go func() {
			time.Sleep(time.Millisecond)
			_, waiting = cache.get(short, time.Time{})
		}()
		_, err := cache.get(short, time.Time{})
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		synctest.Wait()
		g.Expect(waiting).To(MatchError(context.DeadlineExceeded))
		g.Expect(api.count).To(Equal(1))

		// The result of a canceled discovery is not cached.
		resources, err := cache.get(t.Context(), time.Time{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(resources.IsComplete()).To(BeTrue())
	})
}

func TestDiscoveryCacheLimitsTheDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		cache := newDiscoveryCache(&discoverer{results: []discoveryResult{{}}, delay: time.Hour}, isAggregated, clock.RealClock{})
		began := time.Now()
		resources, err := cache.get(t.Context(), time.Time{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(resources.DiscoveryError).To(MatchError(context.DeadlineExceeded))
		g.Expect(time.Since(began)).To(Equal(discoveryTimeout))
	})
}

func TestDiscoveryCacheReadsDiscovery(t *testing.T) {
	const noCoreGroup = errNoCoreResourceType
	groupsFailed := &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{
		{Group: "metrics.k8s.io", Version: "v1beta1"}: errOutage,
	}}
	tests := map[string]struct {
		result             discoveryResult
		want               []ResourceType
		wantDiscoveryError string
		wantParseError     string
	}{
		"sorted by group and resource": {
			result: discoveryResult{lists: served("example.com/v1/widgets", "v1/pods", "v1/configmaps")},
			want:   []ResourceType{configMapsType, podsType, widgetsType},
		},
		"a type that is listed twice": {
			result: discoveryResult{lists: served("v1/pods", "v1/configmaps", "v1/pods")},
			want:   []ResourceType{configMapsType, podsType},
		},
		"Events, which kube-apiserver serves in two groups": {
			result: discoveryResult{lists: served("v1/configmaps", "v1/events", "events.k8s.io/v1/events")},
			want:   []ResourceType{configMapsType, eventsType},
		},
		"Events, in one group": {
			result: discoveryResult{lists: served("v1/configmaps", "v1/events:list", "events.k8s.io/v1/events")},
			want:   []ResourceType{configMapsType, resourceType("events.k8s.io", "v1", "events")},
		},
		"a type that cannot be deleted": {
			result: discoveryResult{lists: served("v1/configmaps", "v1/bindings:create", "v1/events:get,list,watch")},
			want:   []ResourceType{configMapsType},
		},
		"a cluster-scoped type": {
			result: discoveryResult{lists: append(served("v1/configmaps"), &metav1.APIResourceList{
				GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "nodes", Verbs: allVerbs}},
			})},
			want: []ResourceType{configMapsType},
		},
		"a type that can only be deleted": {
			result: discoveryResult{lists: served("v1/configmaps", "example.com/v1/widgets:delete")},
			want:   []ResourceType{configMapsType, {GroupVersionResource: widgetsType.GroupVersionResource}},
		},
		"types with only one of the other verbs": {
			result: discoveryResult{lists: served("v1/configmaps", "example.com/v1/a:delete,list",
				"example.com/v1/b:delete,deletecollection", "example.com/v1/c:delete,watch")},
			want: []ResourceType{
				configMapsType,
				{GroupVersionResource: widgetsType.GroupVersion().WithResource("a"), CanList: true},
				{GroupVersionResource: widgetsType.GroupVersion().WithResource("b"), CanDeleteCollection: true},
				{GroupVersionResource: widgetsType.GroupVersion().WithResource("c"), CanWatch: true},
			},
		},
		"some groups do not respond; the other types are returned": {
			result: discoveryResult{lists: served("v1/configmaps"), err: groupsFailed},
			want:   []ResourceType{configMapsType}, wantDiscoveryError: groupsFailed.Error(),
		},
		"a group version cannot be parsed; the other types are returned": {
			result: discoveryResult{lists: served("v1/configmaps", "a/b/c/d", "e/f/g/h", "v1/pods")},
			want:   []ResourceType{configMapsType, podsType},
			wantParseError: "group version \"a/b/c\": unexpected GroupVersion string: a/b/c\n" +
				"group version \"e/f/g\": unexpected GroupVersion string: e/f/g",
		},
		"the name of a resource cannot be part of a URL; the other types are returned": {
			result: discoveryResult{lists: served("v1/configmaps", "example.com/v1/..", "../v1/widgets", "example.com/v1/a%2fb")},
			want:   []ResourceType{configMapsType},
			wantParseError: `group version "example.com/v1": resource ".." is not valid: may not be '..'` + "\n" +
				`group version "../v1": group ".." is not valid: may not be '..'` + "\n" +
				`group version "example.com/v1": resource "a%2fb" is not valid: may not contain '%'`,
		},
		"a group version that cannot be parsed but has no types": {
			result: discoveryResult{lists: append(served("v1/configmaps"), &metav1.APIResourceList{GroupVersion: "a/b/c"})},
			want:   []ResourceType{configMapsType},
		},
		"no types": {
			wantDiscoveryError: noCoreGroup,
		},
		"no deletable type": {
			result:             discoveryResult{lists: served("v1/events:get,list,watch")},
			wantDiscoveryError: noCoreGroup,
		},
		"no type in the core group": {
			result: discoveryResult{lists: servedOnly("example.com/v1/widgets")},
			want:   []ResourceType{widgetsType}, wantDiscoveryError: noCoreGroup,
		},
		"no deletable type in the core group": {
			result: discoveryResult{lists: servedOnly("example.com/v1/widgets", "v1/events:get,list,watch")},
			want:   []ResourceType{widgetsType}, wantDiscoveryError: noCoreGroup,
		},
		"no pods in the core group": {
			result: discoveryResult{lists: servedOnly("example.com/v1/widgets", "v1/configmaps")},
			want:   []ResourceType{configMapsType, widgetsType},
		},
		"discovery returns only an error": {
			result:             discoveryResult{err: errOutage},
			wantDiscoveryError: errOutage.Error(),
		},
		"no group version that can be parsed": {
			result:         discoveryResult{lists: servedOnly("a/b/c/d")},
			wantParseError: `group version "a/b/c": unexpected GroupVersion string: a/b/c`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cache := newDiscoveryCache(&discoverer{results: []discoveryResult{test.result}}, isAggregated, newTickingClock())
			resources, err := cache.get(t.Context(), time.Time{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(resources.Types).To(Equal(test.want))
			expectError(g, resources.DiscoveryError, test.wantDiscoveryError)
			expectError(g, resources.ParseError, test.wantParseError)
			g.Expect(resources.IsComplete()).To(Equal(test.wantDiscoveryError == "" && test.wantParseError == ""))
		})
	}
}

// expectError expects an error with the given text, or no error if the text is empty.
func expectError(g Gomega, err error, want string) {
	if want == "" {
		g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
		return
	}
	g.ExpectWithOffset(1, err).To(MatchError(want))
}

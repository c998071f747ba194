// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/nslifecycle/nslifecycle/internal/inventory"
)

var metricsVersion = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}

func withAPIService(isAvailable bool) func(*Facts) {
	service := APIService{
		Name: "v1beta1.metrics.k8s.io", GroupVersion: metricsVersion, IsAvailable: isAvailable,
		Service: types.NamespacedName{Namespace: "kube-system", Name: "metrics-server"}, Since: deleted.Add(-time.Hour),
	}
	if !isAvailable {
		service.Reason = "MissingEndpoints"
		service.Message = `endpointslices for service/metrics-server in "kube-system" have no addresses with port name "https"`
	}
	return func(facts *Facts) { facts.APIServices = append(facts.APIServices, service) }
}

func withFailed(err, direct error) func(*Facts) {
	return func(facts *Facts) {
		facts.Inventory = &inventory.Inventory{Failed: map[schema.GroupVersion]error{metricsVersion: err}}
		facts.Direct = map[schema.GroupVersion]error{metricsVersion: direct}
	}
}

func withBackend(backend Backend) func(*Facts) {
	return func(facts *Facts) {
		facts.Backends = map[types.NamespacedName]Backend{{Namespace: "kube-system", Name: "metrics-server"}: backend}
	}
}

func TestFindDiscovery(t *testing.T) {
	stale := error(discovery.StaleGroupVersionError{})
	said := withDiscoveryFailure("Discovery failed for some groups, 1 failing: unable to retrieve the complete list of " +
		"server APIs: metrics.k8s.io/v1beta1: stale GroupVersion discovery: metrics.k8s.io/v1beta1")
	object := []string{"apiservices.apiregistration.k8s.io/v1beta1.metrics.k8s.io"}
	nodes := inventory.Type{GroupVersionResource: metricsVersion.WithResource("pods"), Kind: "PodMetrics", Verbs: everyVerb}
	young := makeDeath(withAPIService(false), withFailed(stale, unavailable))
	young.Namespace.DeletionTimestamp.Time = now
	runCases(t, map[string]diagnoseCase{
		"an APIService without endpoints": {
			facts: makeDeath(withAPIService(false), withFailed(stale, unavailable), said, withBackend(Backend{Exists: true})),
			want:  []want{{CauseAPIServiceUnavailable, Proven, "has no ready endpoint", "MissingEndpoints since", object}},
		},
		"an APIService without a Service": {
			facts: makeDeath(withAPIService(false), withFailed(stale, unavailable), withBackend(Backend{})),
			want:  []want{{CauseAPIServiceUnavailable, Proven, "Service kube-system/metrics-server does not exist", "", object}},
		},
		"is blamed at once": {
			facts: young,
			want:  []want{{CauseAPIServiceUnavailable, Proven, "", "", object}},
		},
		"an APIService that lists cannot reach": {
			facts: makeDeath(withAPIService(false), withContent(failing(nodes, unavailable))),
			want:  []want{{CauseAPIServiceUnavailable, Proven, "", "currently unable to handle the request", object}},
		},
		"a server that answers with errors": {
			facts: makeDeath(withAPIService(true), withContent(failing(nodes, internalError("storage is broken")))),
			want:  []want{{CauseAPIServiceUnavailable, Likely, "", "storage is broken", object}},
		},
		"an APIService that is down and holds nothing": {facts: makeDeath(withAPIService(false), func(facts *Facts) {
			facts.Namespace.DeletionTimestamp.Time = now
			facts.Namespace.Status.Conditions = nil
		})},
		"a server that answers with nonsense": {
			facts: makeDeath(withAPIService(true), withFailed(stale, errors.New("couldn't get version/kind"))),
			want:  []want{{CauseDiscoveryFailing, Proven, "cannot be discovered", "couldn't get version/kind", object}},
		},
		"a server that does not answer in time": {
			facts: makeDeath(withAPIService(true), withFailed(stale, context.DeadlineExceeded)),
			want:  []want{{CauseAPIServiceUnavailable, Likely, "does not answer", "deadline exceeded", object}},
		},
		"a cache that is out of date": {
			facts: makeDeath(withAPIService(true), withFailed(stale, nil), said),
			want:  []want{{CauseDiscoveryStale, Proven, "is out of date", "kubectl get --raw=/apis/metrics.k8s.io/v1beta1 is answered", object}},
		},
		"a group version that nobody serves": {
			facts: makeDeath(withFailed(errors.New("the server could not find the requested resource"), unavailable)),
			want:  []want{{CauseDiscoveryFailing, Proven, "cannot be discovered", "asked for metrics", object}},
		},
		"no discovery at all, but a condition": {
			facts: makeDeath(said, withUnread(SourceDiscovery), func(facts *Facts) { facts.Inventory = nil }),
			want:  []want{{CauseDiscoveryFailing, Likely, "cannot discover all types", "DiscoveryFailed since", nil}},
		},
		"no discovery at all, but an APIService that is down": {
			facts: makeDeath(said, withAPIService(false), withUnread(SourceDiscovery), func(facts *Facts) { facts.Inventory = nil }),
			want:  []want{{CauseAPIServiceUnavailable, Proven, "MissingEndpoints", "DiscoveryFailed since", object}},
		},
		"a group version that cannot be parsed": {
			facts: makeDeath(func(facts *Facts) {
				facts.Inventory.Unparsed = map[string]error{"a/b/c": errors.New("unexpected GroupVersion string: a/b/c")}
			}),
			want: []want{{CauseGroupVersionInvalid, Proven, "unexpected GroupVersion string: a/b/c", "", nil}},
		},
		"a group version that the namespace controller cannot parse": {
			facts: makeDeath(func(facts *Facts) {
				setStatus(facts, "NamespaceDeletionGroupVersionParsingFailure", "True", "GroupVersionParsingFailed", "unexpected GroupVersion string: a/b/c")
			}),
			want: []want{{CauseGroupVersionInvalid, Proven, "a/b/c", "GroupVersionParsingFailed since", nil}},
		},
	})
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

var metricsVersion = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}

func withAPIService(isAvailable bool) func(*diagnosis.Facts) {
	service := diagnosis.APIService{
		Name: "v1beta1.metrics.k8s.io", GroupVersion: metricsVersion, Available: isAvailable,
		Service: types.NamespacedName{Namespace: "kube-system", Name: "metrics-server"}, Since: deleted.Add(-time.Hour),
	}
	if !isAvailable {
		service.Reason = "MissingEndpoints"
		service.Message = `endpointslices for service/metrics-server in "kube-system" have no addresses with port name "https"`
	}
	return func(facts *diagnosis.Facts) { facts.APIServices = append(facts.APIServices, service) }
}

func withFailed(err, direct error) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
		facts.ResourceTypes = &resourcetypes.Set{Failed: map[schema.GroupVersion]error{metricsVersion: err}}
		facts.DirectDiscovery = map[schema.GroupVersion]error{metricsVersion: direct}
	}
}

func withBackend(backend diagnosis.Backend) func(*diagnosis.Facts) {
	return func(facts *diagnosis.Facts) {
		facts.Backends = map[types.NamespacedName]diagnosis.Backend{{Namespace: "kube-system", Name: "metrics-server"}: backend}
	}
}

func TestFindDiscovery(t *testing.T) {
	stale := error(discovery.StaleGroupVersionError{})
	reported := withDiscoveryFailure("Discovery failed for some groups, 1 failing: unable to retrieve the complete list of " +
		"server APIs: metrics.k8s.io/v1beta1: stale GroupVersion discovery: metrics.k8s.io/v1beta1")
	object := []string{"apiservices.apiregistration.k8s.io/v1beta1.metrics.k8s.io"}
	nodes := resourcetypes.Type{GroupVersionResource: metricsVersion.WithResource("pods"), Kind: "PodMetrics", Verbs: everyVerb}
	young := makeTerminating(withAPIService(false), withFailed(stale, unavailable))
	young.Namespace.DeletionTimestamp.Time = now
	runCases(t, map[string]diagnoseCase{
		"an APIService whose Service has no endpoints": {
			facts: makeTerminating(withAPIService(false), withFailed(stale, unavailable), reported, withBackend(diagnosis.Backend{Exists: true})),
			want:  []want{{diagnosis.CauseAPIServiceUnavailable, diagnosis.RankProven, evidenceBackendNotReady, "MissingEndpoints since", object}},
		},
		"an APIService whose Service does not exist": {
			facts: makeTerminating(withAPIService(false), withFailed(stale, unavailable), withBackend(diagnosis.Backend{})),
			want:  []want{{diagnosis.CauseAPIServiceUnavailable, diagnosis.RankProven, "Service kube-system/metrics-server does not exist", "", object}},
		},
		"an unavailable APIService before the progress deadline": {
			facts: young,
			want:  []want{{diagnosis.CauseAPIServiceUnavailable, diagnosis.RankProven, "", "", object}},
		},
		"an unavailable APIService for which only list requests fail": {
			facts: makeTerminating(withAPIService(false), withContent(failing(nodes, unavailable))),
			want:  []want{{diagnosis.CauseAPIServiceUnavailable, diagnosis.RankProven, "", "currently unable to handle the request", object}},
		},
		"an aggregated API server that returns errors": {
			facts: makeTerminating(withAPIService(true), withContent(failing(nodes, internalError("storage is broken")))),
			want:  []want{{diagnosis.CauseAPIServiceUnavailable, diagnosis.RankInferred, "", "storage is broken", object}},
		},
		"an unavailable APIService that blocks nothing": {facts: makeTerminating(withAPIService(false), func(facts *diagnosis.Facts) {
			facts.Namespace.DeletionTimestamp.Time = now
			facts.Namespace.Status.Conditions = nil
		})},
		"an aggregated API server that returns invalid responses": {
			facts: makeTerminating(withAPIService(true), withFailed(stale, errors.New("couldn't get version/kind"))),
			want:  []want{{diagnosis.CauseDiscoveryFailing, diagnosis.RankProven, "metrics.k8s.io/v1beta1", "couldn't get version/kind", object}},
		},
		"an aggregated API server that does not respond": {
			facts: makeTerminating(withAPIService(true), withFailed(stale, context.DeadlineExceeded)),
			want:  []want{{diagnosis.CauseAPIServiceUnavailable, diagnosis.RankInferred, "", "deadline exceeded", object}},
		},
		"a stale discovery cache": {
			facts: makeTerminating(withAPIService(true), withFailed(stale, nil), reported),
			want:  []want{{diagnosis.CauseDiscoveryStale, diagnosis.RankProven, "metrics.k8s.io/v1beta1", "kubectl get --raw=/apis/metrics.k8s.io/v1beta1 ", object}},
		},
		"a group version that is not served": {
			facts: makeTerminating(withFailed(errors.New("the server could not find the requested resource"), unavailable)),
			want:  []want{{diagnosis.CauseDiscoveryFailing, diagnosis.RankProven, "metrics.k8s.io/v1beta1", literal(evidenceDirectDiscoveryError), object}},
		},
		"failed discovery and a condition about discovery": {
			facts: makeTerminating(reported, withUnread(diagnosis.SourceDiscovery), func(facts *diagnosis.Facts) { facts.ResourceTypes = nil }),
			want:  []want{{diagnosis.CauseDiscoveryFailing, diagnosis.RankPublished, literal(messageControllerDiscovery), "DiscoveryFailed since", nil}},
		},
		"failed discovery and an unavailable APIService": {
			facts: makeTerminating(reported, withAPIService(false), withUnread(diagnosis.SourceDiscovery), func(facts *diagnosis.Facts) { facts.ResourceTypes = nil }),
			want:  []want{{diagnosis.CauseAPIServiceUnavailable, diagnosis.RankProven, "MissingEndpoints", "DiscoveryFailed since", object}},
		},
		"a group version that cannot be parsed": {
			facts: makeTerminating(func(facts *diagnosis.Facts) {
				facts.ResourceTypes.Unparsed = map[string]error{"a/b/c": errors.New("unexpected GroupVersion string: a/b/c")}
			}),
			want: []want{{diagnosis.CauseGroupVersionInvalid, diagnosis.RankProven, "unexpected GroupVersion string: a/b/c", "", nil}},
		},
		"a group version that the namespace controller cannot parse": {
			facts: makeTerminating(func(facts *diagnosis.Facts) {
				setStatus(facts, "NamespaceDeletionGroupVersionParsingFailure", "True", "GroupVersionParsingFailed", "unexpected GroupVersion string: a/b/c")
			}),
			want: []want{{diagnosis.CauseGroupVersionInvalid, diagnosis.RankPublished, "a/b/c", "GroupVersionParsingFailed since", nil}},
		},
	})
}

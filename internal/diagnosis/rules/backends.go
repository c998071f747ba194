// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// BackendsNeeded returns the Services of the webhooks and API servers that may fail.
func BackendsNeeded(facts *diagnosis.Facts) []types.NamespacedName {
	f := view{facts}
	var names []types.NamespacedName
	for i := range f.APIServices {
		if f.isUnavailable(&f.APIServices[i]) {
			names = append(names, f.APIServices[i].Service)
		}
	}
	for _, webhook := range f.Webhooks {
		if webhook.Service != nil {
			names = append(names, *webhook.Service)
		}
	}
	for i := range f.CRDs {
		if service := conversionService(&f.CRDs[i]); service != nil {
			names = append(names, *service)
		}
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(names)
}

// backendProblem returns what is wrong with a Service, or "" if nothing is known to be wrong.
func (f view) backendProblem(name types.NamespacedName) string {
	backend, ok := f.Backends[name]
	switch {
	case !ok:
		return ""
	case !backend.Exists && name.Namespace == f.Namespace.Name:
		return f.ServiceName(name) + evidenceBackendDeleted
	case !backend.Exists:
		return f.ServiceName(name) + evidenceBackendMissing
	case !backend.HasReadyEndpoint:
		return f.ServiceName(name) + evidenceBackendNotReady
	}
	return ""
}

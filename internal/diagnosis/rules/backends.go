// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// BackendsNeeded returns the Services of webhooks and aggregated API servers that might have failed.
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

// addBackendProblem adds the problem of a Service to a finding, and reports whether there is one.
func (f view) addBackendProblem(finding *diagnosis.Finding, name types.NamespacedName) bool {
	problem := f.ServiceName(name)
	backend, ok := f.Backends[name]
	switch {
	case !ok, backend.HasReadyEndpoint:
		return false
	case backend.Exists:
		problem += evidenceBackendNotReady
	case name.Namespace == f.Namespace.Name:
		problem += evidenceBackendDeleted
	default:
		problem += evidenceBackendMissing
	}
	finding.Message += ": " + problem
	finding.Evidence = append(finding.Evidence, diagnosis.Proven(problem)...)
	return true
}

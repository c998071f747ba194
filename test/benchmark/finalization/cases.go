// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// content is the content of each namespace in a scenario.
type content struct {
	configMaps, secrets, services, deployments int
	// held is the number of custom resources with a finalizer. The harness removes the finalizers 2 s
	// after it deletes the namespace.
	held int
	// pods is the number of Pods. They are assigned to a node, so that they have a grace period.
	pods int
}

// scenario is one case.
type scenario struct {
	name, title string
	// crds is the number of CustomResourceDefinitions.
	crds int
	// namespaces is the number of namespaces that are deleted concurrently.
	namespaces int
	content    content
	// isCrowded adds many objects in other namespaces. idleNamespaces is the number of other namespaces.
	isCrowded      bool
	idleNamespaces int
	// isCheap reports whether --quick includes the scenario.
	isCheap bool
}

const (
	emptyWith100CRDs   = "empty-crds-100"
	emptyWith300CRDs   = "empty-crds-300"
	oneThousandMaps    = "configmaps-1000"
	tenThousandMaps    = "configmaps-10000"
	twentyPods         = "pods-20"
	many100            = "many-100-empty"
	many500            = "many-500-empty"
	many100Full        = "many-100-full"
	many500Full        = "many-500-full"
	amongTenThousand   = "many-500-among-10000"
	crowded            = "crowded-"
	crowdSize          = 50_000
	crowdTitle         = ", with 50,000 other objects"
	manyCRDs           = 100
	idleNamespaceCount = 10_000
)

// scenarios returns all cases in the order of the report.
func scenarios() []scenario {
	full := content{configMaps: 8, secrets: 4, services: 4, deployments: 4}
	many := []scenario{
		{name: many100, title: "100 empty namespaces, 100 CRDs", namespaces: 100, crds: manyCRDs},
		{name: many500, title: "500 empty namespaces, 100 CRDs", namespaces: 500, crds: manyCRDs},
		{
			name: many100Full, title: "100 namespaces with 20 objects, 100 CRDs",
			namespaces: 100, crds: manyCRDs, content: full,
		},
		{
			name: many500Full, title: "500 namespaces with 20 objects, 100 CRDs",
			namespaces: 500, crds: manyCRDs, content: full,
		},
	}
	all := []scenario{
		{name: "empty", title: "empty", namespaces: 1, isCheap: true},
		{name: emptyWith100CRDs, title: "empty, 100 CRDs", namespaces: 1, crds: manyCRDs, isCheap: true},
		{name: emptyWith300CRDs, title: "empty, 300 CRDs", namespaces: 1, crds: 300},
		{name: oneThousandMaps, title: "1,000 ConfigMaps", namespaces: 1, content: content{configMaps: 1000}, isCheap: true},
		{name: tenThousandMaps, title: "10,000 ConfigMaps", namespaces: 1, content: content{configMaps: 10_000}},
		{name: "finalizers-1000", title: "1,000 custom resources held for 2 s", namespaces: 1, crds: 1,
			content: content{held: 1000}, isCheap: true},
		{name: twentyPods, title: "20 Pods, 5 s grace period", namespaces: 1, content: content{pods: 20}, isCheap: true},
	}
	all = append(all, many...)
	for _, s := range many {
		s.name, s.title, s.isCrowded = crowded+s.name, s.title+crowdTitle, true
		all = append(all, s)
	}
	return append(all, scenario{name: amongTenThousand, title: "500 empty namespaces of 10,500, 100 CRDs",
		namespaces: 500, crds: manyCRDs, idleNamespaces: idleNamespaceCount})
}

// selectScenarios returns the cases with the given names, which are separated by commas. Without
// names, it returns all cases, or only the cheap ones.
func selectScenarios(names string, onlyCheap bool) ([]scenario, error) {
	all := scenarios()
	if names == "" {
		return slices.DeleteFunc(all, func(s scenario) bool { return onlyCheap && !s.isCheap }), nil
	}
	wanted := strings.Split(names, ",")
	for _, name := range wanted {
		if !slices.ContainsFunc(all, func(s scenario) bool { return s.name == name }) {
			return nil, fmt.Errorf("unknown case %q; --list prints all cases", name)
		}
	}
	return slices.DeleteFunc(all, func(s scenario) bool { return !slices.Contains(wanted, s.name) }), nil
}

// computeOrder returns scenarios in the order of measurement. Crowded scenarios come last, because
// the other objects are expensive to remove. The number of CRDs changes as rarely as possible.
func computeOrder(selected []scenario) []scenario {
	ordered := slices.Clone(selected)
	slices.SortStableFunc(ordered, func(a, b scenario) int {
		return cmp.Or(compareBools(a.isCrowded, b.isCrowded), cmp.Compare(a.idleNamespaces, b.idleNamespaces),
			cmp.Compare(a.crds, b.crds))
	})
	return ordered
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// The two sides of a comparison: kube-controller-manager and nslifecycle.
const (
	peer = iota
	ours
)

// sideNames are the names of the sides in the report.
var sideNames = [2]string{"peer", "ours"}

// computeSides returns the order of the sides in a round.
func computeSides(round int, peerOnly, oursOnly bool) []int {
	switch {
	case peerOnly:
		return []int{peer}
	case oursOnly:
		return []int{ours}
	case round%2 == 1:
		return []int{ours, peer}
	}
	return []int{peer, ours}
}

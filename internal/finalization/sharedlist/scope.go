// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedlist

// scope is the scope of the list requests for one type.
type scope int

const (
	// perNamespace lists the type in each namespace.
	perNamespace scope = iota
	// clusterWide lists the type once, in all namespaces.
	clusterWide
)

const (
	// maxUncounted is the number of namespaces for which the objects are not counted first: a list
	// of each costs no more than the count.
	maxUncounted = 2
	// objectCost is the cost of one more object in a list, as a fraction of the cost of a request. A
	// metadata list of 500 objects takes the API server about as long as three small lists.
	objectCost = 2.0 / 500
)

// computeScope returns the cheaper scope for listing a type in a number of namespaces, given the
// number of its objects in the cluster.
//
//	per namespace:  one request for each namespace
//	cluster-wide:   one request for each page, and the cost of the objects
//
// The objects in the namespaces themselves are listed either way and do not matter.
func computeScope(namespaces int, objects int64) scope {
	pages := (objects + PageSize - 1) / PageSize
	if float64(pages)+float64(objects)*objectCost <= float64(namespaces) {
		return clusterWide
	}
	return perNamespace
}

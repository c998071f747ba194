// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedlist

const (
	// maxUncounted is the largest number of namespaces that are listed without counting the objects of
	// the type in the cluster first. Counting them would cost as much as these lists.
	maxUncounted = 2
	// objectCost is the cost of each object in a list, as a fraction of the cost of a request. A
	// metadata list of 500 objects takes the API server about as long as three small lists.
	objectCost = 2.0 / 500
)

// isClusterWideCheaper reports whether one cluster-wide list of a type costs no more than a list in
// each namespace. The second parameter is the number of objects of the type in the cluster.
//
//	per namespace:  one request for each namespace
//	cluster-wide:   one request for each page, and the cost of the objects
//
// The objects in the given namespaces do not matter, because both ways list them.
func isClusterWideCheaper(namespaces int, objects int64) bool {
	pages := (objects + PageSize - 1) / PageSize
	return float64(pages)+float64(objects)*objectCost <= float64(namespaces)
}

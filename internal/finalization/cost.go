// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

// way is how the objects of a type are looked for in some namespaces.
type way int

const (
	// eachNamespace lists the type in one namespace after the other.
	eachNamespace way = iota
	// wholeCluster lists the type once, in all namespaces.
	wholeCluster
)

const (
	// fewAskers is how many namespaces ask for themselves, without counting first: for so
	// few a list each is not more than the count.
	fewAskers = 2
	// objectCost is what one more object in a list costs, as a share of what a request
	// costs. A metadata list of 500 objects takes the API server about as long as three
	// small lists do.
	objectCost = 2.0 / 500
)

// chooseWay decides for the cheaper way to look for the objects of a type in a number of
// namespaces, when there are so many objects in the whole cluster.
//
//	each namespace:  one request for each
//	whole cluster:   one request for each page, and what the objects cost
//
// What is in the namespaces themselves is listed either way and does not matter.
func chooseWay(askers int, objects int64) way {
	pages := (objects + pageSize - 1) / pageSize
	if float64(pages)+float64(objects)*objectCost <= float64(askers) {
		return wholeCluster
	}
	return eachNamespace
}

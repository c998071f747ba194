// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedlist

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Result is the result of listing one type in one namespace.
type Result struct {
	// Page is the first page of the list. If it is part of a cluster-wide list, no other page follows.
	Page *metav1.PartialObjectMetadataList
	// ListedAt is the time of the response.
	ListedAt time.Time
	Err      error
}

// request represents one call of List.
type request struct {
	namespace string
	types     []schema.GroupVersionResource
	// notBefore is the earliest acceptable time of the list requests.
	notBefore time.Time
	// results contains a result for each type, or nil if there is none yet. missing is the number of
	// types without a result. They are slices instead of maps, because hundreds of requests with hundreds
	// of types can be pending.
	results []*Result
	missing int
	// done is closed when there is a result for each type.
	done chan struct{}
}

// set sets the missing result for a type. The caller must hold the lock of the Lister.
func (r *request) set(index int, result *Result) {
	r.results[index] = result
	if r.missing--; r.missing == 0 {
		close(r.done)
	}
}

type missingResult struct {
	*request
	index int
}

// clusterList is a cluster-wide list of one type. It keeps the objects in the namespaces of the
// requests, and only the names of other namespaces.
type clusterList struct {
	requestedAt     time.Time
	listedAt        time.Time
	resourceVersion string
	objects         map[string][]metav1.PartialObjectMetadata
	// otherNamespaces are the namespaces with objects that were not kept.
	otherNamespaces sets.Set[string]
	// empty is the result for all namespaces without objects.
	empty *Result
}

// add adds one page. It keeps the objects in the given namespaces.
func (l *clusterList) add(items []metav1.PartialObjectMetadata, namespaces sets.Set[string]) {
	for i := range items {
		namespace := items[i].Namespace
		if namespaces.Has(namespace) {
			l.objects[namespace] = append(l.objects[namespace], items[i])
		} else {
			l.otherNamespaces.Insert(namespace)
		}
	}
}

// complete must be called after the last page was added.
func (l *clusterList) complete(resourceVersion string, listedAt time.Time) {
	l.resourceVersion, l.listedAt = resourceVersion, listedAt
	page := &metav1.PartialObjectMetadataList{}
	page.ResourceVersion = resourceVersion
	l.empty = &Result{Page: page, ListedAt: listedAt}
}

// resultFor returns the result for a namespace, or nil if its objects were not kept.
func (l *clusterList) resultFor(namespace string) *Result {
	if l.otherNamespaces.Has(namespace) {
		return nil
	}
	objects := l.objects[namespace]
	if len(objects) == 0 {
		return l.empty
	}
	page := &metav1.PartialObjectMetadataList{Items: objects}
	page.ResourceVersion = l.resourceVersion
	return &Result{Page: page, ListedAt: l.listedAt}
}

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

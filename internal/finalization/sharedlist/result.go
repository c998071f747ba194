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
	types     sets.Set[schema.GroupVersionResource]
	// notBefore is the earliest acceptable time of the list requests.
	notBefore time.Time
	results   map[schema.GroupVersionResource]*Result
	done      chan struct{}
	isDone    bool
}

// completeIfDone closes done if there is a result for each type. The caller must hold the lock of the
// Lister.
func (r *request) completeIfDone() {
	if len(r.results) == len(r.types) && !r.isDone {
		r.isDone = true
		close(r.done)
	}
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

func newClusterList(requestedAt time.Time) *clusterList {
	return &clusterList{
		requestedAt: requestedAt, objects: map[string][]metav1.PartialObjectMetadata{},
		otherNamespaces: sets.New[string](),
	}
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

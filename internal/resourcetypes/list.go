// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcetypes

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
)

const (
	// maxConcurrentLists limits the number of types that are listed concurrently.
	maxConcurrentLists = 32
	// pageSize is the maximum number of objects on a page.
	pageSize = 500
)

// Unlimited is the limit for listing all objects of a type.
const Unlimited = 0

// Content contains the objects of one type.
type Content struct {
	Type Type
	// Objects contains all objects, or the first objects if the list has a limit.
	Objects []metav1.PartialObjectMetadata
	// Count is the total number of objects. If the API server does not return the number of objects on
	// later pages, Count is the number of Objects and IsAtLeast is true.
	Count     int
	IsAtLeast bool
	// Err is the error that made the list incomplete.
	Err error
}

// List lists up to limit objects of each type, in one namespace or, if the namespace is empty, in all
// namespaces. It returns the types that have objects or could not be listed, in the original order. It
// omits types that are no longer served.
func List(
	ctx context.Context, client metadata.Interface, namespace string, types []Type, limit int,
) []Content {
	all := make([]Content, len(types))
	group := errgroup.Group{}
	group.SetLimit(maxConcurrentLists)
	for i, resourceType := range types {
		group.Go(func() error {
			all[i] = listType(ctx, client, namespace, resourceType, limit)
			return nil
		})
	}
	_ = group.Wait() // Each Content contains its error.
	var contents []Content
	for _, content := range all {
		if content.Count > 0 || content.Err != nil {
			contents = append(contents, content)
		}
	}
	return contents
}

func listType(ctx context.Context, client metadata.Interface, namespace string, resourceType Type, limit int) Content {
	content := Content{Type: resourceType}
	if !resourceType.Can("list") {
		if resourceType.Can("delete") { // Types that can only be created, such as reviews, have no objects.
			content.Err = fmt.Errorf("the API server does not support listing %s", resourceType)
		}
		return content
	}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		if limit != Unlimited {
			options.Limit = int64(min(limit-len(content.Objects), pageSize))
		}
		page, err := client.Resource(resourceType.GroupVersionResource).Namespace(namespace).List(ctx, options)
		switch {
		case apierrors.IsNotFound(err): // The type is no longer served.
			return content
		case apierrors.IsResourceExpired(err) && options.Continue != "":
			// The list took longer than etcd keeps old revisions. Repeat it without pagination.
			content.Objects, options = nil, metav1.ListOptions{}
			limit = Unlimited
			continue
		case err != nil:
			content.Err = fmt.Errorf("failed to list %s: %w", resourceType, err)
			content.Count = len(content.Objects)
			return content
		}
		content.Objects = append(content.Objects, page.Items...)
		content.Count = len(content.Objects)
		options.Continue = page.Continue
		isFull := limit != Unlimited && len(content.Objects) >= limit
		if page.Continue == "" || isFull {
			if page.RemainingItemCount != nil {
				content.Count += int(*page.RemainingItemCount)
			} else {
				content.IsAtLeast = page.Continue != ""
			}
			return content
		}
	}
}

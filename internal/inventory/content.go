// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
)

const (
	// listsAtOnce is how many types are listed side by side.
	listsAtOnce = 32
	// pageSize is the most objects that one request asks for.
	pageSize = 500
)

// Unlimited lists all objects of a type.
const Unlimited = 0

// Content is what there is of one type.
type Content struct {
	Type Type
	// Objects are the first ones, up to the limit of the list; all if it had none.
	Objects []metav1.PartialObjectMetadata
	// Count is the number of all of them. Where the API server does not tell how many
	// follow those that were listed it is the number of Objects, and IsAtLeast is true.
	Count     int
	IsAtLeast bool
	// Err says why not all of them could be listed.
	Err error
}

// List lists the objects of each type in one namespace, or in all if the name is empty,
// up to limit of each. It returns what there is of each type that has objects or could
// not be listed, in the order of the types. A type that is not served any more has
// neither.
func List(
	ctx context.Context, client metadata.Interface, namespace string, types []Type, limit int,
) []Content {
	all := make([]Content, len(types))
	group := errgroup.Group{}
	group.SetLimit(listsAtOnce)
	for i, listed := range types {
		group.Go(func() error {
			all[i] = listType(ctx, client, namespace, listed, limit)
			return nil
		})
	}
	_ = group.Wait() // What went wrong stands in the contents.
	var found []Content
	for _, content := range all {
		if content.Count > 0 || content.Err != nil {
			found = append(found, content)
		}
	}
	return found
}

func listType(ctx context.Context, client metadata.Interface, namespace string, listed Type, limit int) Content {
	content := Content{Type: listed}
	if !listed.Can("list") {
		if listed.Can("delete") { // otherwise it is one that is only asked, such as a review
			content.Err = fmt.Errorf("the API server offers no list of %s", listed)
		}
		return content
	}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		if limit != Unlimited {
			options.Limit = int64(min(limit-len(content.Objects), pageSize))
		}
		page, err := client.Resource(listed.GroupVersionResource).Namespace(namespace).List(ctx, options)
		switch {
		case apierrors.IsNotFound(err): // The type has gone, or is about to.
			return content
		case apierrors.IsResourceExpired(err) && options.Continue != "":
			// It took longer than storage keeps old states. Once more, in one piece.
			content.Objects, options = nil, metav1.ListOptions{}
			limit = Unlimited
			continue
		case err != nil:
			content.Err = fmt.Errorf("listing %s: %w", listed, err)
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

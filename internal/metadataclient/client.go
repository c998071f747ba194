// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metadataclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"
)

// ErrNotSent is wrapped by the error of a request that the client did not send.
var ErrNotSent = errors.New("no request was sent")

func notSent(why error) error { return fmt.Errorf("%w: %w", ErrNotSent, why) }

// New returns a client that does not send requests with an invalid path segment, and that rejects list
// responses that do not match the request.
func New(client metadata.Interface) metadata.Interface {
	return checkedClient{client}
}

type checkedClient struct{ client metadata.Interface }

func (c checkedClient) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	getter := c.client.Resource(gvr)
	return &checkedGetter{
		checkedResource: checkedResource{client: getter, typeErr: ValidateType(gvr)}, getter: getter,
	}
}

type checkedGetter struct {
	checkedResource
	getter metadata.Getter
}

// Namespace returns a client for one namespace, or for all namespaces. With metav1.NamespaceAll,
// the client supports only List and Watch, so that it cannot send a request for a cluster-scoped
// object if an item lacks metadata.namespace.
func (g *checkedGetter) Namespace(namespace string) metadata.ResourceInterface {
	resource := checkedResource{client: g.getter.Namespace(namespace), typeErr: g.typeErr, namespace: namespace}
	resource.namespaceErr = ValidateSegment("namespace", namespace)
	if namespace != metav1.NamespaceAll {
		resource.typeErr = cmp.Or(resource.typeErr, resource.namespaceErr)
	}
	return &resource
}

// checkedResource is a client for one type in one or all namespaces.
type checkedResource struct {
	client    metadata.ResourceInterface
	namespace string
	// typeErr is the error of all requests, and namespaceErr is the error of requests for single
	// objects.
	typeErr, namespaceErr error
}

// validate returns an error if a request for the given object must not be sent.
func (r *checkedResource) validate(name string, subresources ...string) error {
	err := cmp.Or(r.typeErr, r.namespaceErr, ValidateSegment("name", name))
	for _, subresource := range subresources {
		err = cmp.Or(err, ValidateSegment("subresource", subresource))
	}
	if err != nil {
		return notSent(err)
	}
	return nil
}

// Delete deletes an object. The options must have the UID as a precondition.
func (r *checkedResource) Delete(
	ctx context.Context, name string, options metav1.DeleteOptions, subresources ...string,
) error {
	if err := r.validate(name, subresources...); err != nil {
		return err
	}
	if options.Preconditions == nil || ptr.Deref(options.Preconditions.UID, "") == "" {
		return notSent(errors.New("the object has no UID"))
	}
	return r.client.Delete(ctx, name, options, subresources...)
}

func (r *checkedResource) DeleteCollection(
	ctx context.Context, options metav1.DeleteOptions, listOptions metav1.ListOptions,
) error {
	// A request without a namespace would delete the objects in all namespaces.
	if err := cmp.Or(r.typeErr, ValidateSegment("namespace", r.namespace)); err != nil {
		return notSent(err)
	}
	return r.client.DeleteCollection(ctx, options, listOptions)
}

func (r *checkedResource) Get(
	ctx context.Context, name string, options metav1.GetOptions, subresources ...string,
) (*metav1.PartialObjectMetadata, error) {
	if err := r.validate(name, subresources...); err != nil {
		return nil, err
	}
	return r.client.Get(ctx, name, options, subresources...)
}

func (r *checkedResource) Patch(
	ctx context.Context, name string, patchType types.PatchType, data []byte, options metav1.PatchOptions,
	subresources ...string,
) (*metav1.PartialObjectMetadata, error) {
	if err := r.validate(name, subresources...); err != nil {
		return nil, err
	}
	return r.client.Patch(ctx, name, patchType, data, options, subresources...)
}

func (r *checkedResource) List(
	ctx context.Context, options metav1.ListOptions,
) (*metav1.PartialObjectMetadataList, error) {
	if r.typeErr != nil {
		return nil, notSent(r.typeErr)
	}
	list, err := r.client.List(ctx, options)
	var tooLarge *ResponseTooLargeError
	for _, size := range smallerPages {
		if errors.As(err, &tooLarge) && (options.Limit == 0 || options.Limit > size) {
			options.Limit = size
			list, err = r.client.List(ctx, options)
		}
	}
	if err != nil {
		return nil, err
	}
	if tooLarge != nil && len(list.Items) == 0 && list.Continue == "" {
		// The larger response contained objects. The server may have applied the limit before it filtered them.
		return nil, tooLarge
	}
	if list.Continue == "" {
		list.RemainingItemCount = nil // The list is complete.
	}
	if err := r.validateList(list, options); err != nil {
		return nil, err
	}
	return list, nil
}

func (r *checkedResource) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if r.typeErr != nil {
		return nil, notSent(r.typeErr)
	}
	return r.client.Watch(ctx, options)
}

// validateList returns an error if a list cannot be the response to a request for this namespace. An
// item without metadata.namespace is treated as an item in this namespace, because requests for the item
// specify the namespace.
func (r *checkedResource) validateList(list *metav1.PartialObjectMetadataList, options metav1.ListOptions) error {
	if list.Continue != "" && list.Continue == options.Continue {
		return errors.New("the response repeats the continue token of the request")
	}
	// Larger values cannot be object counts, and their sums could overflow.
	if left := ptr.Deref(list.RemainingItemCount, 0); left < 0 || left > math.MaxInt32 {
		return fmt.Errorf("the response has an invalid remainingItemCount: %d", left)
	}
	for i := range list.Items {
		item := &list.Items[i]
		if r.namespace != metav1.NamespaceAll && item.Namespace != "" && item.Namespace != r.namespace {
			return fmt.Errorf("the response for namespace %q contains an item in namespace %s",
				r.namespace, Quote(item.Namespace))
		}
	}
	return nil
}

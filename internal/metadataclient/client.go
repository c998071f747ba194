// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metadataclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/validate/content"
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

const (
	// maxResponse is the maximum size of a response in bytes. The size of the metadata of 500 objects,
	// the largest page, is usually about 1 MiB.
	maxResponse = 16 << 20
	// maxTogether is the maximum total size in bytes of the responses that are read concurrently,
	// excluding the first 1 MiB (uncounted) of each response. The manager's memory limit is 256
	// MiB, and client-go allocates up to about twice the size of a response.
	maxTogether = 32 << 20
	uncounted   = 1 << 20
	// smallPage is the size of a page that does not exceed maxResponse even if each object has the maximum
	// size that etcd accepts, 1.5 MiB.
	smallPage = 8
)

// smallerPages are the page sizes that are tried after a response was too large.
var smallerPages = []int64{500, smallPage}

// ResponseTooLargeError is returned when a response exceeds the size limit.
type ResponseTooLargeError struct{ text string }

func (e *ResponseTooLargeError) Error() string { return e.text }

// LimitResponses returns a transport that stops reading responses that are too large. When a watch
// reaches the limit, it ends as if the server had closed it, and the client starts another watch
// from the last event. Therefore, the limit also applies to single events. The limit applies to the
// decompressed response.
func LimitResponses(next http.RoundTripper) http.RoundTripper {
	return &limiter{next: next}
}

type limiter struct {
	next http.RoundTripper
	// held is the total number of counted bytes in the responses that are being read.
	held atomic.Int64
}

func (l *limiter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	body := &limitedBody{ReadCloser: response.Body, held: &l.held}
	body.isWatch = request.URL.Query().Get("watch") != ""
	response.Body = body
	return response, nil
}

// WrappedRoundTripper returns the next transport for client-go.
func (l *limiter) WrappedRoundTripper() http.RoundTripper { return l.next }

type limitedBody struct {
	io.ReadCloser
	isWatch bool
	held    *atomic.Int64
	// read is the number of bytes that were read, and counted is the number of these bytes in held.
	read, counted int64
	err           error
}

func (b *limitedBody) Read(buffer []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(buffer)
	b.read += int64(n)
	if b.err = b.exceeded(); b.err != nil {
		return 0, b.err
	}
	return n, err
}

// exceeded returns an error if the response has become too large.
func (b *limitedBody) exceeded() error {
	switch {
	case b.read > maxResponse && b.isWatch:
		return io.EOF
	case b.read > maxResponse:
		return &ResponseTooLargeError{fmt.Sprintf("the response is larger than %d MiB", maxResponse>>20)}
	case b.isWatch || b.read <= uncounted:
		return nil // Watch events are not kept in memory.
	}
	more := b.read - uncounted - b.counted
	b.counted += more
	if b.held.Add(more) > maxTogether {
		return &ResponseTooLargeError{fmt.Sprintf("the response is larger than %d MiB, and responses of more than %d MiB "+
			"are being read at the same time", uncounted>>20, maxTogether>>20)}
	}
	return nil
}

func (b *limitedBody) Close() error {
	b.held.Add(-b.counted)
	b.counted = 0
	return b.ReadCloser.Close()
}

// maxQuoted is the maximum number of bytes of a value that an error quotes. It is the length of the
// longest valid name.
const maxQuoted = 253

// Quote quotes a value from an API server for use in an error, and truncates long values. The error
// can become part of a condition.
func Quote(value string) string {
	if len(value) > maxQuoted {
		return fmt.Sprintf("%q (%d bytes in total)", value[:maxQuoted], len(value))
	}
	return fmt.Sprintf("%q", value)
}

// ValidateSegment returns an error if a value cannot be a single segment of a URL path.
func ValidateSegment(field, value string) error {
	if value == "" {
		return fmt.Errorf("%s is empty", field)
	}
	if problems := content.IsPathSegmentName(value); len(problems) > 0 {
		return fmt.Errorf("%s %s is not valid: %s", field, Quote(value), strings.Join(problems, ", "))
	}
	return nil
}

// ValidateType returns an error if the group, version or resource cannot be a segment of a URL path. The
// group can be empty, because that is the core group.
func ValidateType(gvr schema.GroupVersionResource) error {
	if gvr.Group != "" {
		if err := ValidateSegment("group", gvr.Group); err != nil {
			return err
		}
	}
	if err := ValidateSegment("version", gvr.Version); err != nil {
		return err
	}
	return ValidateSegment("resource", gvr.Resource)
}

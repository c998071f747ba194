// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metadataclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

var things = schema.GroupVersionResource{Group: "vendor.example.com", Version: "v1", Resource: "things"}

var withUID = metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("uid")}

// recorder is a fake API server that records the paths of requests.
type recorder struct {
	paths []string
	list  metav1.PartialObjectMetadataList
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	r.paths = append(r.paths, request.Method+" "+request.URL.EscapedPath())
	response := httptest.NewRecorder()
	response.Header().Set("Content-Type", "application/json")
	r.list.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}
	_ = json.NewEncoder(response).Encode(&r.list)
	return response.Result(), nil
}

func newClient(t testing.TB, server http.RoundTripper) metadata.Interface {
	t.Helper()
	client, err := metadata.NewForConfig(&rest.Config{Transport: server, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return New(client)
}

func TestRequestsWithInvalidSegmentsAreNotSent(t *testing.T) {
	for name, call := range map[string]func(metadata.Interface, string) error{
		"delete": func(c metadata.Interface, bad string) error {
			return c.Resource(things).Namespace("x").Delete(t.Context(), bad, withUID)
		},
		"delete of a subresource": func(c metadata.Interface, bad string) error {
			return c.Resource(things).Namespace("x").Delete(t.Context(), "a", withUID, bad)
		},
		"delete in a namespace": func(c metadata.Interface, bad string) error {
			return c.Resource(things).Namespace(bad).Delete(t.Context(), "a", withUID)
		},
		"deletecollection in a namespace": func(c metadata.Interface, bad string) error {
			return c.Resource(things).Namespace(bad).
				DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		},
		"deletecollection of a resource": func(c metadata.Interface, bad string) error {
			return c.Resource(things.GroupVersion().WithResource(bad)).Namespace("x").
				DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		},
		"get": func(c metadata.Interface, bad string) error {
			_, err := c.Resource(things).Get(t.Context(), bad, metav1.GetOptions{})
			return err
		},
		"patch": func(c metadata.Interface, bad string) error {
			_, err := c.Resource(things).Namespace("x").
				Patch(t.Context(), bad, types.MergePatchType, nil, metav1.PatchOptions{})
			return err
		},
		"list of a resource": func(c metadata.Interface, bad string) error {
			_, err := c.Resource(things.GroupVersion().WithResource(bad)).List(t.Context(), metav1.ListOptions{})
			return err
		},
		"watch of a version": func(c metadata.Interface, bad string) error {
			_, err := c.Resource(schema.GroupVersionResource{Version: bad, Resource: "things"}).
				Watch(t.Context(), metav1.ListOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, bad := range []string{"", ".", "..", "a/b", "../..", "/", "%", "a%2fb", "..%2f"} {
				server := &recorder{}
				if err := call(newClient(t, server), bad); !errors.Is(err, ErrNotSent) {
					t.Errorf("%q: error %v", bad, err)
				}
				if len(server.paths) > 0 {
					t.Errorf("%q: sent %v", bad, server.paths)
				}
			}
		})
	}
}

func TestDeleteRequiresUID(t *testing.T) {
	for name, options := range map[string]metav1.DeleteOptions{
		"no preconditions": {},
		"no UID":           {Preconditions: &metav1.Preconditions{}},
		"an empty UID":     {Preconditions: metav1.NewUIDPreconditions("")},
	} {
		t.Run(name, func(t *testing.T) {
			server := &recorder{}
			err := newClient(t, server).Resource(things).Namespace("x").Delete(t.Context(), "a", options)
			if !errors.Is(err, ErrNotSent) || len(server.paths) > 0 {
				t.Errorf("error %v, sent %v", err, server.paths)
			}
		})
	}
}

func TestListValidatesResponses(t *testing.T) {
	item := func(namespace string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	}
	another := func(remaining *int64) metav1.ListMeta {
		return metav1.ListMeta{Continue: "next", RemainingItemCount: remaining}
	}
	for name, test := range map[string]struct {
		namespace string
		requested string // the continue token of the request
		list      metav1.ListMeta
		item      metav1.PartialObjectMetadata
		wantErr   bool
	}{
		"an item in the namespace":      {namespace: "x", item: item("x")},
		"an item without a namespace":   {namespace: "x", item: item("")},
		"an item in another namespace":  {namespace: "x", item: item("y"), wantErr: true},
		"a list of all namespaces":      {item: item("y")},
		"a remainingItemCount":          {namespace: "x", item: item("x"), list: another(ptr.To(int64(3)))},
		"a negative remainingItemCount": {namespace: "x", item: item("x"), list: another(ptr.To(int64(-1))), wantErr: true},
		"a huge remainingItemCount": {
			namespace: "x", item: item("x"), list: another(ptr.To(int64(math.MaxInt64))), wantErr: true,
		},
		"a remainingItemCount in the last page": {
			namespace: "x", item: item("x"), list: metav1.ListMeta{RemainingItemCount: ptr.To(int64(3))},
		},
		"the first page":            {namespace: "x", item: item("x"), list: another(nil)},
		"another page":              {namespace: "x", item: item("x"), requested: "first", list: another(nil)},
		"a repeated continue token": {namespace: "x", item: item("x"), requested: "next", list: another(nil), wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := &recorder{}
			server.list.ListMeta, server.list.Items = test.list, []metav1.PartialObjectMetadata{test.item}
			list, err := newClient(t, server).Resource(things).Namespace(test.namespace).List(
				t.Context(), metav1.ListOptions{Continue: test.requested})
			if (err != nil) != test.wantErr || (list == nil) != test.wantErr {
				t.Errorf("list %v, error %v", list, err)
			}
			if list != nil && list.Continue == "" && list.RemainingItemCount != nil {
				t.Errorf("a complete list has %d remaining items", *list.RemainingItemCount)
			}
		})
	}
}

// FuzzDeletePath verifies that a request for an object is sent only to the path of this object.
func FuzzDeletePath(f *testing.F) {
	f.Add("vendor.example.com", "v1", "things", "x", "a")
	f.Add("", "v1", "services", "x", "../../../../api/v1/namespaces/y/secrets/s")
	f.Add("..", "..", "..", "..", "..")
	f.Add("a", "v1", "things", "x%2f..", "a?b#c")
	f.Fuzz(func(t *testing.T, group, version, resource, namespace, name string) {
		server := &recorder{}
		gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
		_ = newClient(t, server).Resource(gvr).Namespace(namespace).Delete(t.Context(), name, withUID)
		if len(server.paths) == 0 {
			return
		}
		want := []string{"", "apis", group, version, "namespaces", namespace, resource, name}
		if group == "" {
			want = slices.Concat([]string{"", "api"}, want[3:])
		}
		var got []string
		for segment := range strings.SplitSeq(strings.TrimPrefix(server.paths[0], "DELETE "), "/") {
			decoded, err := url.PathUnescape(segment)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, decoded)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the path is %q, want %q", got, want)
		}
	})
}

func TestQuoteTruncates(t *testing.T) {
	if text := Quote(strings.Repeat("a", 1<<20)); len(text) > 300 {
		t.Errorf("got %d bytes", len(text))
	}
}

// sized is a transport whose responses have the given number of bytes.
type sized int64

func (s sized) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(io.LimitReader(zeros{}, int64(s)))}, nil
}

type zeros struct{}

func (zeros) Read(buffer []byte) (int, error) {
	clear(buffer)
	return len(buffer), nil
}

func open(t *testing.T, transport http.RoundTripper, query string) io.ReadCloser {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server/apis?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	return response.Body
}

func TestLimitResponses(t *testing.T) {
	for name, test := range map[string]struct {
		size     int64
		query    string
		wantRead int64
		wantErr  bool
	}{
		"an empty response":        {},
		"a page of a list":         {size: 1 << 20, wantRead: 1 << 20},
		"at the limit":             {size: maxResponse, wantRead: maxResponse},
		"above the limit":          {size: maxResponse + 1, wantErr: true},
		"an endless response":      {size: 1 << 40, wantErr: true},
		"a watch":                  {size: 1 << 20, query: "watch=true", wantRead: 1 << 20},
		"an endless watch":         {size: 1 << 40, query: "watch=true"},
		"an empty watch parameter": {size: 1 << 40, query: "watch=", wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			transport := LimitResponses(sized(test.size))
			body := open(t, transport, test.query)
			read, err := io.Copy(io.Discard, body)
			var tooLarge *ResponseTooLargeError
			if errors.As(err, &tooLarge) != test.wantErr || (err != nil) != test.wantErr {
				t.Errorf("error %v", err)
			}
			if read > maxResponse || test.wantRead > 0 && read != test.wantRead {
				t.Errorf("read %d bytes", read)
			}
			_, _ = body.Close(), body.Close()
			if held := transport.(*limiter).held.Load(); held != 0 {
				t.Errorf("%d bytes are still counted after the response was closed", held)
			}
		})
	}
}

// Small responses do not count toward the total limit, so that large responses cannot block them.
func TestLimitResponsesTogether(t *testing.T) {
	transport := LimitResponses(sized(maxResponse))
	var bodies []io.ReadCloser
	for range maxTogether / (maxResponse - uncounted) {
		body := open(t, transport, "")
		if _, err := io.Copy(io.Discard, body); err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, body)
	}
	body := open(t, transport, "")
	bodies = append(bodies, body)
	if _, err := io.CopyN(io.Discard, body, uncounted); err != nil {
		t.Errorf("failed to read a small response: %v", err)
	}
	if _, err := io.Copy(io.Discard, body); err == nil {
		t.Error("a large response exceeded the total limit without an error")
	}
	for _, one := range bodies {
		_ = one.Close()
	}
	if _, err := io.Copy(io.Discard, open(t, transport, "")); err != nil {
		t.Errorf("failed to read a large response after the others were closed: %v", err)
	}
}

// fatObjects is a fake API server with objects whose metadata is large. It supports the limit
// parameter of list requests.
type fatObjects struct {
	limits []string
	// hasFilter makes lists with a limit empty: the server filters the objects after it has applied the limit.
	hasFilter bool
}

func (s *fatObjects) RoundTrip(request *http.Request) (*http.Response, error) {
	limit := request.URL.Query().Get("limit")
	s.limits = append(s.limits, limit)
	count := 1000
	if limit != "" {
		_, _ = fmt.Sscan(limit, &count)
		if s.hasFilter {
			count = 0
		}
	}
	item := `{"metadata":{"name":"a","annotations":{"a":"` + strings.Repeat("a", 1<<18) + `"}}}`
	body := `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","items":[` +
		strings.TrimSuffix(strings.Repeat(item+",", count), ",") + `]}`
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader([]byte(body))),
	}, nil
}

func TestListUsesSmallerPagesAfterATooLargeResponse(t *testing.T) {
	for name, test := range map[string]struct {
		server  fatObjects
		limit   int64
		limits  []string
		wantErr bool
	}{
		"a limit":    {limit: 500, limits: []string{"500", "8"}},
		"no limit":   {limits: []string{"", "500", "8"}},
		"small page": {limit: 8, limits: []string{"8"}},
		"the limit hides all objects": {
			server: fatObjects{hasFilter: true}, limits: []string{"", "500"}, wantErr: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, LimitResponses(&test.server))
			list, err := client.Resource(things).Namespace("x").List(t.Context(), metav1.ListOptions{Limit: test.limit})
			if !slices.Equal(test.server.limits, test.limits) || (err != nil) != test.wantErr {
				t.Fatalf("error %v, limits %v", err, test.server.limits)
			}
			if err == nil && len(list.Items) != smallPage {
				t.Errorf("got %d items", len(list.Items))
			}
		})
	}
}

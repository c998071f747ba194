// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metadataclient

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

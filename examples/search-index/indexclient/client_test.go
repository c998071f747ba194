// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package indexclient

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/nslifecycle/nslifecycle/examples/search-index/indexserver"
)

var (
	shop      = indexserver.Owner{Namespace: "shop", UID: "11111111-aaaa"}
	shopAgain = indexserver.Owner{Namespace: "shop", UID: "22222222-bbbb"}
)

const shopIndex = "shop-11111111"

func newTestClient(t *testing.T, handler http.Handler, timeout time.Duration) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := New(server.URL, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func newRealHandler(t *testing.T) http.Handler {
	t.Helper()
	store, err := indexserver.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return indexserver.NewHandler(store, logr.Discard())
}

func TestWithServer(t *testing.T) {
	ctx := t.Context()
	client := newTestClient(t, newRealHandler(t), time.Minute)

	first, err := client.Create(ctx, shopIndex, shop)
	if err != nil {
		t.Fatal(err)
	}
	again, err := client.Create(ctx, shopIndex, shop)
	if diff := cmp.Diff(first, again); diff != "" || err != nil {
		t.Errorf("Create again: %v (-first +again):\n%s", err, diff)
	}
	document := indexserver.Document{ID: "ready", Time: time.Unix(1, 0).UTC(), Text: "shop is ready"}
	for range 2 {
		if err := client.Add(ctx, shopIndex, document); err != nil {
			t.Error(err)
		}
	}
	found, err := client.Search(ctx, shopIndex, "is ready & more?")
	if err != nil || found.Total != 0 {
		t.Errorf("Search without hits: %v, %v", found, err)
	}
	found, err = client.Search(ctx, shopIndex, "ready & shop")
	want := indexserver.Found{Total: 1, Documents: []indexserver.Document{document}}
	if diff := cmp.Diff(want, found); diff != "" || err != nil {
		t.Errorf("Search: %v (-want +got):\n%s", err, diff)
	}
	first.Documents = 1
	got, err := client.Get(ctx, shopIndex)
	if diff := cmp.Diff(first, got); diff != "" || err != nil {
		t.Errorf("Get: %v (-want +got):\n%s", err, diff)
	}
	for range 2 {
		if err := client.Delete(ctx, shopIndex, shop.UID); err != nil {
			t.Error(err)
		}
	}
	list, err := client.List(ctx)
	if diff := cmp.Diff([]indexserver.Index{}, list); diff != "" || err != nil {
		t.Errorf("List: %v (-want +got):\n%s", err, diff)
	}
}

func TestRefusals(t *testing.T) {
	ctx := t.Context()
	client := newTestClient(t, newRealHandler(t), time.Minute)
	if _, err := client.Create(ctx, shopIndex, shop); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(ctx, "deleted", "33333333"); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		try     func() error
		status  int
		isFinal bool
		message string
	}{
		"index with another UID": {
			try:    func() error { _, err := client.Create(ctx, shopIndex, shopAgain); return err },
			status: http.StatusConflict, isFinal: true, message: "belongs to namespace",
		},
		"deletion with another UID": {
			try:    func() error { return client.Delete(ctx, shopIndex, shopAgain.UID) },
			status: http.StatusConflict, isFinal: true, message: shop.UID,
		},
		"already deleted": {
			try: func() error {
				_, err := client.Create(ctx, "deleted", indexserver.Owner{Namespace: "deleted", UID: "33333333"})
				return err
			},
			status: http.StatusGone, isFinal: true, message: "was deleted at",
		},
		"invalid name": {
			try:    func() error { _, err := client.Create(ctx, "Shop", shop); return err },
			status: http.StatusBadRequest, isFinal: true, message: "lowercase",
		},
		"a name with a slash": {
			try:    func() error { _, err := client.Create(ctx, "a/../b", shop); return err },
			status: http.StatusBadRequest, isFinal: true, message: "not a valid index name",
		},
		"too large": {
			try: func() error {
				return client.Add(ctx, shopIndex, indexserver.Document{Text: strings.Repeat("a", 70<<10)})
			},
			status: http.StatusRequestEntityTooLarge, isFinal: true, message: "too large",
		},
		"missing index": {
			try:    func() error { _, err := client.Get(ctx, "nothing"); return err },
			status: http.StatusNotFound, message: "does not exist",
		},
		"unknown field": {
			try: func() error {
				return client.do(ctx, http.MethodPut, client.url(nil, "indices", shopIndex), map[string]string{"owner": "me"}, nil)
			},
			status: http.StatusBadRequest, isFinal: true, message: "owner",
		},
		"unknown method": {
			try: func() error {
				return client.do(ctx, http.MethodPatch, client.url(nil, "indices", shopIndex), nil, nil)
			},
			status: http.StatusMethodNotAllowed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.try()
			var refused *RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("The error is %v, want a RefusedError", err)
			}
			if refused.Status != test.status || refused.IsFinal() != test.isFinal || !strings.Contains(err.Error(), test.message) {
				t.Errorf("Status %d, final %t: %v; want %d, %t, %q",
					refused.Status, refused.IsFinal(), err, test.status, test.isFinal, test.message)
			}
		})
	}
}

func TestBusy(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		status    int
		header    string
		body      string
		isForeign bool
		want      BusyError
	}{
		"500": {
			status: 500, body: `{"error": "the disk is full"}`,
			want: BusyError{Status: 500, Message: "the disk is full"},
		},
		"503 with seconds": {
			status: 503, header: "7", want: BusyError{Status: 503, RetryAfter: 7 * time.Second},
		},
		"429 with a date": {
			status: 429, header: now.Add(time.Minute).Format(http.TimeFormat),
			want: BusyError{Status: 429, RetryAfter: time.Minute},
		},
		"date in the past": {
			status: 503, header: now.Add(-time.Minute).Format(http.TimeFormat), want: BusyError{Status: 503},
		},
		"over the maximum":  {status: 503, header: "3600", want: BusyError{Status: 503, RetryAfter: maxRetryAfter}},
		"a negative time":   {status: 503, header: "-1", want: BusyError{Status: 503}},
		"overflow":          {status: 503, header: "9223372036854775807", want: BusyError{Status: 503, RetryAfter: maxRetryAfter}},
		"invalid header":    {status: 503, header: "soon", want: BusyError{Status: 503}},
		"page from a proxy": {status: 502, body: "<html>\n bad\tgateway", want: BusyError{Status: 502, Message: "<html> bad gateway"}},
		"redirect":          {status: 302, header: "", want: BusyError{Status: 302, Message: "not a response from an index server"}},
		"long page":         {status: 500, body: strings.Repeat("é", 300), want: BusyError{Status: 500, Message: strings.Repeat("é", 100) + " ..."}},
		"not JSON":          {status: 200, body: "<html>", want: BusyError{Status: 200, Message: "failed to decode the response: invalid character '<' looking for beginning of value"}},
		"no signature":      {status: 200, body: "{}", isForeign: true, want: BusyError{Status: 200, Message: "not a response from an index server"}},
		"empty body":        {status: 200, want: BusyError{Status: 200, Message: "failed to decode the response: unexpected end of JSON input"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := newTestClient(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if !test.isForeign {
					w.Header().Set(indexserver.SignatureHeader, indexserver.Signature)
				}
				w.Header().Set("Retry-After", test.header)
				w.Header().Set("Location", "http://elsewhere.invalid/")
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}), time.Minute)
			client.now = func() time.Time { return now }

			_, err := client.Create(t.Context(), shopIndex, shop)

			var busy *BusyError
			if !errors.As(err, &busy) {
				t.Fatalf("The error is %v, want a BusyError", err)
			}
			if diff := cmp.Diff(test.want, *busy); diff != "" {
				t.Errorf("The error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewValidates(t *testing.T) {
	for name, test := range map[string]struct {
		server  string
		timeout time.Duration
		want    string
	}{
		"no URL":           {"", time.Second, "http://index-server:8080"},
		"no scheme":        {"index-server:8080", time.Second, "http://index-server:8080"},
		"another scheme":   {"ftp://index-server", time.Second, "http://index-server:8080"},
		"no host":          {"http:///indices", time.Second, "http://index-server:8080"},
		"invalid URL":      {"http://[", time.Second, "parse"},
		"zero timeout":     {"http://index-server", 0, "greater than 0"},
		"negative timeout": {"http://index-server", -time.Second, "greater than 0"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(test.server, test.timeout); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("New: %v, want an error with %q", err, test.want)
			}
		})
	}
}

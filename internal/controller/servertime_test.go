// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestServerTime(t *testing.T) {
	tests := map[string]struct {
		dates []string
		want  time.Time
	}{
		"told":             {dates: []string{"Sun, 01 Mar 2026 12:00:00 GMT"}, want: now},
		"told twice":       {dates: []string{"Sun, 01 Mar 2026 11:00:00 GMT", "Sun, 01 Mar 2026 12:00:00 GMT"}, want: now},
		"not told":         {dates: []string{""}},
		"not told at last": {dates: []string{"Sun, 01 Mar 2026 12:00:00 GMT", ""}},
		"no time":          {dates: []string{"noon"}},
		"never asked":      {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			date := ""
			server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
				response.Header()["Date"] = nil // Go writes one by itself otherwise.
				if date != "" {
					response.Header().Set("Date", date)
				}
			}))
			defer server.Close()
			httpClient := &http.Client{Transport: noteServerTime(http.DefaultTransport)}
			ctx, at := askServerTime(t.Context())
			for _, date = range test.dates {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
				g.Expect(err).NotTo(HaveOccurred())
				response, err := httpClient.Do(request)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(response.Body.Close()).To(Succeed())
			}
			g.Expect(at.UTC()).To(Equal(test.want))
		})
	}
}

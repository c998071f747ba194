// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package servertime

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestRecord(t *testing.T) {
	noon := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		dates []string
		want  time.Time
	}{
		"one response":                   {dates: []string{"Sun, 01 Mar 2026 12:00:00 GMT"}, want: noon},
		"two responses":                  {dates: []string{"Sun, 01 Mar 2026 11:00:00 GMT", "Sun, 01 Mar 2026 12:00:00 GMT"}, want: noon},
		"no header":                      {dates: []string{""}},
		"no header in the last response": {dates: []string{"Sun, 01 Mar 2026 12:00:00 GMT", ""}},
		"a header that cannot be parsed": {dates: []string{"noon"}},
		"no request":                     {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			date := ""
			server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
				response.Header()["Date"] = nil // Otherwise net/http adds a Date header.
				if date != "" {
					response.Header().Set("Date", date)
				}
			}))
			defer server.Close()
			httpClient := &http.Client{Transport: NewTransport(http.DefaultTransport)}
			ctx, recorded := Record(t.Context())
			for _, date = range test.dates {
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
				g.Expect(err).NotTo(HaveOccurred())
				response, err := httpClient.Do(request)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(response.Body.Close()).To(Succeed())
			}
			g.Expect(recorded.UTC()).To(Equal(test.want))
		})
	}
}

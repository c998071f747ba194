// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// TestLimitRate verifies that the requests of one peer do not keep out another one.
func TestLimitRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		served := 0
		handler := limitRate(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		send := func(peer string) int {
			request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			request.RemoteAddr = peer + ":40000"
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, request)
			return response.Code
		}
		const seconds = 3
		for range seconds {
			for range 10 * scrapeBurst {
				send("10.0.0.1")
			}
			g.Expect(send("10.0.0.2")).To(Equal(http.StatusOK))
			time.Sleep(time.Second)
		}
		g.Expect(served).To(Equal(seconds * (maxScrapesOfPeer + 1)))

		for i := range 10 * scrapeBurst {
			send(fmt.Sprintf("10.0.1.%d", i))
		}
		g.Expect(served).To(Equal(seconds*(maxScrapesOfPeer+1)+scrapeBurst), "all peers together are limited, too")
	})
}

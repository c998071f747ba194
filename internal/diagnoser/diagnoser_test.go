// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnoser

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestBudget(t *testing.T) {
	g := NewWithT(t)
	budget := NewBudget()
	g.Expect(budget.Wait(now)).To(BeZero())
	budget.pending.Store(requestsBurst - 1)
	g.Expect(budget.Wait(now)).To(BeZero(), "another diagnosis can start")
	budget.pending.Store(400)
	g.Expect(budget.Wait(now)).To(Equal(4 * time.Second))
	g.Expect(budget.Wait(now.Add(3 * time.Second))).To(Equal(time.Second))
	g.Expect(budget.Wait(now.Add(4 * time.Second))).To(BeZero())

	budget.pending.Store(3 * requestsBurst)
	g.Expect(budget.Wait(now.Add(4*time.Second))).To(Equal(3*requestsBurst*time.Second/requestsPerSecond),
		"requests beyond the burst are also deducted")
	g.Expect(budget.Wait(now.Add(time.Hour))).To(BeZero())
	budget.pending.Store(requestsBurst + 99)
	g.Expect(budget.Wait(now.Add(time.Hour))).To(Equal(time.Second), "unused requests do not accumulate beyond the burst")
}

func TestBudgetCounts(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	budget := NewBudget()
	client := &http.Client{Transport: budget.count(http.DefaultTransport)}
	for range 3 {
		response, err := client.Get(server.URL)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
	}
	g.Expect(budget.pending.Load()).To(Equal(int64(3)))
}

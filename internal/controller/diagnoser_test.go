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

func TestRequestBudget(t *testing.T) {
	g := NewWithT(t)
	budget := NewRequestBudget()
	g.Expect(budget.wait(now)).To(BeZero())
	budget.pending.Store(diagnosisRequestsBurst - 1)
	g.Expect(budget.wait(now)).To(BeZero(), "one diagnosis more may begin")
	budget.pending.Store(400)
	g.Expect(budget.wait(now)).To(Equal(4 * time.Second))
	g.Expect(budget.wait(now.Add(3 * time.Second))).To(Equal(time.Second))
	g.Expect(budget.wait(now.Add(4 * time.Second))).To(BeZero())

	budget.pending.Store(3 * diagnosisRequestsBurst)
	g.Expect(budget.wait(now.Add(4*time.Second))).To(Equal(3*diagnosisRequestsBurst*time.Second/diagnosisRequestsPerSecond),
		"more than the burst at once is paid for as well")
	g.Expect(budget.wait(now.Add(time.Hour))).To(BeZero())
	budget.pending.Store(diagnosisRequestsBurst + 99)
	g.Expect(budget.wait(now.Add(time.Hour))).To(Equal(time.Second), "nothing is saved up beyond the burst")
}

func TestRequestBudgetCounts(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	budget := NewRequestBudget()
	client := &http.Client{Transport: budget.count(http.DefaultTransport)}
	for range 3 {
		response, err := client.Get(server.URL)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
	}
	g.Expect(budget.pending.Load()).To(Equal(int64(3)))
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestRetryLimiter(t *testing.T) {
	g := NewWithT(t)
	limiter := newRetryLimiter(50 * time.Millisecond)
	one := requestFor("one")
	var last time.Duration
	for attempt := range 20 {
		delay := limiter.When(one)
		g.Expect(delay).To(Equal(min(50*time.Millisecond<<min(attempt, 10), maxTemplateRetry)))
		last = delay
	}
	g.Expect(last).To(Equal(5*time.Second), "one failing request")
	for i := range 2999 {
		limiter.When(requestFor(strconv.Itoa(i)))
	}
	g.Expect(limiter.When(one)).To(Equal(30*time.Second), "3000 failing requests")
	for i := range 2999 {
		limiter.Forget(requestFor(strconv.Itoa(i)))
	}
	g.Expect(limiter.When(one)).To(Equal(maxTemplateRetry))
	limiter.Forget(one)
	g.Expect(limiter.When(one)).To(Equal(50 * time.Millisecond))
	g.Expect(limiter.failing).To(HaveLen(1))
}

func TestLongestRetry(t *testing.T) {
	g := NewWithT(t)
	for failing, want := range map[int]time.Duration{
		0: maxTemplateRetry, 1: maxTemplateRetry, 500: maxTemplateRetry, 501: 5010 * time.Millisecond,
		6000: maxRetryDelay, 1_000_000: maxRetryDelay,
	} {
		g.Expect(longestRetry(failing)).To(Equal(want), "%d", failing)
	}
}

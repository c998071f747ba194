// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestElapsedSince(t *testing.T) {
	g, now := NewWithT(t), time.Now()
	var start time.Time
	g.Expect(ElapsedSince(&start, now)).To(BeZero())
	g.Expect(ElapsedSince(&start, now.Add(time.Second))).To(Equal(time.Second))
}

func TestFullPasses(t *testing.T) {
	g, now := NewWithT(t), time.Now()
	var m Memory
	const interval = time.Hour
	first := m.untilFullPass(interval, now)
	g.Expect(first).To(And(BeNumerically(">", 0), BeNumerically("<=", interval)))
	g.Expect(m.untilFullPass(interval, now.Add(first))).To(BeZero())
	g.Expect(m.untilFullPass(interval, now.Add(2*interval))).To(BeZero(), "a pass that failed is repeated")
	m.FullPass = now.Add(interval)
	g.Expect(m.untilFullPass(interval, now.Add(time.Minute))).To(Equal(interval - time.Minute))
}

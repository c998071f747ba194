// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

func TestWithoutRateLimit(t *testing.T) {
	g := NewWithT(t)
	given := &rest.Config{}
	g.Expect(withoutRateLimit(given).QPS).To(BeEquivalentTo(-1))
	g.Expect(given.QPS).To(BeZero(), "the manager's configuration must not change")
	g.Expect(withoutRateLimit(&rest.Config{QPS: 20}).QPS).To(BeEquivalentTo(20))
	g.Expect(withoutRateLimit(&rest.Config{RateLimiter: flowcontrol.NewFakeAlwaysRateLimiter()}).QPS).To(BeZero())
}

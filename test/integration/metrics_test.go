// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// gateEvaluations returns how often the API server has evaluated the gate, by its own
// metrics.
func gateEvaluations(ctx context.Context) int {
	GinkgoHelper()
	text, err := newClientset(plane.Admin).Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	total := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "apiserver_validating_admission_policy_check_total{") ||
			!strings.Contains(line, `policy="nslifecycle-gate"`) {
			continue
		}
		count, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndex(line, " "):]))
		Expect(err).NotTo(HaveOccurred())
		total += count
	}
	return total
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Metrics returns the metrics of this process by name, with one element for each set of label values.
func Metrics() map[string][]*dto.Metric {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	byName := map[string][]*dto.Metric{}
	for _, family := range families {
		byName[family.GetName()] = family.GetMetric()
	}
	return byName
}

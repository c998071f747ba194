// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

func TestDiagnosisStatus(t *testing.T) {
	g := NewWithT(t)
	of := func(states ...diagnosis.Health) error {
		var all []*diagnosis.Diagnosis
		for _, state := range states {
			all = append(all, &diagnosis.Diagnosis{Result: state})
		}
		return diagnosisStatus(all...)
	}
	g.Expect(of(diagnosis.Healthy, diagnosis.Progressing)).To(Succeed())
	g.Expect(of(diagnosis.Healthy, diagnosis.Unknown, diagnosis.Blocked)).To(HaveField("Code", ExitBlocked))
	g.Expect(of(diagnosis.Healthy, diagnosis.Unknown)).To(HaveField("Code", ExitError))
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/plugin/printer"
)

func TestDeletionProgress(t *testing.T) {
	g := NewWithT(t)
	progress := newDeletionProgress()
	progress.add(map[string]int{"configmaps": 10, "pods": 2})
	progress.add(map[string]int{"configmaps": 4, "secrets": 5})
	highest, current := progress.totals()
	g.Expect([]int{highest, current}).To(Equal([]int{17, 9}))
	g.Expect(plainProgressLines(progress)).To(Equal([]string{
		"secrets: 5 of 5 remaining", "configmaps: 4 of 10 remaining", "pods: 0 of 2 remaining",
	}))
	g.Expect(barLines(progress, printer.Palette{IsPlain: true})).To(Equal([]string{
		"  secrets     ░░░░░░░░░░░░░░░░░░░░░░░░  5 of 5 remaining",
		"  configmaps  ██████████████░░░░░░░░░░  4 of 10 remaining",
	}))

	many := newDeletionProgress()
	counts := map[string]int{}
	for i := range maxShownTypes + 3 {
		counts[fmt.Sprintf("type-%02d", i)] = 2
	}
	many.add(counts)
	lines := barLines(many, printer.Palette{IsPlain: true})
	g.Expect(lines).To(HaveLen(maxShownTypes + 1))
	g.Expect(lines[maxShownTypes]).To(Equal("  and 6 objects of other types"))
}

func TestDiagnosisLines(t *testing.T) {
	g := NewWithT(t)
	plain := printer.Palette{IsPlain: true}
	g.Expect(diagnosisLines(&diagnosis.Diagnosis{State: diagnosis.Progressing, Summary: "is being deleted"}, plain)).
		To(Equal([]string{"No cause found: is being deleted"}))
	finding := diagnosis.Finding{
		Cause: diagnosis.CauseForbidden, Rank: diagnosis.RankProven, Message: "cannot list pods", Remedies: []string{"grant the permission", "another remedy"},
	}
	blocked := &diagnosis.Diagnosis{State: diagnosis.Blocked, Findings: []diagnosis.Finding{finding, finding, finding, finding}}
	lines := diagnosisLines(blocked, plain)
	g.Expect(lines[:2]).To(Equal([]string{"Forbidden (proven): cannot list pods", "  " + labelTry + " grant the permission"}))
	g.Expect(lines[6:]).To(Equal([]string{"and 1 more finding"}))
}

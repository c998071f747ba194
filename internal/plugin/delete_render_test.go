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
	most, now := progress.totals()
	g.Expect([]int{most, now}).To(Equal([]int{17, 9}))
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
	g.Expect(diagnosisLines(&diagnosis.Diagnosis{State: diagnosis.Progressing, Summary: "it is slow"}, plain)).
		To(Equal([]string{"No cause found: it is slow"}))
	finding := diagnosis.Finding{
		Cause: diagnosis.CauseForbidden, Certainty: diagnosis.Confirmed, Message: "it may not", Remedies: []string{"let it", "or not"},
	}
	blocked := &diagnosis.Diagnosis{State: diagnosis.Blocked, Findings: []diagnosis.Finding{finding, finding, finding, finding}}
	lines := diagnosisLines(blocked, plain)
	g.Expect(lines[:2]).To(Equal([]string{"Forbidden (confirmed): it may not", "  " + labelTry + " let it"}))
	g.Expect(lines[6:]).To(Equal([]string{"and 1 more finding"}))
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/internal/initialization"
)

// The model and the operator agree on the phase of every version of a Namespace.
func TestPhases(t *testing.T) {
	g := NewWithT(t)
	for pending := names(0); pending <= allInitializers; pending++ {
		for _, hasLabel := range []bool{false, true} {
			for _, hasFailed := range []bool{false, true} {
				version := namespace{
					uid: 1, initializers: allInitializers, pending: pending, hasLabel: hasLabel, hasFailed: hasFailed,
				}
				state := initialization.ParseState(version.object())
				isConsistent := state.LabelRepair == nil
				g.Expect(isConsistent).To(Equal(hasLabel == (pending != 0)), "%+v", version)
				g.Expect(namesOf(state.Pending)).To(Equal(pending), "%+v", version)
				if isConsistent {
					g.Expect(version.isPending()).To(Equal(state.Phase == initialization.PhasePending), "%+v", version)
					g.Expect(hasLabel && hasFailed).To(Equal(state.Phase == initialization.PhaseFailed), "%+v", version)
				}
			}
		}
	}
}

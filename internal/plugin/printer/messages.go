// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"fmt"
	"strings"
)

// Labels of a finding.
const (
	labelCause    = "Cause"
	labelObjects  = "Objects"
	labelEvidence = "Evidence"
	labelInspect  = "To inspect"
	labelResolve  = "To resolve"
	labelLoss     = "Lost if forced"
)

// Summaries of a diagnosis.
const (
	msgOneFinding              = "1 finding."
	msgNoProblems              = "No problems found."
	msgNoProblemsInReadObjects = "No problems found in the objects that could be read."
)

func msgFindings(number int) string {
	return fmt.Sprintf("%d findings, most likely cause first.", number)
}

func helpOutput(formats []string) string {
	return fmt.Sprintf("Output format. One of: (%s).", strings.Join(formats, ", "))
}

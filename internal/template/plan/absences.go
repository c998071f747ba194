// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

// Absences has the times since which a Namespace lacks what makes it contain a template or an object: clients that
// replace a Namespace remove its labels for a moment. What was recorded is removed only after
// initialization.DeregistrationDelay. The times are in memory, so that no client can change them; after a restart, the
// delay starts again.
type Absences map[absenceKey]time.Time

// absenceKey identifies what a Namespace no longer contains.
type absenceKey struct {
	template string
	// object is empty if it is the template.
	object template.ObjectKey
}

// isAbsent reports whether something has been absent from the Namespace long enough to be removed.
func (p *Plan) isAbsent(key absenceKey) bool {
	since, ok := p.Memory.Absences[key]
	if !ok {
		since = p.Now
	}
	if p.absent == nil {
		p.absent = Absences{}
	}
	p.absent[key] = since
	remaining := max(since.Add(initialization.DeregistrationDelay).Sub(p.Now), 0)
	p.retry(remaining)
	return remaining == 0
}

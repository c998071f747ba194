// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

const (
	// maxRestorations is how often an object is restored without a delay.
	maxRestorations = 3
	// restorationWindow is the time after a restoration in which a change by another client counts.
	restorationWindow = 30 * time.Second
	// reportInterval is how long a conflict is only reported.
	reportInterval = 10 * time.Minute
	// firstForceDelay is the first delay with conflictPolicy Force. It doubles up to reportInterval.
	firstForceDelay = 10 * time.Second
)

// restorations has the objects of a Namespace that another client changes again and again. The counts are lost when the
// operator restarts.
type restorations map[template.ObjectKey]restoration

type restoration struct {
	// count is how often the operator has restored the object, and last when it has done so last.
	count int
	last  time.Time
	// uid and fields describe the object that the operator restored last.
	uid    types.UID
	fields string
	// conflict describes the changes of the other client, after the first report.
	conflict string
}

// restorationCheck is what prevents that an object is restored now.
type restorationCheck struct {
	// isCounted is true if another client has changed the object.
	isCounted bool
	// delay is the time until the object may be restored, count how often it was restored without a pause, and conflict
	// describes the changes of the other client; empty if it is not known yet.
	delay    time.Duration
	count    int
	conflict string
}

// check returns what prevents that an object is restored.
func (r restorations) check(
	key template.ObjectKey, own Ownership, policy v1alpha1.ConflictPolicy, now time.Time,
) restorationCheck {
	if r.isUnrecorded(key, own.Recorded, own.Current) {
		return restorationCheck{}
	}
	return r.checkChanged(key, policy, now)
}

// checkChanged returns what prevents that an object is restored that another client has changed. After a pause, its
// restorations count from 0 again.
func (r restorations) checkChanged(
	key template.ObjectKey, policy v1alpha1.ConflictPolicy, now time.Time,
) restorationCheck {
	current, delay := r[key], time.Duration(0)
	if current.count >= maxRestorations {
		delay = reportInterval
		if policy == v1alpha1.ConflictForce {
			delay = min(firstForceDelay<<min(current.count-maxRestorations, 10), reportInterval)
		}
	}
	elapsed := now.Sub(current.last)
	if elapsed > delay+restorationWindow || delay == reportInterval && elapsed >= delay {
		return restorationCheck{isCounted: true}
	}
	return restorationCheck{
		isCounted: true, delay: max(delay-elapsed, 0), count: current.count, conflict: current.conflict,
	}
}

// isUnrecorded reports whether an object differs from its record only because the Namespace does not record its
// last restoration. Then no other client has changed the object.
func (r restorations) isUnrecorded(key template.ObjectKey, recorded *template.ObjectState, object *Observed) bool {
	last, ok := r[key]
	return ok && object != nil && object.UID == last.uid && object.Fields == last.fields &&
		(recorded == nil || recorded.UID != last.uid || recorded.Fields != last.fields)
}

// record stores a restoration, and counts it if another client had changed the object.
func (r *restorations) record(key template.ObjectKey, restored *Observed, check restorationCheck, now time.Time) {
	current := (*r)[key]
	current.uid, current.fields = restored.UID, restored.Fields
	if check.isCounted {
		current.count, current.last, current.conflict = check.count+1, now, ""
	}
	template.Put(r, key, current)
}

// setConflict stores the description of a conflict until the object is restored again.
func (r restorations) setConflict(key template.ObjectKey, conflict string) {
	known := r[key]
	known.conflict = conflict
	r[key] = known
}

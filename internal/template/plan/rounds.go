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
	// maxRounds is how often an object is restored without a delay.
	maxRounds = 3
	// roundWindow is the time after a restoration in which a change counts as another round.
	roundWindow = 30 * time.Second
	// reportInterval is how long a conflict is only reported.
	reportInterval = 10 * time.Minute
	// firstForceDelay doubles with each round, up to reportInterval.
	firstForceDelay = 10 * time.Second
)

// rounds has the objects of a Namespace that another client changes again and again. The counts are lost when the
// operator restarts.
type rounds map[template.ObjectKey]round

type round struct {
	// count is how often the operator has restored the object, and last when it has done so last.
	count int
	last  time.Time
	// uid and fields are those of the object that the operator restored last.
	uid    types.UID
	fields string
	// conflict describes the changes of the other client, after the first report.
	conflict string
}

// roundCheck is what prevents that an object is restored now.
type roundCheck struct {
	// isCounted is true if another client has changed the object.
	isCounted bool
	// delay is the time until the object may be restored, count how often it was restored without a pause, and conflict
	// describes the changes of the other client; empty if it is not known yet.
	delay    time.Duration
	count    int
	conflict string
}

// check returns what prevents that an object is restored.
func (r rounds) check(
	key template.ObjectKey, own Ownership, policy v1alpha1.ConflictPolicy, now time.Time,
) roundCheck {
	if r.isUnrecorded(key, own.Recorded, own.Current) {
		return roundCheck{}
	}
	delay, count := r.next(key, policy, now)
	return roundCheck{isCounted: true, delay: delay, count: count, conflict: r[key].conflict}
}

// next returns how long to wait before the object may be restored, and how often it was restored without a pause.
func (r rounds) next(key template.ObjectKey, policy v1alpha1.ConflictPolicy, now time.Time) (time.Duration, int) {
	current, ok := r[key]
	if !ok {
		return 0, 0
	}
	delay := time.Duration(0)
	if current.count >= maxRounds {
		delay = reportInterval
		if policy == v1alpha1.ConflictForce {
			delay = min(firstForceDelay<<min(current.count-maxRounds, 10), reportInterval)
		}
	}
	elapsed := now.Sub(current.last)
	if elapsed > delay+roundWindow || delay == reportInterval && elapsed >= delay {
		delete(r, key)
		return 0, 0
	}
	return max(delay-elapsed, 0), current.count
}

// isUnrecorded reports whether an object differs from its record only because the Namespace does not record its
// last restoration. Then no other client has changed the object.
func (r rounds) isUnrecorded(key template.ObjectKey, recorded *template.ObjectState, object *Observed) bool {
	last, ok := r[key]
	return ok && object != nil && object.UID == last.uid && object.Fields == last.fields &&
		(recorded == nil || recorded.UID != last.uid || recorded.Fields != last.fields)
}

// record stores a restoration, and counts it if another client had changed the object.
func (r *rounds) record(key template.ObjectKey, restored *Observed, wasChanged bool, now time.Time) {
	current := (*r)[key]
	current.uid, current.fields = restored.UID, restored.Fields
	if wasChanged {
		current.count, current.last, current.conflict = current.count+1, now, ""
	}
	template.Put(r, key, current)
}

// setConflict stores the description of a conflict until the object is restored again.
func (r rounds) setConflict(key template.ObjectKey, conflict string) {
	known := r[key]
	known.conflict = conflict
	r[key] = known
}

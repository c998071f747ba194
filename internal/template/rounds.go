// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package template

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
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

// rounds counts how often the operator has restored objects that another client changes again and
// again. The counts are lost when the operator restarts.
type rounds struct {
	mutex    sync.Mutex
	byObject map[roundKey]round
}

type roundKey struct {
	namespace types.UID
	object    objectKey
}

type round struct {
	count int
	last  time.Time
	// uid and fields are those of the object that the operator restored last.
	uid    types.UID
	fields string
	// conflict describes the changes of the other client, after the first report.
	conflict string
}

// next returns how long to wait before the object may be restored, and how often it was restored
// without a pause.
func (r *rounds) next(key roundKey, policy v1alpha1.ConflictPolicy, now time.Time) (time.Duration, int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	current, ok := r.byObject[key]
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
		delete(r.byObject, key)
		return 0, 0
	}
	return max(delay-elapsed, 0), current.count
}

// isUnrecorded reports whether an object differs from its record only because the Namespace does not record its
// last restoration. Then no other client has changed the object.
func (r *rounds) isUnrecorded(key roundKey, recorded *ObjectState, object *observed) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	last, ok := r.byObject[key]
	return ok && object != nil && object.uid == last.uid && object.fields == last.fields &&
		(recorded == nil || recorded.UID != last.uid || recorded.Fields != last.fields)
}

// record stores a restoration, and counts it if another client had changed the object.
func (r *rounds) record(key roundKey, restored *observed, wasChanged bool, now time.Time) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.byObject == nil {
		r.byObject = map[roundKey]round{}
	}
	current := r.byObject[key]
	current.uid, current.fields = restored.uid, restored.fields
	if wasChanged {
		current.count, current.last, current.conflict = current.count+1, now, ""
	}
	r.byObject[key] = current
}

// conflict returns the description of a conflict, which describe returns at the first call after each
// restoration.
func (r *rounds) conflict(key roundKey, describe func() string) string {
	r.mutex.Lock()
	known := r.byObject[key]
	r.mutex.Unlock()
	if known.conflict != "" {
		return known.conflict
	}
	known.conflict = describe()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.byObject[key] = known
	return known.conflict
}

// forget removes the counts of a Namespace.
func (r *rounds) forget(namespace types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for key := range r.byObject {
		if key.namespace == namespace {
			delete(r.byObject, key)
		}
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"testing"
	"time"
)

func TestTracker(t *testing.T) {
	d := NewTracker([]string{"a", "b"})
	start := time.Now()
	d.Record("a", start)
	d.Record("a", start)
	d.Record("another", start)
	select {
	case <-d.Done():
		t.Fatal("The tracker is done before b is deleted")
	default:
	}
	if d.Remaining() != 1 {
		t.Errorf("%d objects remain, want 1", d.Remaining())
	}
	d.Record("b", start.Add(time.Second))
	<-d.Done()
	if got := d.Last().Sub(start); got != time.Second {
		t.Errorf("The last object was deleted after %s, want 1s", got)
	}
}

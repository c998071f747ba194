// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import "testing"

// Once the call has ended, its Namespace may be written to by whoever finishes the work: the
// timer that comes too late must not even look at it, which would be a panic here.
func TestATimerThatComesTooLateTouchesNothing(t *testing.T) {
	p := &progress{task: &task{}}
	p.end()
	p.breakSilence(t.Context())
}

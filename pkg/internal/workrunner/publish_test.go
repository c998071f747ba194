// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import "testing"

// After the call the Namespace may be modified concurrently, so a late heartbeat must not read it.
// Here reading it would panic.
func TestHeartbeatAfterTheCall(t *testing.T) {
	p := &progress{task: &task{}}
	p.stop()
	p.publishHeartbeat(t.Context())
}

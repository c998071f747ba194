// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"testing"

	"go.uber.org/goleak"
)

// After the call, the Namespace can be modified concurrently, so a late heartbeat must not read it.
// In this test, reading the Namespace would cause a panic.
func TestHeartbeatAfterTheCall(t *testing.T) {
	p := &progress{task: &task{}}
	p.stop()
	p.publishHeartbeat(t.Context())
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"testing"
	"time"
)

func TestFormatDuration(t *testing.T) {
	for want, duration := range map[string]time.Duration{
		"0.05 ms":  50 * time.Microsecond,
		"-0.05 ms": -50 * time.Microsecond,
		"-0.01 ms": -5 * time.Microsecond,
		"0.00 ms":  -4 * time.Microsecond,
		"2.35 ms":  2346 * time.Microsecond,
		"10.0 ms":  9999 * time.Microsecond,
		"99.9 ms":  99949 * time.Microsecond,
		"100 ms":   99951 * time.Microsecond,
		"1.0 s":    999600 * time.Microsecond,
		"12.3 s":   12345 * time.Millisecond,
	} {
		if got := FormatDuration(duration); got != want {
			t.Errorf("FormatDuration(%d ns) = %q, want %q", duration, got, want)
		}
	}
}

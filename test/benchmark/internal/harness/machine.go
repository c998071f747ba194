// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// DescribeMachine describes the machine, so that readers can interpret the results. The description
// does not identify the machine.
func DescribeMachine() []string {
	facts := []string{
		time.Now().UTC().Format("2006-01-02"),
		fmt.Sprintf("%d CPUs, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version()),
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		if fields := strings.Fields(string(load)); len(fields) > 0 {
			facts = append(facts, fmt.Sprintf("load average %s before the run", fields[0]))
		}
	}
	return facts
}

// Say reports progress on stderr; stdout is for the tables.
func Say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+" ...\n", args...) }

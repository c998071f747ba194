// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// clockTicks is the number of ticks per second in /proc/<pid>/stat: USER_HZ, which is 100 on every
// architecture that Go runs on.
const clockTicks = 100

// linux is the only operating system on which the benchmarks read these files in /proc.
const linux = "linux"

// processStat contains the fields of /proc/<pid>/stat that the benchmarks use.
type processStat struct {
	name   string
	parent int
	cpu    time.Duration
}

// ReadCPU returns the processor time that a process has used so far in user and kernel mode, or
// false if the operating system does not provide it.
func ReadCPU(pid int) (time.Duration, bool, error) {
	if runtime.GOOS != linux {
		return 0, false, nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false, err
	}
	stat, err := parseStat(string(text))
	return stat.cpu, err == nil, err
}

// FindChild returns the process ID of the child of this process with the given name, or false if
// the operating system does not provide it.
func FindChild(name string) (int, bool, error) {
	if runtime.GOOS != linux {
		return 0, false, nil
	}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, false, err
	}
	for _, path := range paths {
		// The process might have exited in the meantime.
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		stat, err := parseStat(string(text))
		if err == nil && stat.name == name && stat.parent == os.Getpid() {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid, err == nil, err
		}
	}
	return 0, false, fmt.Errorf("this process has no child named %s", name)
}

// parseStat parses the content of /proc/<pid>/stat. The process name is in parentheses and can
// itself contain parentheses.
func parseStat(text string) (processStat, error) {
	start, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if start < 0 || end < start {
		return processStat{}, fmt.Errorf("the process statistics %q contain no name", text)
	}
	// The first of these fields is the state, which is field 3 in proc(5).
	fields := strings.Fields(text[end+1:])
	const parent, user, system = 4 - 3, 14 - 3, 15 - 3
	if len(fields) <= system {
		return processStat{}, fmt.Errorf("the process statistics %q have too few fields", text)
	}
	stat := processStat{name: text[start+1 : end]}
	var err, userErr, systemErr error
	var userTicks, systemTicks int64
	stat.parent, err = strconv.Atoi(fields[parent])
	userTicks, userErr = strconv.ParseInt(fields[user], 10, 64)
	systemTicks, systemErr = strconv.ParseInt(fields[system], 10, 64)
	if err := errors.Join(err, userErr, systemErr); err != nil {
		return processStat{}, fmt.Errorf("failed to parse the process statistics %q: %w", text, err)
	}
	stat.cpu = time.Duration(userTicks+systemTicks) * time.Second / clockTicks
	return stat, nil
}

func readPeakMemory(pid int) (int64, bool, error) {
	if runtime.GOOS != linux {
		return 0, false, nil
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false, err
	}
	peak, err := parsePeakMemory(string(status))
	return peak, err == nil, err
}

// parsePeakMemory parses VmHWM in the content of /proc/<pid>/status.
func parsePeakMemory(status string) (int64, error) {
	for line := range strings.Lines(status) {
		value, found := strings.CutPrefix(line, "VmHWM:")
		if !found {
			continue
		}
		kibibytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("failed to parse the peak resident memory %q: %w", strings.TrimSpace(line), err)
		}
		return kibibytes * 1024, nil
	}
	return 0, errors.New("the process status contains no peak resident memory (VmHWM)")
}

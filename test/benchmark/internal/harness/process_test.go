// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"os"
	"testing"
	"time"
)

func TestParsePeakMemory(t *testing.T) {
	for name, test := range map[string]struct {
		status  string
		want    int64
		isError bool
	}{
		"a value":      {"Name:\tmanager\nVmPeak:\t 1294020 kB\nVmHWM:\t   67840 kB\nVmRSS:\t   60000 kB\n", 67840 << 10, false},
		"missing":      {"Name:\tmanager\nVmRSS:\t   60000 kB\n", 0, true},
		"not a number": {"VmHWM:\t   much kB\n", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parsePeakMemory(test.status)
			if got != test.want || (err != nil) != test.isError {
				t.Errorf("parsePeakMemory = %d, %v; want %d, error %v", got, err, test.want, test.isError)
			}
		})
	}
}

func TestParseStat(t *testing.T) {
	const fields = "77 1 1 0 -1 4194560 1 2 3 4 250 125 9 9 20 0 1 0 5 0 0"
	want := processStat{parent: 77, cpu: 3750 * time.Millisecond}
	for name, test := range map[string]struct {
		text, name string
		isError    bool
	}{
		"a process":               {"42 (kube-apiserver) S " + fields, "kube-apiserver", false},
		"a name with parentheses": {"42 (a) S (b)) R " + fields, "a) S (b)", false},
		"no name":                 {"42 S " + fields, "", true},
		"too few fields":          {"42 (etcd) S 77 1 1", "", true},
		"not a number":            {"42 (etcd) S 77 1 1 0 -1 4194560 1 2 3 4 many 125 9", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat(test.text)
			if (err != nil) != test.isError {
				t.Fatalf("The error is %v, want error %v", err, test.isError)
			}
			if test.isError {
				return
			}
			want.name = test.name
			if got != want {
				t.Errorf("parseStat = %+v, want %+v", got, want)
			}
		})
	}
}

func TestReadCPUOfThisProcess(t *testing.T) {
	used, ok, err := ReadCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if ok && (used < 0 || used > time.Hour) {
		t.Errorf("This process has used %s", used)
	}
}

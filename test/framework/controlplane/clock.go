// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ClockOffset is the environment variable with the number of seconds by which the clock of a program that was built
// with BuildWithClockOffset is ahead of the clock of the machine.
const ClockOffset = "NSLIFECYCLE_TEST_CLOCK_OFFSET"

// BuildWithClockOffset is like Build, but replaces a file of the standard library, so it compiles all packages. Their
// results are cached. The monotonic clock is not changed.
func BuildWithClockOffset(ctx context.Context, program, path string) error {
	overlay, err := clockOverlay(ctx)
	if err != nil {
		return err
	}
	return Build(ctx, Root(), program, path, overlay)
}

// BuildAPIServerWithClockOffset builds the pinned kube-apiserver like BuildWithClockOffset. Without cached packages,
// this takes about ten minutes on two cores.
func BuildAPIServerWithClockOffset(ctx context.Context, path string) error {
	overlay, err := clockOverlay(ctx)
	if err != nil {
		return err
	}
	module := filepath.Join(Root(), "hack", "controlplane")
	command := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	command.Dir = module
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("failed to get the version of kube-apiserver: %w", err)
	}
	version := strings.TrimSpace(string(output))
	numbers := strings.Split(strings.TrimPrefix(version, "v"), ".")
	const variable = " -X k8s.io/component-base/version."
	return Build(ctx, module, "k8s.io/kubernetes/cmd/kube-apiserver", path, overlay, "-ldflags=-s -w"+
		variable+"gitVersion="+version+variable+"gitMajor="+numbers[0]+variable+"gitMinor="+numbers[1])
}

// clockOverlay returns a flag of go build that replaces time.Now.
func clockOverlay(ctx context.Context) (flag string, err error) {
	output, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("failed to find the standard library: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(output)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", fmt.Errorf("failed to read the standard library: %w", err)
	}
	changed, err := addClockOffset(string(source))
	if err != nil {
		return "", fmt.Errorf("failed to change %s: %w", original, err)
	}
	// The results are cached by the path of the file, which therefore does not change.
	dir := filepath.Join(Root(), "bin", "test", "clock")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("failed to create %s: %w", dir, err)
	}
	// With the suffix .go, ./... would include the directory as a package.
	replacement, overlay := filepath.Join(dir, "time.go.txt"), filepath.Join(dir, "overlay.json")
	content, err := json.Marshal(map[string]any{"Replace": map[string]string{original: replacement}})
	if err != nil {
		return "", fmt.Errorf("failed to encode an overlay: %w", err)
	}
	for file, text := range map[string]string{replacement: changed, overlay: string(content)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("failed to write an overlay: %w", err)
		}
	}
	return "-overlay=" + overlay, nil
}

// addClockOffset changes the function time.Now.
func addClockOffset(source string) (string, error) {
	for after, line := range map[string]string{
		"\n\t\"math/bits\"\n": "\t\"syscall\"\n",
		"\nfunc Now() Time {\n\tsec, nsec, mono := runtimeNow()\n": "\tsec += clockOffset\n",
	} {
		if strings.Count(source, after) != 1 {
			return "", fmt.Errorf("it does not contain %q once", after)
		}
		source = strings.Replace(source, after, after+line, 1)
	}
	return source + `
// clockOffset is the difference in seconds between the clock of this process and that of the machine.
var clockOffset = func() int64 {
	text, _ := syscall.Getenv("` + ClockOffset + `")
	seconds, _ := atoi(text)
	return int64(seconds)
}()
`, nil
}

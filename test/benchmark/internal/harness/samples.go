// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ReadSamples calls the function do for each sample of the given metrics in the output of /metrics.
func ReadSamples(
	metrics io.Reader, names []string, do func(name string, labels map[string]string, value float64),
) error {
	lines := bufio.NewScanner(metrics)
	// Help texts and bucket lists can be long.
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		end := strings.IndexAny(line, "{ ")
		if end < 0 || !slices.Contains(names, line[:end]) {
			continue
		}
		tail := "}" + line[end:]
		if line[end] == '{' {
			tail = line[end+1:]
		}
		labels, value, err := parseSample(tail)
		if err != nil {
			return fmt.Errorf("failed to parse %q: %w", line, err)
		}
		do(line[:end], labels, value)
	}
	return lines.Err()
}

// parseSample parses the labels and the value of a sample: `a="b",c="d"} 12`.
func parseSample(text string) (map[string]string, float64, error) {
	labels := map[string]string{}
	for !strings.HasPrefix(text, "}") {
		name, tail, found := strings.Cut(text, "=")
		if !found {
			return nil, 0, fmt.Errorf("a label has no value in %q", text)
		}
		quoted, err := strconv.QuotedPrefix(tail)
		if err != nil {
			return nil, 0, fmt.Errorf("the value of label %s is not quoted in %q", name, tail)
		}
		if labels[name], err = strconv.Unquote(quoted); err != nil {
			return nil, 0, fmt.Errorf("failed to parse the value of label %s: %w", name, err)
		}
		text = strings.TrimPrefix(tail[len(quoted):], ",")
	}
	fields := strings.Fields(text[1:])
	if len(fields) == 0 {
		return nil, 0, fmt.Errorf("there is no value in %q", text)
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	return labels, value, err
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	klog.SetLogger(ctrl.Log)
	os.Exit(m.Run())
}

// TestTour runs the tour, which verifies its own statements.
func TestTour(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	var output bytes.Buffer
	d := newDemo(newNarrator(&output, false, func() {}), "")

	if err := d.play(t.Context(), options{once: true}); err != nil {
		t.Errorf("The tour failed: %v\n%s", err, &output)
	}
	if !d.isComplete && !t.Failed() {
		t.Errorf("The tour ended prematurely:\n%s", &output)
	}
	if d.isComplete {
		runCheck(t, d)
		runPages(t, d)
	}
	stopAndCheck(t, d, temporary)
}

// TestTourOfSearchIndex runs the search tour and the steps that it requires. TestTour runs all
// other steps.
func TestTourOfSearchIndex(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	var output bytes.Buffer
	d := newDemo(newNarrator(&output, false, func() {}), "")
	d.letFinish()
	for number, step := range []func(context.Context) error{
		d.start, d.startSearchIndex, func(ctx context.Context) error { return d.register(ctx, d.run) }, d.searchTour,
	} {
		if err := step(t.Context()); err != nil {
			t.Errorf("Step %d of the tour failed: %v\n%s", number, err, &output)
			break
		}
	}
	t.Log(&output)
	stopAndCheck(t, d, temporary)
}

func TestStoppedDemoCleansUp(t *testing.T) {
	for name, test := range map[string]struct {
		// The test stops the demo when the demo has printed text and a file matches the pattern.
		text, file string
	}{
		"while the control plane starts": {text: "Starting kube-apiserver", file: "k8s_test_framework_*"},
		"during the installation":        {text: "Installing nslifecycle", file: "*"},
	} {
		t.Run(name, func(t *testing.T) {
			temporary := t.TempDir()
			t.Setenv("TMPDIR", temporary)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &trigger{text: test.text, pull: func() {
				go func() {
					defer cancel()
					waitForFile(ctx, filepath.Join(temporary, test.file))
				}()
			}}
			d := newDemo(newNarrator(out, false, func() {}), "")

			if err := d.play(ctx, options{once: true}); err == nil {
				t.Errorf("The demo continued after its context was canceled")
			}
			if ctx.Err() == nil {
				t.Errorf("The demo never printed %q", test.text)
			}
			stopAndCheck(t, d, temporary)
		})
	}
}

func TestShellLine(t *testing.T) {
	for want, args := range map[string][]string{
		"get namespace team-a":              {"get", "namespace", "team-a"},
		"create namespace ''":               {"create", "namespace", ""},
		`--output='jsonpath={.a}{"\n"}' it`: {`--output=jsonpath={.a}{"\n"}`, "it"},
		`'it'\''s one'`:                     {"it's one"},
	} {
		if got := shellLine(args...); got != want {
			t.Errorf("shellLine(%q) = %s, want %s", args, got, want)
		}
	}
}

func TestNamesIn(t *testing.T) {
	for output, want := range map[string][]string{
		"": nil,
		"No resources found in development namespace.\n": nil,
		"service/web\npod/web\n":                         {"pod/web", "service/web"},
	} {
		if got := namesIn(output); !slices.Equal(got, want) {
			t.Errorf("namesIn(%q) = %q, want %q", output, got, want)
		}
	}
}

// stopAndCheck stops a demo, and checks that its API server has stopped and its files have been
// removed.
func stopAndCheck(t *testing.T, d *demo, temporary string) {
	t.Helper()
	if err := d.stop(); err != nil {
		t.Errorf("The demo could not be stopped: %v", err)
	}
	if d.controlPlane != nil {
		address := strings.Trim(strings.TrimPrefix(d.controlPlane.Admin.Host, "https:"), "/")
		if connection, err := net.Dial("tcp", address); err == nil {
			_ = connection.Close()
			t.Errorf("An API server still listens at %s", address)
		}
	}
	left, err := os.ReadDir(temporary)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		t.Errorf("The demo did not remove %s", entry.Name())
	}
}

func waitForFile(ctx context.Context, pattern string) {
	_ = wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
		files, err := filepath.Glob(pattern)
		return len(files) > 0, err
	})
}

// trigger is a writer that calls a function when text is written.
type trigger struct {
	text string
	pull func()
}

func (w *trigger) Write(data []byte) (int, error) {
	if bytes.Contains(data, []byte(w.text)) {
		w.pull()
	}
	return len(data), nil
}

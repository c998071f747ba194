// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func plainScreen() screen { return screen{colours: palette{isPlain: true}, now: noon} }

// stuck is a diagnosis with a finding of each shape.
func stuck() *diagnosis.Diagnosis {
	return &diagnosis.Diagnosis{
		Namespace: "shop", UID: "1", Stage: diagnosis.StageTerminating, State: diagnosis.Blocked,
		Since: noon.Add(-62 * time.Minute), Summary: "5 widgets wait for a controller that is gone",
		Findings: []diagnosis.Finding{
			{
				Cause: diagnosis.CauseFinalizerOwnerGone, Certainty: diagnosis.Confirmed,
				Message: "5 widgets wait for a controller that is gone",
				Objects: []diagnosis.Object{
					{Resource: "widgets.example.com", Namespace: "shop", Name: "a"},
					{Resource: "deployments.apps", Namespace: "widgets-system", Name: "controller"},
					{Resource: "nodes", Name: "n1"},
				},
				Count:    5,
				Evidence: []string{"Deployment widgets-system/controller does not exist", "last written 3 days ago"},
				Remedies: []string{"Install the controller again.", "kubectl nslifecycle finalize shop"},
				Loss:     "what the controller has made outside of the cluster",
			},
			{
				Cause: diagnosis.CauseUnknown, Certainty: diagnosis.Likely, Message: "something is left",
				Objects:  []diagnosis.Object{{Resource: "pods", Namespace: "shop", Name: "p"}},
				Evidence: []string{"one line"},
			},
		},
	}
}

func TestRenderDiagnosis(t *testing.T) {
	unread := []string{"nodes: forbidden"}
	for name, test := range map[string]struct {
		diagnosis *diagnosis.Diagnosis
		expected  []string
	}{
		"healthy": {
			&diagnosis.Diagnosis{
				Namespace: "shop", Stage: diagnosis.StageActive, State: diagnosis.Healthy,
				Since: noon.Add(-72 * time.Hour), Summary: "in use",
			},
			[]string{"Namespace shop: Active for 3d, healthy", "In use."},
		},
		"initializing": {
			&diagnosis.Diagnosis{
				Namespace: "shop", Stage: diagnosis.StageInitializing, State: diagnosis.Progressing,
				Since: noon.Add(-2 * time.Second), Summary: "waits for initializer a.b.c, the next of 2",
			},
			[]string{
				"Namespace shop: Initializing for 2s, progressing",
				"Waits for initializer a.b.c, the next of 2. There is nothing to blame.",
			},
		},
		"slow, and the clock of the server is ahead": {
			&diagnosis.Diagnosis{
				Namespace: "shop", Stage: diagnosis.StageTerminating, State: diagnosis.Progressing,
				Since: noon.Add(time.Second), Summary: "is being deleted",
			},
			[]string{
				"Namespace shop: Terminating for 0s, progressing",
				"Is being deleted. There is nothing to blame.",
			},
		},
		"not everything could be read": {
			&diagnosis.Diagnosis{
				Namespace: "shop", Stage: diagnosis.StageTerminating, State: diagnosis.Progressing,
				Summary: "is being deleted", Unread: unread,
			},
			[]string{
				"Namespace shop: Terminating, progressing",
				"Is being deleted. Nothing to blame was found in what could be read.",
			},
		},
		"blocked": {stuck(), []string{
			"Namespace shop: Terminating for 62m, blocked",
			"2 findings, the most likely cause first.",
			"",
			"├── FinalizerOwnerGone (confirmed): 5 widgets wait for a controller that is gone",
			"│   ├── Objects: widgets.example.com/a, " +
				"deployments.apps/controller in namespace widgets-system, nodes/n1, and 2 more",
			"│   ├── Evidence",
			"│   │   ├── Deployment widgets-system/controller does not exist",
			"│   │   └── last written 3 days ago",
			"│   ├── What to do",
			"│   │   ├── Install the controller again.",
			"│   │   └── kubectl nslifecycle finalize shop",
			"│   └── Forcing it would lose: what the controller has made outside of the cluster",
			"└── Unknown (likely): something is left",
			"    ├── Objects: pods/p",
			"    └── Evidence: one line",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			text := renderDiagnosis(test.diagnosis, plainScreen())
			if diff := cmp.Diff(test.expected, strings.Split(strings.TrimSuffix(text, "\n"), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRenderDiagnosisOnTerminal(t *testing.T) {
	text := shown(renderDiagnosis(stuck(), screen{columns: 60, now: noon}))
	for line := range strings.Lines(text) {
		for _, code := range []string{"\x1b[31m", "\x1b[33m", "\x1b[36m", "\x1b[2m", "\x1b[1m", "\x1b[0m"} {
			line = strings.ReplaceAll(line, code, "")
		}
		if length := len([]rune(strings.TrimSuffix(line, "\n"))); length > 60 {
			t.Errorf("%d columns: %q", length, line)
		}
	}
	for _, expected := range []string{
		"Namespace \x1b[1mshop\x1b[0m: Terminating for 62m, \x1b[31mblocked\x1b[0m\n",
		"\x1b[31mFinalizerOwnerGone (confirmed):\x1b[0m", "\x1b[33mUnknown (likely):\x1b[0m",
		"\x1b[36mkubectl nslifecycle finalize shop\x1b[0m",
	} {
		if !strings.Contains(text, expected) {
			t.Errorf("there is no %q in %q", expected, text)
		}
	}
}

func TestExitFor(t *testing.T) {
	healthy := &diagnosis.Diagnosis{State: diagnosis.Healthy}
	progressing := &diagnosis.Diagnosis{State: diagnosis.Progressing}
	if err := exitFor(healthy, progressing); err != nil {
		t.Errorf("healthy and progressing: %v", err)
	}
	var exit *StatusError
	if err := exitFor(healthy, stuck()); !errors.As(err, &exit) || exit.Code != ExitBlocked {
		t.Errorf("blocked: %v", err)
	}
}

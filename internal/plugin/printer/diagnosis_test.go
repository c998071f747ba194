// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

func TestRepeats(t *testing.T) {
	g := NewWithT(t)
	const failure = `Internal error occurred: failed calling webhook "a.example.com": connection refused`
	earlier := diagnosis.Proven("dry run of the deletion of configmaps \"a\": "+failure, "scope: Namespaced")
	g.Expect(repeats("condition ContentFailure=True: failed to delete configmaps: "+failure, earlier)).To(BeTrue())
	g.Expect(repeats("condition ContentFailure=True: another error", earlier)).To(BeFalse())
	g.Expect(repeats("scope: Namespaced", earlier)).To(BeFalse())
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stuck returns a diagnosis whose findings cover all forms of output.
func stuck() *diagnosis.Diagnosis {
	return &diagnosis.Diagnosis{
		Namespace: "shop", UID: "1", State: diagnosis.StateTerminating, Result: diagnosis.Blocked,
		Since: noon.Add(-62 * time.Minute), Summary: "5 widgets wait for a controller that no longer exists",
		Findings: []diagnosis.Finding{
			{
				Cause: diagnosis.CauseFinalizerOwnerNotFound, Rank: diagnosis.RankProven,
				Message: "5 widgets wait for a controller that no longer exists",
				Objects: []diagnosis.Object{
					{Resource: "widgets.example.com", Namespace: "shop", Name: "a"},
					{Resource: "deployments.apps", Namespace: "widgets-system", Name: "controller"},
					{Resource: "nodes", Name: "n1"},
				},
				Count:    5,
				Evidence: append(diagnosis.Published("condition Ready=False"), diagnosis.Inferred("no workload was found")...),
				Remedies: []diagnosis.Remedy{
					diagnosis.Resolve("Install the controller again."),
					diagnosis.Inspect("kubectl get widgets a --namespace=shop"),
					diagnosis.Resolve("kubectl nslifecycle finalize shop"),
					diagnosis.ResolveWith("If the node is lost, delete it", "kubectl delete node n1"),
				},
				Loss: "a bucket outside the cluster",
			},
			{
				Cause: diagnosis.CauseUnknown, Rank: diagnosis.RankInferred, Message: "one object still exists",
				Objects:  []diagnosis.Object{{Resource: "pods", Namespace: "shop", Name: "p"}},
				Evidence: diagnosis.Proven("one line"),
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
				Namespace: "shop", State: diagnosis.StateInitialized, Result: diagnosis.Healthy,
				Since: noon.Add(-72 * time.Hour), Summary: "in use",
			},
			[]string{"Namespace shop: Initialized for 3d, healthy", "In use."},
		},
		"initializing": {
			&diagnosis.Diagnosis{
				Namespace: "shop", State: diagnosis.StateInitializing, Result: diagnosis.Progressing,
				Since: noon.Add(-2 * time.Second), Summary: "waits for initializer a.b.c, the next of 2",
			},
			[]string{
				"Namespace shop: Initializing for 2s, progressing",
				"Waits for initializer a.b.c, the next of 2. " + messageNoProblems,
			},
		},
		"terminating, with the server's clock ahead": {
			&diagnosis.Diagnosis{
				Namespace: "shop", State: diagnosis.StateTerminating, Result: diagnosis.Progressing,
				Since: noon.Add(time.Second), Summary: "is being deleted",
			},
			[]string{
				"Namespace shop: Terminating for 0s, progressing",
				"Is being deleted.",
			},
		},
		"terminating, with unread objects": {
			&diagnosis.Diagnosis{
				Namespace: "shop", State: diagnosis.StateTerminating, Result: diagnosis.Progressing,
				Summary: "is being deleted", Unread: unread,
			},
			[]string{
				"Namespace shop: Terminating, progressing",
				"Is being deleted. " + messageNoProblemsInReadObjects,
			},
		},
		"blocked": {stuck(), []string{
			"Namespace shop: Terminating for 62m, blocked",
			messageFindings(2),
			"",
			"5 widgets wait for a controller that no longer exists",
			"  Cause: FinalizerOwnerNotFound (proven)",
			"  Objects: widgets.example.com/a, deployments.apps/controller in namespace widgets-system,",
			"    nodes/n1, and 2 more",
			"  Evidence:",
			"    - published: condition Ready=False",
			"    - inferred: no workload was found",
			"  " + labelInspect + ":",
			"    kubectl get widgets a --namespace=shop",
			"  " + labelResolve + ":",
			"    - Install the controller again.",
			"    kubectl nslifecycle finalize shop",
			"    - If the node is lost, delete it:",
			"      kubectl delete node n1",
			"  " + labelLoss + ": a bucket outside the cluster",
			"",
			"one object still exists",
			"  Cause: Unknown (inferred)",
			"  Objects: pods/p",
			"  Evidence:",
			"    - proven: one line",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			text := RenderDiagnosis(test.diagnosis, Palette{IsPlain: true}, noon)
			NewWithT(t).Expect(strings.Split(strings.TrimSuffix(text, "\n"), "\n")).To(Equal(test.expected))
		})
	}
}

func TestRenderDiagnosisOnTerminal(t *testing.T) {
	text := terminalText(RenderDiagnosis(stuck(), Palette{}, noon))
	for _, expected := range []string{
		"Namespace shop: Terminating for 62m, \x1b[31mblocked\x1b[0m\n",
		"\x1b[31m5 widgets wait for a controller that no longer exists\x1b[0m\n",
		"\x1b[33mone object still exists\x1b[0m\n",
	} {
		NewWithT(t).Expect(text).To(ContainSubstring(expected))
	}
}

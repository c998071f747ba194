// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// expectedFinding describes a finding that a spec expects.
type expectedFinding struct {
	cause diagnosis.Cause
	rank  diagnosis.Rank
	// objects lists all objects of the finding as RESOURCE/NAME.
	objects []string
	// texts are expected substrings of the message.
	texts []string
	// evidence contains expected substrings of the evidence.
	evidence []string
}

func proven(cause diagnosis.Cause, objects ...string) expectedFinding {
	return expectedFinding{cause: cause, rank: diagnosis.RankProven, objects: objects}
}

func inferred(cause diagnosis.Cause, objects ...string) expectedFinding {
	return expectedFinding{cause: cause, rank: diagnosis.RankInferred, objects: objects}
}

func published(cause diagnosis.Cause, objects ...string) expectedFinding {
	return expectedFinding{cause: cause, rank: diagnosis.RankPublished, objects: objects}
}

// withMessage adds expected substrings of the message.
func (expected expectedFinding) withMessage(texts ...string) expectedFinding {
	expected.texts = append(slices.Clone(expected.texts), texts...)
	return expected
}

// withEvidence adds expected substrings of the evidence.
func (expected expectedFinding) withEvidence(evidence ...string) expectedFinding {
	expected.evidence = append(slices.Clone(expected.evidence), evidence...)
	return expected
}

func (f *fixture) diagnose(g Gomega, ctx context.Context, collector *collect.Collector) *diagnosis.Diagnosis {
	result, err := collector.Diagnose(ctx, f.ns)
	g.Expect(err).NotTo(HaveOccurred())
	return result
}

// expectResolved waits until the diagnosis has no finding with the given cause.
func (f *fixture) expectResolved(ctx context.Context, cause diagnosis.Cause) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(f.diagnose(g, ctx, collector).Findings).NotTo(ContainElement(HaveField("Cause", cause)))
	}).WithContext(ctx).Should(Succeed())
}

// expectFindings waits until the diagnosis has exactly the wanted findings, in the given order. The strings are
// completed as in manifests. It
// fails the spec immediately if the diagnosis reports any other cause. It runs the recommended
// commands and returns the diagnosis.
func (f *fixture) expectFindings(ctx context.Context, wanted ...expectedFinding) *diagnosis.Diagnosis {
	GinkgoHelper()
	var causes []diagnosis.Cause
	for i, expected := range wanted {
		causes = append(causes, expected.cause)
		wanted[i].objects, wanted[i].texts, wanted[i].evidence = f.texts(expected.objects), f.texts(expected.texts), f.texts(expected.evidence)
	}
	var result *diagnosis.Diagnosis
	Eventually(func(g Gomega) {
		result = f.diagnose(g, ctx, collector)
		// An administrator can read everything, but a request might time out.
		g.Expect(result.Unread).To(BeEmpty())
		var found []diagnosis.Cause
		for _, finding := range result.Findings {
			if !slices.Contains(causes, finding.Cause) {
				StopTrying("unexpected cause").Attach("findings", format(result)).Now()
			}
			found = append(found, finding.Cause)
		}
		g.Expect(found).To(Equal(causes))
		// Each object is reported after the progress deadline, and a dry run can prove a published finding.
		for i, expected := range wanted {
			g.Expect(result.Findings[i].Rank).To(Equal(expected.rank), format(result))
			g.Expect(objectsOf(result.Findings[i])).To(ConsistOf(expected.objects), format(result))
		}
	}).WithContext(ctx).Should(Succeed())
	GinkgoWriter.Println(format(result))
	Expect(result.Result).To(Equal(diagnosis.Blocked))
	Expect(result.Summary).To(Equal(result.Findings[0].Message))
	for i, expected := range wanted {
		expected.expectIn(result.Findings[i])
	}
	for _, finding := range result.Findings {
		expectRemediesWork(ctx, finding)
	}
	return result
}

// expectStuck requests the deletion of the namespace, expects the finding, removes the cause, and expects that the
// namespace is then deleted.
func (f *fixture) expectStuck(ctx context.Context, expected expectedFinding, release func(*fixture, context.Context)) {
	GinkgoHelper()
	f.deleteNamespace(ctx)
	f.expectFindings(ctx, expected)
	release(f, ctx)
	f.expectDeleted(ctx)
}

// removeFinalizersOf removes the finalizers of the objects of a manifest.
func removeFinalizersOf(text string) func(*fixture, context.Context) {
	return func(f *fixture, ctx context.Context) {
		for _, object := range f.objects(text) {
			removeFinalizers(ctx, object)
		}
	}
}

func removeNamespaceFinalizers(f *fixture, ctx context.Context) {
	framework.SetNamespaceFinalizers(ctx, admin, f.ns, corev1.FinalizerKubernetes)
}

// objectsOf returns the objects of a finding as resource/name.
func objectsOf(finding diagnosis.Finding) []string {
	objects := []string{}
	for _, object := range finding.Objects {
		objects = append(objects, object.Resource+"/"+object.Name)
	}
	return objects
}

// expectIn compares a finding with the expected one, except for its objects.
func (expected expectedFinding) expectIn(finding diagnosis.Finding) {
	GinkgoHelper()
	description := format(&diagnosis.Diagnosis{Findings: []diagnosis.Finding{finding}})
	Expect(finding.Rank).To(Equal(expected.rank), description)
	for _, text := range expected.texts {
		Expect(finding.Message).To(ContainSubstring(text), description)
	}
	for _, text := range expected.evidence {
		Expect(evidenceText(finding)).To(ContainSubstring(text), description)
	}
	Expect(finding.Message).NotTo(BeEmpty(), description)
	Expect(finding.Evidence).NotTo(BeEmpty(), description)
	Expect(finding.Remedies).NotTo(BeEmpty(), description)
	texts := append(diagnosis.TextsOf(finding.Evidence), finding.Message)
	for _, remedy := range finding.Remedies {
		texts = append(texts, remedy.String())
	}
	for _, text := range texts {
		Expect(text).NotTo(ContainSubstring("%!"), description)
		Expect(text).NotTo(ContainSubstring("\n"), description)
		Expect(strings.TrimSpace(text)).NotTo(BeEmpty(), description)
	}
}

func evidenceText(finding diagnosis.Finding) string {
	return strings.Join(diagnosis.TextsOf(finding.Evidence), "\n")
}

// expectNoFindings expects that the diagnosis has no findings during the given duration.
func (f *fixture) expectNoFindings(ctx context.Context, collector *collect.Collector, duration time.Duration) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		var result *diagnosis.Diagnosis
		Eventually(func(g Gomega) {
			result = f.diagnose(g, ctx, collector)
			g.Expect(result.Unread).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		g.Expect(result.Findings).To(BeEmpty(), format(result))
		g.Expect(result.Result).NotTo(Equal(diagnosis.Blocked))
	}).WithContext(ctx).WithTimeout(duration).Should(Succeed())
}

// format formats a diagnosis for the output of a spec.
func format(result *diagnosis.Diagnosis) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s: %s\n", result.Namespace, result.Result, result.Summary)
	for _, finding := range result.Findings {
		fmt.Fprintf(&text, "- %s (%s): %s\n  objects: %v of %d\n", finding.Cause, finding.Rank, finding.Message,
			finding.Objects, finding.Count)
		for _, evidence := range finding.Evidence {
			fmt.Fprintf(&text, "  evidence: %s\n", evidence)
		}
		for _, remedy := range finding.Remedies {
			fmt.Fprintf(&text, "  remedy: %s\n", remedy)
		}
		fmt.Fprintf(&text, "  loss: %s\n", finding.Loss)
	}
	for _, unread := range result.Unread {
		fmt.Fprintf(&text, "unread: %s\n", unread)
	}
	return text.String()
}

// mutatingCommands are the kubectl commands that accept --dry-run.
var mutatingCommands = []string{"annotate", "apply", "create", "delete", "label", "patch", "replace", "scale", "taint"}

// expectRemediesWork runs the commands that a finding recommends. It runs mutating commands as
// server-side dry runs.
func expectRemediesWork(ctx context.Context, finding diagnosis.Finding) {
	GinkgoHelper()
	for _, remedy := range finding.Remedies {
		command := remedy.Command
		words := strings.Fields(command)
		// No kubelet is running to serve logs, and the plugin has its own tests.
		if len(words) == 0 || words[1] == "nslifecycle" || words[1] == "logs" {
			continue
		}
		isMutating := slices.Contains(mutatingCommands, words[1])
		Expect(remedy.Changes).To(Equal(isMutating || words[1] == "edit"), command)
		if isMutating {
			command += " --dry-run=server"
		}
		output, err := runShell(ctx, command)
		if words[1] == "auth" && strings.TrimSpace(output) == "no" || isEvidence(output, finding) {
			continue // The command confirms the finding.
		}
		Expect(err).NotTo(HaveOccurred(), "%s, recommended for %s, printed: %s", command, finding.Cause, output)
	}
}

// isEvidence reports whether a command failed with the error that is the evidence of a finding.
func isEvidence(output string, finding diagnosis.Finding) bool {
	_, text, isError := strings.Cut(strings.TrimSpace(output), "Error from server")
	if _, after, hasReason := strings.Cut(text, "): "); hasReason {
		text = after
	}
	text = strings.TrimPrefix(text, ": ")
	return isError && text != "" && strings.Contains(evidenceText(finding), text)
}

// runShell runs a command line in a shell, as a user who copies the command would.
func runShell(ctx context.Context, line string) (string, error) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	Expect(controlplane.WriteKubeconfig(kubeconfig, cluster.Admin.Config)).To(Succeed())
	if path := cluster.KubectlPath(); filepath.IsAbs(path) {
		Expect(os.Symlink(path, filepath.Join(dir, "kubectl"))).To(Succeed())
	}
	command := exec.CommandContext(ctx, "sh", "-c", line)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir,
		"EDITOR=true")
	output, err := command.CombinedOutput()
	GinkgoWriter.Printf("$ %s\n%s", line, output)
	return string(output), err
}

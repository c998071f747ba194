// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

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

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/collect"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// blame is a finding that is expected.
type blame struct {
	cause     diagnosis.Cause
	certainty diagnosis.Certainty
	// objects are all that the finding names, as TYPE/NAME.
	objects []string
	// texts are parts of the message.
	texts []string
	// evidence are parts of any of the evidence.
	evidence []string
}

func confirmed(cause diagnosis.Cause, objects ...string) blame {
	return blame{cause: cause, certainty: diagnosis.Confirmed, objects: objects}
}

func likely(cause diagnosis.Cause, objects ...string) blame {
	return blame{cause: cause, certainty: diagnosis.Likely, objects: objects}
}

// saying adds parts of the message.
func (b blame) saying(texts ...string) blame {
	b.texts = append(slices.Clone(b.texts), texts...)
	return b
}

// since adds parts of the evidence.
func (b blame) since(evidence ...string) blame {
	b.evidence = append(slices.Clone(b.evidence), evidence...)
	return b
}

// diagnose diagnoses the namespace as it is now.
func (s *scene) diagnose(g Gomega, ctx context.Context, from *collect.Collector) *diagnosis.Diagnosis {
	found, err := from.Diagnose(ctx, s.ns)
	g.Expect(err).NotTo(HaveOccurred())
	return found
}

// expectNoMore waits until a cause is no longer blamed.
func (s *scene) expectNoMore(ctx context.Context, cause diagnosis.Cause) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(s.diagnose(g, ctx, gatherer).Findings).NotTo(ContainElement(HaveField("Cause", cause)))
	}).WithContext(ctx).Should(Succeed())
}

// expectBlamed waits until the diagnosis has found just what is expected, the first one
// first, and fails as soon as anything else is blamed. It returns the diagnosis, whose
// remedies have been tried.
func (s *scene) expectBlamed(ctx context.Context, wanted ...blame) *diagnosis.Diagnosis {
	GinkgoHelper()
	var causes []diagnosis.Cause
	for _, b := range wanted {
		causes = append(causes, b.cause)
	}
	var result *diagnosis.Diagnosis
	Eventually(func(g Gomega) {
		result = s.diagnose(g, ctx, gatherer)
		// An administrator may read everything, but not always in time.
		g.Expect(result.Unread).To(BeEmpty())
		var found []diagnosis.Cause
		for _, finding := range result.Findings {
			if !slices.Contains(causes, finding.Cause) {
				StopTrying("something else is blamed").Attach("findings", show(result)).Now()
			}
			found = append(found, finding.Cause)
		}
		g.Expect(found).To(Equal(causes))
	}).WithContext(ctx).Should(Succeed())
	GinkgoWriter.Println(show(result))
	Expect(result.State).To(Equal(diagnosis.Blocked))
	Expect(result.Summary).To(Equal(result.Findings[0].Message))
	for i, b := range wanted {
		b.expectIn(result.Findings[i])
	}
	for _, finding := range result.Findings {
		expectRemediesWork(ctx, finding)
	}
	return result
}

// expectIn compares a finding with what is expected.
func (b blame) expectIn(finding diagnosis.Finding) {
	GinkgoHelper()
	what := show(&diagnosis.Diagnosis{Findings: []diagnosis.Finding{finding}})
	Expect(finding.Certainty).To(Equal(b.certainty), what)
	objects := []string{}
	for _, object := range finding.Objects {
		objects = append(objects, object.Resource+"/"+object.Name)
	}
	Expect(objects).To(ConsistOf(b.objects), what)
	for _, text := range b.texts {
		Expect(finding.Message).To(ContainSubstring(text), what)
	}
	for _, text := range b.evidence {
		Expect(strings.Join(finding.Evidence, "\n")).To(ContainSubstring(text), what)
	}
	Expect(finding.Message).NotTo(BeEmpty(), what)
	Expect(finding.Evidence).NotTo(BeEmpty(), what)
	Expect(finding.Remedies).NotTo(BeEmpty(), what)
	for _, text := range slices.Concat([]string{finding.Message}, finding.Evidence, finding.Remedies) {
		Expect(text).NotTo(ContainSubstring("%!"), what)
		Expect(text).NotTo(ContainSubstring("\n"), what)
		Expect(strings.TrimSpace(text)).NotTo(BeEmpty(), what)
	}
}

// expectUnblamed makes sure that nothing is blamed for a while.
func (s *scene) expectUnblamed(ctx context.Context, from *collect.Collector, forAWhile time.Duration) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		var result *diagnosis.Diagnosis
		Eventually(func(g Gomega) {
			result = s.diagnose(g, ctx, from)
			g.Expect(result.Unread).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		g.Expect(result.Findings).To(BeEmpty(), show(result))
		g.Expect(result.State).NotTo(Equal(diagnosis.Blocked))
	}).WithContext(ctx).WithTimeout(forAWhile).Should(Succeed())
}

// show prints a diagnosis for people who read the output of a failing spec.
func show(result *diagnosis.Diagnosis) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s: %s\n", result.Namespace, result.State, result.Summary)
	for _, finding := range result.Findings {
		fmt.Fprintf(&text, "- %s (%s): %s\n  objects: %v of %d\n", finding.Cause, finding.Certainty, finding.Message,
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

// changing are the kubectl commands that take --dry-run.
var changing = []string{"annotate", "apply", "create", "delete", "label", "patch", "replace", "scale", "taint"}

// expectRemediesWork runs every command that a finding recommends: those that change
// something as a dry run, which the API server checks as it would the real one.
func expectRemediesWork(ctx context.Context, finding diagnosis.Finding) {
	GinkgoHelper()
	for _, remedy := range finding.Remedies {
		words := strings.Fields(remedy)
		// There is no kubelet to ask for a log, and the plugin has tests of its own.
		if words[0] != "kubectl" || words[1] == "nslifecycle" || words[1] == "logs" {
			continue
		}
		command := remedy
		if slices.Contains(changing, words[1]) {
			command += " --dry-run=server"
		}
		output, err := runShell(ctx, command)
		if words[1] == "auth" && strings.TrimSpace(output) == "no" || isEvidence(output, finding) {
			continue // That is the answer that was to be seen.
		}
		Expect(err).NotTo(HaveOccurred(), "%s, which is to help against %s, says: %s", command, finding.Cause, output)
	}
}

// isEvidence tells whether a command has failed with the very error that a finding rests on.
func isEvidence(output string, finding diagnosis.Finding) bool {
	_, text, isError := strings.Cut(strings.TrimSpace(output), "Error from server")
	if _, after, hasReason := strings.Cut(text, "): "); hasReason {
		text = after
	}
	text = strings.TrimPrefix(text, ": ")
	return isError && text != "" && strings.Contains(strings.Join(finding.Evidence, "\n"), text)
}

// runShell runs a command line as somebody would who has copied it.
func runShell(ctx context.Context, line string) (string, error) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	Expect(controlplane.WriteKubeconfig(kubeconfig, plane.Admin)).To(Succeed())
	if path := plane.KubectlPath(); filepath.IsAbs(path) {
		Expect(os.Symlink(path, filepath.Join(dir, "kubectl"))).To(Succeed())
	}
	command := exec.CommandContext(ctx, "sh", "-c", line)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir,
		"EDITOR=true")
	output, err := command.CombinedOutput()
	GinkgoWriter.Printf("$ %s\n%s", line, output)
	return string(output), err
}

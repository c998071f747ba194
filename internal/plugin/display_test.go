// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/inventory"
)

func TestDisplayInAPipe(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	shown := newDisplay(&out)
	shown.show([]string{"a 1", "b 1"})
	shown.show([]string{"a 1", "b 2"})
	shown.printf("in between")
	shown.show([]string{"b 1"})
	g.Expect(out.String()).To(Equal("a 1\nb 1\nb 2\nin between\nb 1\n"), "each change is one line")
}

func TestDisplayOnATerminal(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	shown := newDisplay(stream{&out})
	shown.isLive = true
	shown.show([]string{"a", "b"})
	shown.show([]string{"a", "b"})
	shown.show([]string{"c"})
	shown.printf("stays")
	shown.show([]string{"d"})
	shown.keep()
	shown.show([]string{"e"})
	g.Expect(out.String()).To(Equal("a\nb\n\x1b[2A\x1b[Jc\n\x1b[1A\x1b[Jstays\nd\ne\n"))
}

func TestClipAndBar(t *testing.T) {
	g := NewWithT(t)
	g.Expect(clip("  two\nwords ", 20)).To(Equal("two words"))
	g.Expect(clip("übermäßig", 9)).To(Equal("übermäßig"))
	g.Expect(clip("übermäßig", 8)).To(Equal("überm..."))
	plain := palette{isPlain: true}
	g.Expect(bar(0, 4, 8, plain)).To(Equal("░░░░░░░░"))
	g.Expect(bar(3, 4, 8, plain)).To(Equal("██████░░"))
	g.Expect(bar(9, 4, 8, plain)).To(Equal("████████"), "more than all")
	g.Expect(bar(0, 0, 4, plain)).To(Equal("████"), "there was nothing")
}

func TestProgressLines(t *testing.T) {
	g := NewWithT(t)
	namespace := makeInitializing(map[string]string{
		v1alpha1.AnnotationInitializers:        "a.b.c,dd.e.f,g.h.i",
		v1alpha1.AnnotationPendingInitializers: "dd.e.f,g.h.i",
	})
	namespace.Status.Conditions = []corev1.NamespaceCondition{
		{Type: "dd.e.f/Initialized", Reason: "Copying", Message: "3 of 9 files"},
		{Type: "g.h.i/Initialized", Reason: "Pending", Message: "the initializer waits for its turn"},
	}
	state := initialization.ParseState(namespace)
	lines := progressLines(computeProgress(namespace, &state), unlimited, palette{isPlain: true})
	g.Expect(lines).To(Equal([]string{
		"  a.b.c   done", "  dd.e.f  working  Copying: 3 of 9 files", "  g.h.i   waiting",
	}))
	lines = progressLines(computeProgress(namespace, &state), 30, palette{isPlain: true})
	g.Expect(lines[1]).To(Equal("  dd.e.f  working  Copying:..."))

	namespace.Annotations[v1alpha1.AnnotationInitializationResult] = `{"status":"Failure"}`
	state = initialization.ParseState(namespace)
	g.Expect(computeProgress(namespace, &state)[1].phase).To(Equal(phaseFailed))

	namespace.Annotations = map[string]string{
		v1alpha1.AnnotationInitializers: "a.b.c,dd.e.f", v1alpha1.AnnotationPendingInitializers: "dd.e.f",
	}
	namespace.Status.Conditions = initialization.SkippedConditions([]string{"a.b.c", "dd.e.f"}, v1alpha1.ReasonTimedOut,
		"skipped: too late", namespace.CreationTimestamp)
	state = initialization.ParseState(namespace)
	g.Expect(progressLines(computeProgress(namespace, &state), unlimited, palette{isPlain: true})[0]).
		To(Equal("  a.b.c   skipped  TimedOut: too late"))
	g.Expect(computeProgress(namespace, &state)[1].phase).To(Equal(phaseTurn))
}

func TestCountdown(t *testing.T) {
	g := NewWithT(t)
	left := newCountdown()
	left.add(tally{counts: []typeCount{{"configmaps", 10}, {"pods", 2}}})
	left.add(tally{counts: []typeCount{{"configmaps", 4}, {"secrets", 5}}})
	most, now := left.totals()
	g.Expect([]int{most, now}).To(Equal([]int{17, 9}))
	g.Expect(plainCountdown(left)).To(Equal([]string{
		"secrets: 5 of 5 left", "configmaps: 4 of 10 left", "pods: 0 of 2 left",
	}))
	g.Expect(countdownLines(left, palette{isPlain: true})).To(Equal([]string{
		"  secrets     ░░░░░░░░░░░░░░░░░░░░░░░░  5 of 5 left",
		"  configmaps  ██████████████░░░░░░░░░░  4 of 10 left",
	}))

	many := newCountdown()
	var latest tally
	for i := range mostTypes + 3 {
		latest.counts = append(latest.counts, typeCount{fmt.Sprintf("type-%02d", i), 2})
	}
	many.add(latest)
	lines := countdownLines(many, palette{isPlain: true})
	g.Expect(lines).To(HaveLen(mostTypes + 1))
	g.Expect(lines[mostTypes]).To(Equal("  and 6 objects of other types"))
}

func TestVerdictLines(t *testing.T) {
	g := NewWithT(t)
	plain := palette{isPlain: true}
	g.Expect(verdictLines(&diagnosis.Diagnosis{State: diagnosis.Progressing, Summary: "it is slow"}, plain)).
		To(Equal([]string{"There is nothing to blame yet: it is slow"}))
	finding := diagnosis.Finding{
		Cause: diagnosis.CauseForbidden, Certainty: diagnosis.Confirmed, Message: "it may not", Remedies: []string{"let it", "or not"},
	}
	blocked := &diagnosis.Diagnosis{State: diagnosis.Blocked, Findings: []diagnosis.Finding{finding, finding, finding, finding}}
	lines := verdictLines(blocked, plain)
	g.Expect(lines[:2]).To(Equal([]string{"Forbidden (confirmed): it may not", "  Try: let it"}))
	g.Expect(lines[6:]).To(Equal([]string{"and 1 more finding"}))
}

func TestStoredTypes(t *testing.T) {
	g := NewWithT(t)
	make := func(group, resource string, verbs ...string) inventory.Type {
		made := inventory.Type{Verbs: verbs}
		made.Group, made.Resource = group, resource
		return made
	}
	kept := storedTypes([]inventory.Type{
		make("", "configmaps", "list", "delete"), make("", "bindings", "create"), make("metrics.k8s.io", "pods", "list"),
		make("", "events", "list", "delete"), make("events.k8s.io", "events", "list", "delete"),
	})
	g.Expect(kept).To(HaveLen(2))
	g.Expect(kept[1].String()).To(Equal("events"))
}

func TestColumns(t *testing.T) {
	g := NewWithT(t)
	defined := columns("Name", "+Since")
	g.Expect(defined[0].Name).To(Equal("Name"))
	g.Expect(defined[0].Priority).To(BeZero())
	g.Expect(defined[1].Name).To(Equal("Since"))
	g.Expect(defined[1].Priority).To(BeNumerically(">", 0))
}

func TestReport(t *testing.T) {
	tests := map[string]struct {
		err    error
		code   int
		stderr string
	}{
		"nothing":          {code: ExitOK},
		"any error":        {err: errors.New("no"), code: ExitError, stderr: "error: no\n"},
		"blocked and said": {err: exitWith(ExitBlocked), code: ExitBlocked},
		"blocked, wrapped": {err: fmt.Errorf("x: %w", &StatusError{Code: ExitBlocked, Err: errors.New("held")}),
			code: ExitBlocked, stderr: "error: held\n"},
		"interrupted": {err: fmt.Errorf("listing: %w", context.Canceled), code: ExitInterrupted, stderr: "Interrupted.\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var stderr bytes.Buffer
			g.Expect(report(&stderr, test.err)).To(Equal(test.code))
			g.Expect(stderr.String()).To(Equal(test.stderr))
		})
	}
}

func TestPalette(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	session := newSession(genericiooptions.IOStreams{Out: &out, ErrOut: &out})
	g.Expect(session.palette(&out).red("text")).To(Equal("text"), "no terminal")
	g.Expect(shown(palette{}.red("text"))).To(Equal("\x1b[31mtext\x1b[0m"))
	g.Expect(palette{}.red("")).To(BeEmpty())
	session.warnf("look at %d", 7)
	g.Expect(out.String()).To(Equal("Warning: look at 7\n"))
}

func TestHistory(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	first, second := newHistory("/a/config", "c"), newHistory("/b/config", "c")
	_, err := first.read()
	g.Expect(err).To(MatchError(ContainSubstring("no namespace is known to have been used in context \"c\" before")))
	g.Expect(first.write("one")).To(Succeed())
	g.Expect(second.write("two")).To(Succeed())
	g.Expect(first.read()).To(Equal("one"))
	g.Expect(second.read()).To(Equal("two"))

	path, err := historyPath()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(path, []byte("broken"), 0o600)).To(Succeed())
	_, err = first.read()
	g.Expect(err).To(MatchError(ContainSubstring(path)))
	g.Expect(first.write("three")).To(Succeed())
	g.Expect(first.read()).To(Equal("three"))
}

func TestWriteFile(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	g.Expect(os.WriteFile(target, []byte("old"), 0o644)).To(Succeed())
	g.Expect(os.Symlink(target, link)).To(Succeed())
	g.Expect(writeFile(link, []byte("new"))).To(Succeed())
	text, err := os.ReadFile(target)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(text)).To(Equal("new"), "the link stays one")
	info, err := os.Stat(target)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))
	g.Expect(writeFile(os.DevNull, []byte("x"))).To(Succeed())
	info, err = os.Stat(os.DevNull)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().IsRegular()).To(BeFalse(), "a device stays one")
	g.Expect(writeFile(filepath.Join(dir, "missing", "file"), nil)).To(MatchError(ContainSubstring("missing")))
	left, err := os.ReadDir(dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(HaveLen(2), "nothing is left behind")
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

func TestDisplay(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	shown := Display{Out: &out}
	shown.Show([]string{"a 1", "b 1"})
	shown.Show([]string{"a 1", "b 2"})
	shown.Show([]string{"b 1"})
	g.Expect(out.String()).To(Equal("a 1\nb 1\nb 2\nb 1\n"), "each change must be printed once")
}

func TestWrap(t *testing.T) {
	g := NewWithT(t)
	command := "kubectl get configmaps --namespace=shop"
	for text, expected := range map[string]string{
		"short":                         "short",
		"to see it, run: kubectl get a": "to see it, run: kubectl get a",
		"a sentence that is too long for one of the lines": "a sentence that is too long for one of\n" +
			"  the lines",
		"to see it, run: " + command:     "to see it, run:\n  " + command,
		"two errors:\nfirst\nsecond":     "two errors:\n  first\n  second",
		strings.Repeat("x", 50) + " y z": strings.Repeat("x", 50) + "\n  y z",
	} {
		g.Expect(wrapLines(text, 40, true)).To(Equal(expected))
	}
	for _, text := range []string{
		`the value "of another user, who can choose it: kubectl delete namespace shop"`,
		"the message of another user who has chosen it: kubectl delete `namespace shop`",
	} {
		g.Expect(strings.Split(wrapLines(text, 40, true), "\n")).NotTo(ContainElement(HavePrefix("  kubectl")), text)
	}
	for length := range 50 {
		text := strings.Repeat("x", length) + ": kubectl delete namespace shop"
		g.Expect(strings.Split(wrapLines(text, 40, false), "\n")).NotTo(ContainElement(HavePrefix("  kubectl")), text)
		g.Expect(wrapLines(text, 40, true)).To(HaveSuffix("kubectl delete namespace shop"), text)
	}
}

func TestColumns(t *testing.T) {
	g := NewWithT(t)
	defined := NewTable("Name", "+Since").ColumnDefinitions
	g.Expect(defined[0].Name).To(Equal("Name"))
	g.Expect(defined[0].Priority).To(BeZero())
	g.Expect(defined[1].Name).To(Equal("Since"))
	g.Expect(defined[1].Priority).To(BeNumerically(">", 0))
}

func TestPalette(t *testing.T) {
	g := NewWithT(t)
	g.Expect(NewPalette(&bytes.Buffer{}).Red("text")).To(Equal("text"), "not a terminal")
	g.Expect(terminalText(Palette{}.Red("text"))).To(Equal("\x1b[31mtext\x1b[0m"))
	g.Expect(Palette{}.Red("")).To(BeEmpty())
}

func TestText(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Sentence("")).To(BeEmpty())
	g.Expect(Sentence("über alles")).To(Equal("Über alles."))
	g.Expect(Sentence("Why?")).To(Equal("Why?"))
	g.Expect(SummarizeErrors([]string{"a"})).To(Equal("a"))
	g.Expect(SummarizeErrors([]string{"a", "b", "c"})).To(And(HavePrefix("a"), ContainSubstring("2 ")))
}

// terminalText returns the bytes that a terminal receives for text.
func terminalText(text string) string {
	var out strings.Builder
	_, _ = stream{&out}.Write([]byte(text))
	return out.String()
}

func TestStream(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]string{
		"plain — ü 😀\n\tand indented\n":  "plain — ü 😀\n\tand indented\n",
		Palette{}.Red("a\x1b[0mb") + "c": "\x1b[31ma\\x1b[0mb\x1b[0mc",
		"\x1b[2A\x1b[J\u009b2J\x07\r":    `\x1b[2A\x1b[J\u009b2J\a\r`,
		"\x1b]0;title\x1b\\\u202egnp":    `\x1b]0;title\x1b\\u202egnp`,
		control[:len(control)-2] + "2A":  `\x1b` + control[1:len(control)-2] + "2A",
		"half a character: \xe2\x80":     `half a character: \xe2\x80`,
	} {
		g.Expect(terminalText(text)).To(Equal(want))
	}
	written, err := stream{&bytes.Buffer{}}.Write([]byte("\x1b"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(written).To(Equal(1), "Write must return the number of input bytes")
	_, err = stream{failingWriter{}}.Write([]byte("a"))
	g.Expect(err).To(MatchError("full"))
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

func FuzzStream(f *testing.F) {
	f.Add("a\n\tb")
	f.Add("\x1b[31m\u009b\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		if got := terminalText(text); got != printable.Lines(text) {
			t.Errorf("got %q for %q", got, text)
		}
	})
}

const malicious = "x\nb\r\x07\u009b2J\u202e\x1b]0;t\x07"

// TestDocumentsAreEscaped verifies that decoders read the original values from an escaped document.
func TestDocumentsAreEscaped(t *testing.T) {
	for format, decode := range map[string]func(data []byte, value any) error{
		FormatJSON: json.Unmarshal,
		FormatYAML: func(data []byte, value any) error { return yaml.Unmarshal(data, value) },
	} {
		g := NewWithT(t)
		var out bytes.Buffer
		o := &Output{format: format}
		values := map[string]any{"name": malicious, malicious: "\U000e0001\ufeff\u2028\xff"}
		g.Expect(o.Print(stream{&out}, "Kind", values)).To(Succeed())
		g.Expect(printable.IsDocument(out.String())).To(BeTrue(), out.String())
		var read map[string]any
		g.Expect(decode(out.Bytes(), &read)).To(Succeed(), out.String())
		g.Expect(read).To(HaveKeyWithValue("name", malicious))
		g.Expect(read).To(HaveKeyWithValue(malicious, "\U000e0001\ufeff\u2028\ufffd"))

		out.Reset()
		namespace := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": malicious}}}
		g.Expect(o.PrintObject(stream{&out}, namespace)).To(Succeed())
		read = nil
		g.Expect(decode(out.Bytes(), &read)).To(Succeed(), out.String())
		g.Expect(fmt.Sprint(read)).To(ContainSubstring(malicious))
	}
}

func TestTableEscapes(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	table := NewTable("Name")
	AddRow(table, malicious)
	g.Expect(NewTablePrinter(&out, false, true).Print(table)).To(Succeed())
	g.Expect(out.String()).To(Equal(printable.Escape(malicious) + "\n"))
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

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
		control + "2A" + control + "J":   "\x1b[2A\x1b[J",
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
	file, ok := fileOf(EscapeStreams(genericiooptions.IOStreams{Out: os.Stdout}).Out)
	g.Expect(ok).To(BeTrue(), "EscapeStreams must not hide a terminal")
	g.Expect(file).To(Equal(os.Stdout))
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
		o := NewOutput(format)
		o.format = format
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

func TestTableAndShortenEscape(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	table := &metav1.Table{ColumnDefinitions: Columns("Name"), Rows: []metav1.TableRow{{Cells: []any{malicious}}}}
	g.Expect(PrintTable(&out, table, TableOptions{NoHeaders: true, Columns: 80})).To(Succeed())
	g.Expect(out.String()).To(Equal(printable.Escape(malicious) + "\n"))
	g.Expect(Shorten(malicious, 100)).To(Equal(printable.Escape("x b " + malicious[4:])))
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

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

// shown returns text as a terminal receives it.
func shown(text string) string {
	var out strings.Builder
	_, _ = stream{&out}.Write([]byte(text))
	return out.String()
}

func TestStream(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]string{
		"plain — ü 😀\n\tand indented\n":  "plain — ü 😀\n\tand indented\n",
		palette{}.red("a\x1b[0mb") + "c": "\x1b[31ma\\x1b[0mb\x1b[0mc",
		control + "2A" + control + "J":   "\x1b[2A\x1b[J",
		"\x1b[2A\x1b[J\u009b2J\x07\r":    `\x1b[2A\x1b[J\u009b2J\a\r`,
		"\x1b]0;title\x1b\\\u202egnp":    `\x1b]0;title\x1b\\u202egnp`,
		control[:len(control)-2] + "2A":  `\x1b` + control[1:len(control)-2] + "2A",
		"half a character: \xe2\x80":     `half a character: \xe2\x80`,
	} {
		g.Expect(shown(text)).To(Equal(want))
	}
	written, err := stream{&bytes.Buffer{}}.Write([]byte("\x1b"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(written).To(Equal(1), "as many bytes as were given")
	_, err = stream{failingWriter{}}.Write([]byte("a"))
	g.Expect(err).To(MatchError("full"))
	file, isFile := fileOf(escaping(genericiooptions.IOStreams{Out: os.Stdout}).Out)
	g.Expect(isFile).To(BeTrue(), "a terminal stays one")
	g.Expect(file).To(Equal(os.Stdout))
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

func FuzzStream(f *testing.F) {
	f.Add("a\n\tb")
	f.Add("\x1b[31m\u009b\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		if got := shown(text); got != printable.Lines(text) {
			t.Errorf("%q is shown as %q", text, got)
		}
	})
}

const hostile = "x\nb\r\x07\u009b2J\u202e\x1b]0;t\x07"

func TestNothingHostileIsPrinted(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	table := &metav1.Table{ColumnDefinitions: columns("Name"), Rows: []metav1.TableRow{{Cells: []any{hostile}}}}
	g.Expect(printTable(&out, table, false, true)).To(Succeed())
	g.Expect(out.String()).To(Equal(printable.Escape(hostile) + "\n"))

	out.Reset()
	session := newSession(escaping(genericiooptions.IOStreams{Out: &out, ErrOut: &out}))
	session.warnf("%s", hostile)
	g.Expect(out.String()).To(Equal("Warning: x\n  b" + printable.Escape(hostile[3:]) + "\n"))
	for _, err := range []error{errors.New("a\nerror: b"), &StatusError{Code: 1, Err: errors.New("a\nerror: b")}} {
		out.Reset()
		g.Expect(report(session.ErrOut, err)).To(Equal(1))
		g.Expect(out.String()).To(Equal("error: a\n  error: b\n"))
	}
	g.Expect((&remnant{Resource: "roles", Name: "a, b\n"}).String()).To(Equal(`roles/"a, b\n"`))
	g.Expect(clip(hostile, unlimited)).To(Equal(printable.Escape("x b " + hostile[4:])))
}

// Programs decode the same values from an escaped document.
func TestDocumentsAreEscaped(t *testing.T) {
	for format, decode := range map[string]func(data []byte, value any) error{
		outputJSON: json.Unmarshal,
		outputYAML: func(data []byte, value any) error { return yaml.Unmarshal(data, value) },
	} {
		g := NewWithT(t)
		var out bytes.Buffer
		o := newOutput(format)
		o.format = format
		values := map[string]any{"name": hostile, hostile: "\U000e0001\ufeff\u2028\xff"}
		g.Expect(o.print(stream{&out}, "Kind", values)).To(Succeed())
		g.Expect(printable.IsDocument(out.String())).To(BeTrue(), out.String())
		var read map[string]any
		g.Expect(decode(out.Bytes(), &read)).To(Succeed(), out.String())
		g.Expect(read).To(HaveKeyWithValue("name", hostile))
		g.Expect(read).To(HaveKeyWithValue(hostile, "\U000e0001\ufeff\u2028\ufffd"))

		out.Reset()
		namespace := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": hostile}}}
		g.Expect(o.printObject(stream{&out}, namespace)).To(Succeed())
		read = nil
		g.Expect(decode(out.Bytes(), &read)).To(Succeed(), out.String())
		g.Expect(fmt.Sprint(read)).To(ContainSubstring(hostile))
	}
}

func TestRemovalCommand(t *testing.T) {
	g := NewWithT(t)
	g.Expect(removal{Token: "a/b"}.command("n", flagOrphan)).To(Equal("kubectl nslifecycle finalize n --namespace-finalizer=a/b --orphan"))
	g.Expect(removal{Finalizer: "a b"}.command("n")).To(HavePrefix(
		`Run kubectl with the arguments nslifecycle finalize n --finalizer="a b"; `))
}

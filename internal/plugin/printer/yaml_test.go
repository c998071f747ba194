// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

func TestYAML(t *testing.T) {
	parts := []string{
		"a", "\u0085", "\u2028", "\u2029", "\n", " ", "\t", "\r", "\x00", "\x01", "\x7f", "\u009f", "\ufeff", "\u00a0",
		"---", "...", "#", ":", `"`, "'", "-", "\ufffd", "\U0001F600", "|", "{", `\`, "<",
		"\x1b", "\u202e", "\U000e0041",
	}
	expectSameDocument(t, strings.Repeat("long", 1000)+"\u202e")
	for _, first := range parts {
		for _, second := range parts {
			for _, text := range []string{first, first + second, first + second + "b" + first, "a" + first + "\n" + second} {
				expectSameDocument(t, text)
			}
		}
	}
}

func FuzzYAML(f *testing.F) {
	for _, text := range []string{"a", "\u202e\n---\n", "\ufeff\u2028", "\U000e0001\xff", "<<", "\u009b2J"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { expectSameDocument(t, strings.ToValidUTF8(text, "?")) })
}

// expectSameDocument verifies that kubectl's decoder reads a text from a document unchanged, as a value and as a key.
func expectSameDocument(t *testing.T, text string) {
	t.Helper()
	document := map[string]any{"data": map[string]any{"k": text, text: "v"}, "number": int64(1) << 60}
	encoded, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	written, err := YAML(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if !printable.IsDocument(string(written)) {
		t.Errorf("not printable: %q", written)
	}
	var read struct {
		Data   map[string]any
		Number int64
	}
	if err := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(string(written)), 4096).Decode(&read); err != nil {
		t.Fatalf("text %q: %v", text, err)
	}
	if diff := cmp.Diff(document, map[string]any{"data": read.Data, "number": read.Number}); diff != "" {
		t.Error(diff)
	}
}

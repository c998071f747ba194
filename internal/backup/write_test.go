// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// TestWrite verifies that kubectl's decoder returns the objects that were written.
func TestWrite(t *testing.T) {
	parts := []string{
		"a", "\u0085", "\u2028", "\u2029", "\n", " ", "\t", "\r", "\x00", "\x01", "\x7f", "\u009f", "\ufeff", "\u00a0",
		"---", "...", "#", ":", `"`, "'", "-", "\ufffd", "\U0001F600", "|", "{", `\`, "<",
		"\x1b", "\u202e", "\U000e0041",
	}
	objects := []*unstructured.Unstructured{makeObject(strings.Repeat("long", 1000) + "\u202e")}
	for _, first := range parts {
		for _, second := range parts {
			for _, text := range []string{first, first + second, first + second + "b" + first, "a" + first + "\n" + second} {
				objects = append(objects, makeObject(text))
			}
		}
	}
	expectSameObjects(t, objects)
}

func FuzzWrite(f *testing.F) {
	for _, text := range []string{"a", "\u202e\n---\n", "\ufeff\u2028", "\U000e0001\xff", "<<", "\u009b2J"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		expectSameObjects(t, []*unstructured.Unstructured{makeObject(strings.ToValidUTF8(text, "?")), makeObject("next")})
	})
}

// makeObject returns an object that contains text as a value, as a key and as its name.
func makeObject(text string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": text},
		"data": map[string]any{"k": text, text: "v"}, "text": text, "number": int64(1) << 60,
	}}
}

// expectSameObjects writes objects and verifies that they are decoded unchanged.
func expectSameObjects(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	var written bytes.Buffer
	if err := Write(&written, objects); err != nil {
		t.Fatal(err)
	}
	if !printable.IsDocument(written.String()) {
		t.Errorf("not printable: %q", written.String())
	}
	decoder := yaml.NewYAMLOrJSONDecoder(&written, 4096)
	for i, object := range objects {
		read := &unstructured.Unstructured{}
		if err := decoder.Decode(read); err != nil {
			t.Fatalf("document %d with text %q: %v", i, object.Object["text"], err)
		}
		if diff := cmp.Diff(object.Object, read.Object); diff != "" {
			t.Error(diff)
		}
	}
}

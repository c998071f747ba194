// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// What was written comes back as it was, by the decoder that kubectl has.
func TestWrite(t *testing.T) {
	parts := []string{
		"a", "\u0085", "\u2028", "\u2029", "\n", " ", "\t", "\r", "\x00", "\x01", "\x7f", "\u009f", "\ufeff", "\u00a0",
		"---", "...", "#", ":", `"`, "'", "-", "\ufffd", "\U0001F600", "|", "{", `\`, "<",
	}
	var objects []*unstructured.Unstructured
	for _, first := range parts {
		for _, second := range parts {
			for _, text := range []string{first, first + second, first + second + "b" + first, "a" + first + "\n" + second} {
				objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x"},
					"data": map[string]any{"k": text, text: "v"}, "text": text, "number": int64(1) << 60,
				}})
			}
		}
	}
	var written bytes.Buffer
	if err := Write(&written, objects); err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(&written, 4096)
	for i, object := range objects {
		read := &unstructured.Unstructured{}
		if err := decoder.Decode(read); err != nil {
			t.Fatalf("document %d, of %q: %v", i, object.Object["text"], err)
		}
		if diff := cmp.Diff(object.Object, read.Object); diff != "" {
			t.Error(diff)
		}
	}
}

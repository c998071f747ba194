// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

// FuzzRender checks that values appear only at their position, whatever they contain, and that no
// template and no value makes the functions panic.
func FuzzRender(f *testing.F) {
	for _, seed := range []string{
		"", "shop", "'\"\n\t\\ ${ns.name} $${x} } {", strings.Repeat("}", 1024), "\x00\xff", "a: b\n- c", "世界", "${params.a}",
		"$", "\u2028\u202e", "{{ .Values }}", "'''", `"""`, "null", "1e9",
	} {
		f.Add(seed, seed)
		f.Add("${params.a}", seed)
		f.Add("x ${params.a} ${ns.labels['v'].split(',')[0]}", seed)
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		g := NewWithT(t)
		spec := configMap(map[string]any{
			"fuzzed": text, "whole": "${params.a}", "part": "<${params.a}>${ns.labels['v']}", "escaped": "$${params.a}",
		})
		program, errs := render.Compile(spec)
		if len(errs) > 0 {
			for _, err := range errs {
				g.Expect(err.Field).To(Equal("spec.objects[0].template.data.fuzzed"))
			}
			return
		}
		in := render.Input{
			Namespace:  &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"v": "x"}}},
			Parameters: map[string]string{"a": value}, RequestedBy: value,
		}
		objects, err := program.Render(context.Background(), in)
		if err != nil {
			return
		}
		content := objects[0].Manifest.Object
		g.Expect(content).To(And(HaveLen(4),
			HaveKeyWithValue("metadata", map[string]any{"name": "map", "namespace": "shop"})))
		data := content["data"].(map[string]any)
		delete(data, "fuzzed")
		valid := strings.ToValidUTF8(value, "\uFFFD")
		g.Expect(data).To(Equal(map[string]any{
			"whole": valid, "part": "<" + valid + ">x", "escaped": "${params.a}",
		}))
		_, err = json.Marshal(content)
		g.Expect(err).NotTo(HaveOccurred())
	})
}

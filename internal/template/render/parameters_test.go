// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/template/render"
)

func TestResolveParameters(t *testing.T) {
	parameters := []v1alpha1.TemplateParameter{
		{Name: "size", Enum: []string{"s", "l"}, Default: ptr.To("s")},
		{Name: "owner", Pattern: "^[a-z]+$", Required: true},
		{Name: "team", LabelKey: "corp.example.com/team"},
		{Name: "note"},
	}
	type values = map[string]string
	for name, c := range map[string]struct {
		annotations, labels, want values
		message                   string
	}{
		"defaults": {
			annotations: values{"owner": "ann"}, want: values{"size": "s", "owner": "ann", "team": "", "note": ""},
		},
		"values": {
			annotations: values{"owner": "ann", "size": "l", "note": "'\n${", "team": "ignored"},
			labels:      values{"corp.example.com/team": "red"},
			want:        values{"size": "l", "owner": "ann", "team": "red", "note": "'\n${"},
		},
		"longest": {
			annotations: values{"owner": "ann", "note": strings.Repeat("世", 1024)},
			want:        values{"size": "s", "owner": "ann", "team": "", "note": strings.Repeat("世", 1024)},
		},
		"required":        {message: "owner is required: set the annotation parameter.nslifecycle.dev/owner"},
		"empty":           {annotations: values{"owner": ""}, message: "regular expression"},
		"pattern":         {annotations: values{"owner": "Ann"}, message: "regular expression"},
		"enum":            {annotations: values{"owner": "ann", "size": "m"}, message: "one of: s, l"},
		"too long":        {annotations: values{"owner": "ann", "note": strings.Repeat("世", 1025)}, message: "1025 characters"},
		"two are invalid": {annotations: values{"size": "m"}, message: "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: values{}, Labels: c.labels}}
			for key, value := range c.annotations {
				namespace.Annotations["parameter.nslifecycle.dev/"+key] = value
			}
			got, err := render.ResolveParameters(parameters, namespace)
			if c.message == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got).To(Equal(c.want))
				return
			}
			g.Expect(got).To(BeNil())
			g.Expect(err).To(HaveField("Reason", v1alpha1.ReasonInvalidParameter))
			g.Expect(err.Error()).To(ContainSubstring(c.message))
		})
	}
}

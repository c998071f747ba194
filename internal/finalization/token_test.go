// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const agent corev1.FinalizerName = "example.com/agent"

func TestTokens(t *testing.T) {
	tests := map[string]struct {
		have    []corev1.FinalizerName
		wantHas bool
		want    []corev1.FinalizerName
	}{
		"none":              {want: []corev1.FinalizerName{}},
		"ours":              {have: []corev1.FinalizerName{"kubernetes"}, wantHas: true, want: []corev1.FinalizerName{}},
		"ours, twice":       {have: []corev1.FinalizerName{"kubernetes", "kubernetes"}, wantHas: true, want: []corev1.FinalizerName{}},
		"that of an agent":  {have: []corev1.FinalizerName{agent}, want: []corev1.FinalizerName{agent}},
		"others around it":  {have: []corev1.FinalizerName{"z/z", "kubernetes", "a/a"}, wantHas: true, want: []corev1.FinalizerName{"z/z", "a/a"}},
		"one that contains": {have: []corev1.FinalizerName{"x/kubernetes"}, want: []corev1.FinalizerName{"x/kubernetes"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := withTokens(terminating(), test.have...)
			g.Expect(HasToken(namespace, "kubernetes")).To(Equal(test.wantHas))
			g.Expect(WithoutToken(namespace, "kubernetes")).To(Equal(test.want))
			g.Expect(namespace.Spec.Finalizers).To(Equal(test.have))
		})
	}
}

func TestParseToken(t *testing.T) {
	refused := func(text string) string {
		return `"` + text + `" is no finalizer token of a namespace, use "kubernetes" or a qualified name: `
	}
	long := "example.com/" + strings.Repeat("x", 64)
	tests := map[string]struct{ wantError string }{
		"kubernetes":        {},
		"example.com/agent": {},
		"openshift.io/orig": {},
		"agent":             {wantError: refused("agent") + "it needs a domain in front, such as example.com/agent"},
		"":                  {wantError: refused("") + "name part must be non-empty"},
		"a/b/c":             {wantError: refused("a/b/c") + "a valid label key"},
		"Example.com/agent": {wantError: refused("Example.com/agent") + "prefix part"},
		"example.com/":      {wantError: refused("example.com/") + "name part must be non-empty"},
		long:                {wantError: refused(long) + "name part must be no more than 63"},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			token, err := ParseToken(text)
			if test.wantError != "" {
				g.Expect(err).To(MatchError(HavePrefix(test.wantError)))
				g.Expect(token).To(BeEmpty())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(token).To(BeEquivalentTo(text))
		})
	}
}

func TestWhyNotFinalize(t *testing.T) {
	tests := map[string]struct {
		name, own string
		want      string
	}{
		"any":                        {name: "x"},
		"any, and we run somewhere":  {name: "x", own: "nslifecycle-system"},
		"default":                    {name: "default", want: `namespace "default" is one that no cluster can do without`},
		"kube-system":                {name: "kube-system", want: `namespace "kube-system" is one that no cluster can do without`},
		"kube-public":                {name: "kube-public", want: `namespace "kube-public" is one that no cluster can do without`},
		"kube-node-lease":            {name: "kube-node-lease"},
		"kube-system, where we run":  {name: "kube-system", own: "kube-system", want: `namespace "kube-system" is one that no cluster can do without`},
		"another named like ours":    {name: "nslifecycle-system"},
		"where we run ourselves":     {name: "ops", own: "ops", want: `nslifecycle runs in namespace "ops" itself and would remove itself half-way; `},
		"begins like where we run":   {name: "ops-2", own: "ops"},
		"we run outside the cluster": {name: "ops"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			why := WhyNotFinalize(wrappers.MakeNamespace(test.name).Terminating(now).Obj(), test.own)
			if test.want == "" {
				g.Expect(why).To(BeEmpty())
				return
			}
			g.Expect(why).To(HavePrefix(test.want))
		})
	}
}

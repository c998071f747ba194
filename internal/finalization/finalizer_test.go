// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const agent corev1.FinalizerName = "example.com/agent"

func TestHasFinalizers(t *testing.T) {
	tests := map[string]struct {
		have    []corev1.FinalizerName
		wantHas bool
		want    []corev1.FinalizerName
	}{
		"none":                                {},
		"the finalizer":                       {have: []corev1.FinalizerName{"kubernetes"}, wantHas: true, want: []corev1.FinalizerName{}},
		"the finalizer, twice":                {have: []corev1.FinalizerName{"kubernetes", "kubernetes"}, wantHas: true, want: []corev1.FinalizerName{}},
		"the finalizer of another controller": {have: []corev1.FinalizerName{agent}, want: []corev1.FinalizerName{agent}},
		"between other finalizers":            {have: []corev1.FinalizerName{"z/z", "kubernetes", "a/a"}, wantHas: true, want: []corev1.FinalizerName{"z/z", "a/a"}},
		"a finalizer with the same suffix":    {have: []corev1.FinalizerName{"x/kubernetes"}, want: []corev1.FinalizerName{"x/kubernetes"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := withFinalizers(terminating(), test.have...)
			g.Expect(HasFinalizer(namespace, "kubernetes")).To(Equal(test.wantHas))
			g.Expect(OtherFinalizers(namespace, "kubernetes")).To(Equal(test.want))
			g.Expect(namespace.Spec.Finalizers).To(Equal(test.have))
		})
	}
}

func TestParseFinalizer(t *testing.T) {
	refused := func(text string) string {
		return fmt.Sprintf(invalidFinalizer, text, corev1.FinalizerKubernetes, "")
	}
	long := "example.com/" + strings.Repeat("x", 64)
	tests := map[string]struct{ wantError string }{
		"kubernetes":        {},
		"example.com/agent": {},
		"openshift.io/orig": {},
		"agent":             {wantError: refused("agent") + finalizerNeedsDomain},
		"":                  {wantError: refused("") + "name part must be non-empty"},
		"a/b/c":             {wantError: refused("a/b/c") + "a valid label key"},
		"Example.com/agent": {wantError: refused("Example.com/agent") + "prefix part"},
		"example.com/":      {wantError: refused("example.com/") + "name part must be non-empty"},
		long:                {wantError: refused(long) + "name part must be no more than 63"},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			finalizer, err := ParseFinalizer(text)
			if test.wantError != "" {
				g.Expect(err).To(MatchError(HavePrefix(test.wantError)))
				g.Expect(finalizer).To(BeEmpty())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(finalizer).To(BeEquivalentTo(text))
		})
	}
}

func TestRefusalReason(t *testing.T) {
	tests := map[string]struct {
		name, own string
		want      string
	}{
		"another namespace":                         {name: "x"},
		"a namespace other than the operator's own": {name: "x", own: "nslifecycle-system"},
		"default":         {name: "default", want: fmt.Sprintf(refusalSystemNamespace, "default")},
		"kube-system":     {name: "kube-system", want: fmt.Sprintf(refusalSystemNamespace, "kube-system")},
		"kube-public":     {name: "kube-public", want: fmt.Sprintf(refusalSystemNamespace, "kube-public")},
		"kube-node-lease": {name: "kube-node-lease"},
		"kube-system is the operator's own namespace":                         {name: "kube-system", own: "kube-system", want: fmt.Sprintf(refusalSystemNamespace, "kube-system")},
		"the operator's default namespace":                                    {name: "nslifecycle-system"},
		"the operator's own namespace":                                        {name: "ops", own: "ops", want: fmt.Sprintf(refusalOwnNamespace, "ops")},
		"a namespace whose name has the operator's own namespace as a prefix": {name: "ops-2", own: "ops"},
		"the operator runs outside the cluster":                               {name: "ops"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			reason := RefusalReason(wrappers.MakeNamespace(test.name).Terminating(now).Obj(), test.own)
			if test.want == "" {
				g.Expect(reason).To(BeEmpty())
				return
			}
			g.Expect(reason).To(HavePrefix(test.want))
		})
	}
}

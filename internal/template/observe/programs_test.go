// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

// The size of a template includes its selector, which a revision does not.
func TestOmittedAfterAChangeOfTheSelector(t *testing.T) {
	g := NewWithT(t)
	templates := make([]v1alpha1.NamespaceTemplate, 1)
	templates[0].ObjectMeta = metav1.ObjectMeta{Name: "a", UID: "a-uid", Generation: 1}
	var programs Programs
	g.Expect(programs.Omitted(templates)).To(BeEmpty())
	g.Expect(programs.Errors(&templates[0])).To(BeEmpty())

	templates[0].Generation++
	templates[0].Spec.NamespaceSelector = &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{
		strings.Repeat("a", templateset.MaxTemplateBytes): "",
	}}
	g.Expect(programs.Omitted(templates).UnsortedList()).To(ConsistOf("a"))
	g.Expect(programs.Errors(&templates[0])).To(ContainElement(MatchError(ContainSubstring("more than 16384"))))

	templates[0].Generation++
	templates[0].Spec.NamespaceSelector = &v1alpha1.NamespaceSelector{}
	g.Expect(programs.Omitted(templates)).To(BeEmpty())
	g.Expect(programs.Errors(&templates[0])).To(BeEmpty())
}

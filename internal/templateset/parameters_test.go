// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateset_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

func TestCheckValueOfList(t *testing.T) {
	list := v1alpha1.TemplateParameter{Name: "list", Type: v1alpha1.ParameterList}
	required, limited := list, list
	required.Required = true
	limited.Enum, limited.Pattern = []string{"red", "blue", "Green"}, "^[a-z]+$"
	many := strings.Repeat("abc,", 32)
	for name, c := range map[string]struct {
		parameter v1alpha1.TemplateParameter
		value     string
		message   string
	}{
		"empty":                    {list, "", ""},
		"empty, but required":      {required, "", "required"},
		"one element":              {required, "red", ""},
		"comma only":               {list, ",", "empty or repeated"},
		"comma at the end":         {list, "red,", "empty or repeated"},
		"repeated element":         {list, "red,blue,red", "empty or repeated"},
		"prefix of an element":     {list, "red,re,r", ""},
		"33 elements":              {list, many, "33 elements; at most 32"},
		"1024 characters":          {list, strings.Repeat("世", 1024), ""},
		"1025 characters":          {list, strings.Repeat("世", 1025), "1025 characters"},
		"elements in the enum":     {limited, "blue,red", ""},
		"element not in the enum":  {limited, "blue,grey", `"grey", but must be one of`},
		"element not in a pattern": {limited, "blue,Green", `"Green", but must match`},
		"space after a comma":      {limited, "blue, red", `" red"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := templateset.CheckValue(&c.parameter, c.value)
			if c.message == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
			} else {
				NewWithT(t).Expect(err).To(MatchError(ContainSubstring(c.message)))
			}
		})
	}
}

// The policies recognize lists by maxItems. With an invalid default, the API server would reject each new Namespace.
func TestComputeLists(t *testing.T) {
	g := NewWithT(t)
	template := v1alpha1.NamespaceTemplate{}
	template.Spec.Parameters = []v1alpha1.TemplateParameter{
		{Name: "valid", Type: v1alpha1.ParameterList, MaxItems: ptr.To[int32](2), Default: ptr.To("a,b")},
		{Name: "invalid", Type: v1alpha1.ParameterList, MaxItems: ptr.To[int32](1), Default: ptr.To("a,b")},
		{Name: "long", Type: v1alpha1.ParameterList, Default: ptr.To("a,b")},
		{Name: "text", Type: v1alpha1.ParameterString, Default: ptr.To("a,b")},
	}
	computed := templateset.Compute([]v1alpha1.NamespaceTemplate{template}, nil)
	g.Expect(computed[0].Parameters[0].Default).To(HaveValue(Equal("a,b")))
	g.Expect(computed[0].Parameters[1].Default).To(BeNil())
	g.Expect(template.Spec.Parameters[1].Default).NotTo(BeNil())
	g.Expect(computed[0].Parameters[2]).To(And(HaveField("MaxItems", HaveValue(BeEquivalentTo(32))), HaveField("Default", HaveValue(Equal("a,b")))))
	g.Expect(computed[0].Parameters[3].MaxItems).To(BeNil())
}

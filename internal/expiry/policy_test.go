// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

func readPolicy(g Gomega, name string) admissionv1.ValidatingAdmissionPolicySpec {
	content, err := os.ReadFile(fmt.Sprintf("../../config/%[1]s/%[1]s.yaml", name))
	g.Expect(err).NotTo(HaveOccurred())
	var policy admissionv1.ValidatingAdmissionPolicy
	g.Expect(yaml.UnmarshalStrict(bytes.Split(content, []byte("\n---\n"))[0], &policy)).To(Succeed())
	return policy.Spec
}

// compile compiles an expression as an API server of version 1.33 does: policies can use only what the previous version
// supports.
func compile(g Gomega, expression string) cel.Program {
	base, err := environment.MustBaseEnvSet(version.MajorMinor(1, 32)).Env(environment.NewExpressions)
	g.Expect(err).NotTo(HaveOccurred())
	env, err := base.Extend(cel.Variable("variables", cel.DynType), cel.Variable("oldObject", cel.DynType))
	g.Expect(err).NotTo(HaveOccurred())
	ast, issues := env.Compile(expression)
	g.Expect(issues.Err()).NotTo(HaveOccurred())
	program, err := env.Program(ast)
	g.Expect(err).NotTo(HaveOccurred())
	return program
}

// accepts evaluates a rule of the policy expiry about the values of a variable.
func accepts(g Gomega, rule cel.Program, variable, value string) any {
	result, _, err := rule.Eval(map[string]any{"variables": map[string]any{variable: []string{value}}})
	g.Expect(err).NotTo(HaveOccurred(), value)
	return result.Value()
}

// The policy accepts exactly those values that the operator can parse.
func TestPolicyAcceptsParsedValues(t *testing.T) {
	g := NewWithT(t)
	policy := readPolicy(g, "expiry")
	rules := map[string]cel.Program{
		"expiresAt": compile(g, policy.Validations[2].Expression), "ttl": compile(g, policy.Validations[3].Expression),
	}
	variables := map[string]string{v1alpha1.AnnotationExpiresAt: "expiresAt", v1alpha1.AnnotationTTL: "ttl"}
	accepted := map[bool]int{}
	for key, values := range map[string][]string{
		v1alpha1.AnnotationExpiresAt: {
			"2099-01-01T00:00:00Z", "2026-12-24T18:00:00+01:00", "2026-12-24T18:00:00-23:59", "2026-12-24T18:00:00.5Z", "9999-12-31T23:59:59Z",
			"0001-01-01T00:00:00Z", "2028-02-29T00:00:00Z", "2026-12-24T18:00:00.123456789+00:00",
			"", "tomorrow", "2026-12-24", "2026-12-24T18:00:00", "2026-12-24 18:00:00Z", "2026-12-24t18:00:00z",
			"2026-12-24T18:00Z", "2026-12-24T24:00:00Z", "2026-12-24T18:60:00Z", "2026-12-24T18:00:60Z",
			"2026-12-24T18:00:00,5Z", "2026-12-24T18:00:00+24:00", "2026-02-29T00:00:00Z", "2026-04-31T00:00:00Z",
			"2026-13-01T00:00:00Z", "2026-00-10T00:00:00Z", "2026-01-00T00:00:00Z", "12026-12-24T18:00:00Z",
			" 2026-12-24T18:00:00Z", "2026-12-24T18:00:00Z\n", "2026-12-24T18:00:00.1234567890Z", "1798135200",
			"٢٠٢٦-12-24T18:00:00Z", strings.Repeat("9", 200000),
		},
		v1alpha1.AnnotationTTL: {
			"1s", "90m", "8h", "7d", "1d2h3m4s", "1h30m", "0d5m", "99999d99999h99999m99999s",
			"", "0", "0s", "0d0h0m0s", "-1h", "+1h", "8", "8H", "1.5h", "1h 30m", "30m1h", "1h1h", "1w", "1ms", "P7D",
			"100000d", "8h\n", " 8h", "h", "never", "٨h", strings.Repeat("9", 200000),
		},
	} {
		for _, value := range values {
			namespace := makeNamespace().Annotation(key, value).Obj()
			_, err := Parse(namespace)
			g.Expect(accepts(g, rules[variables[key]], variables[key], value)).To(Equal(err == nil), "%q", value)
			accepted[err == nil]++
		}
	}
	g.Expect(accepted).To(Equal(map[bool]int{true: 16, false: 46}))
}

// The same for all days of some years, valid or not.
func TestPolicyAcceptsParsedDates(t *testing.T) {
	g := NewWithT(t)
	rule := compile(g, readPolicy(g, "expiry").Validations[2].Expression)
	accepted := 0
	for _, year := range []int{0, 1, 4, 1900, 2000, 2026, 2028, 2100, 2400, 9996, 9999} {
		for month := range 14 {
			for day := range 33 {
				value := fmt.Sprintf("%04d-%02d-%02dT12:00:00Z", year, month, day)
				_, err := parseTime(value)
				g.Expect(accepts(g, rule, "expiresAt", value)).To(Equal(err == nil), value)
				if err == nil {
					accepted++
				}
			}
		}
	}
	g.Expect(accepted).To(Equal(11*365 + 6))
}

// The policy confine computes the same time as the operator.
func TestPolicyComputesExpiry(t *testing.T) {
	g := NewWithT(t)
	var program cel.Program
	for _, variable := range readPolicy(g, "confine").Variables {
		if variable.Name == "expiresAt" {
			program = compile(g, variable.Expression)
		}
	}
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	for _, annotations := range []map[string]string{
		{}, {v1alpha1.AnnotationTTL: "1s"}, {v1alpha1.AnnotationTTL: "7d"}, {v1alpha1.AnnotationTTL: "0d5m"},
		{v1alpha1.AnnotationTTL: "1d2h3m4s"}, {v1alpha1.AnnotationTTL: "1d1s"}, {v1alpha1.AnnotationTTL: "90m"},
		{v1alpha1.AnnotationTTL: "99999d99999h99999m99999s"}, {v1alpha1.AnnotationTTL: "00001h00030m"},
		{v1alpha1.AnnotationExpiresAt: "2026-12-24T18:00:00+01:00"}, {v1alpha1.AnnotationExpiresAt: "2028-02-29T00:00:00.123456789Z"},
		{v1alpha1.AnnotationExpiresAt: "2026-12-24T18:00:00Z", v1alpha1.AnnotationTTL: "1s"},
	} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: annotations, CreationTimestamp: metav1.NewTime(created)}}
		metadata := map[string]any{"annotations": annotations, "creationTimestamp": created.Format(time.RFC3339)}
		result, _, err := program.Eval(map[string]any{
			"variables": map[string]any{"isNamespace": true, "oldMetadata": metadata}, "oldObject": map[string]any{"metadata": metadata},
		})
		g.Expect(err).NotTo(HaveOccurred(), "%v", annotations)
		want, err := Parse(namespace)
		if err != nil || !IsSet(namespace) {
			g.Expect(result.(traits.Lister).Size()).To(Equal(types.Int(0)), "%v", annotations)
			continue
		}
		g.Expect(result.(traits.Lister).Get(types.Int(0)).Value()).To(BeTemporally("==", want.At), "%v", annotations)
	}
}

func TestComputeExpired(t *testing.T) {
	at := time.Date(2026, 3, 1, 20, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		ttl              string
		recorded         *time.Time
		expired, changed bool
	}{
		"not recorded":                   {ttl: "8h", expired: true},
		"recorded":                       {ttl: "8h", recorded: &at},
		"recorded for an earlier expiry": {ttl: "9h", recorded: &at, expired: true, changed: true},
		"removed":                        {recorded: &at, changed: true},
		"invalid":                        {ttl: "x", recorded: &at, changed: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			wrapper := makeNamespace()
			if test.ttl != "" {
				wrapper.Annotation(v1alpha1.AnnotationTTL, test.ttl)
			}
			if test.recorded != nil {
				wrapper.Condition(corev1.NamespaceCondition{
					Type: v1alpha1.ConditionExpired, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(*test.recorded),
				})
			}
			now := at.Add(time.Hour)
			if test.ttl != "" {
				expired := ComputeExpired(wrapper.Obj(), now)
				g.Expect(expired != nil).To(Equal(test.expired))
			}
			changed := ComputeNotExpired(wrapper.Obj(), now)
			g.Expect(changed != nil).To(Equal(test.changed))
		})
	}
}

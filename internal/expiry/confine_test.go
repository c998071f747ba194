// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"bytes"
	"os"
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

func readPolicy(g Gomega, path string) admissionv1.ValidatingAdmissionPolicySpec {
	content, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	var policy admissionv1.ValidatingAdmissionPolicy
	g.Expect(yaml.UnmarshalStrict(bytes.Split(content, []byte("\n---\n"))[0], &policy)).To(Succeed())
	return policy.Spec
}

func expressions(spec admissionv1.ValidatingAdmissionPolicySpec) map[string]string {
	found := map[string]string{}
	for _, variable := range spec.Variables {
		found[variable.Name] = variable.Expression
	}
	return found
}

// The policies confine and expiry have the same rule for the condition Expired.
func TestPoliciesAgree(t *testing.T) {
	g := NewWithT(t)
	confine, expiry := readPolicy(g, "../../config/confine/confine.yaml"), readPolicy(g, "../../config/expiry/expiry.yaml")
	for _, name := range []string{"expired", "oldExpired", "writes", "oldWrites", "newWrites"} {
		g.Expect(expressions(confine)).To(HaveKeyWithValue(name, expressions(expiry)[name]))
	}
	rule := expiry.Validations[len(expiry.Validations)-1].Expression
	g.Expect(rule).To(HavePrefix("variables.expired.all("))
	g.Expect(confine.Validations).To(ContainElement(HaveField("Expression", "!variables.isNamespace || "+rule)))
}

// The policy confine computes the same time as the operator.
func TestPolicyComputesExpiry(t *testing.T) {
	g := NewWithT(t)
	base, err := environment.MustBaseEnvSet(version.MajorMinor(1, 32)).Env(environment.NewExpressions)
	g.Expect(err).NotTo(HaveOccurred())
	env, err := base.Extend(cel.Variable("variables", cel.DynType), cel.Variable("oldObject", cel.DynType))
	g.Expect(err).NotTo(HaveOccurred())
	ast, issues := env.Compile(expressions(readPolicy(g, "../../config/confine/confine.yaml"))["expiresAt"])
	g.Expect(issues.Err()).NotTo(HaveOccurred())
	program, err := env.Program(ast)
	g.Expect(err).NotTo(HaveOccurred())
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

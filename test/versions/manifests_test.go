// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// The guard policies in config/admission and config/compat must have the same rules. The test
// identifies rules by their messages.
func TestGuardsHaveTheSameRules(t *testing.T) {
	g := NewWithT(t)
	usual := read(t, "admission", "guard.yaml")
	var policy admissionv1.ValidatingAdmissionPolicy
	g.Expect(yaml.UnmarshalStrict(bytes.Split(usual, []byte("\n---\n"))[0], &policy)).To(Succeed())
	var operations []struct {
		Op, Path string
		Value    json.RawMessage
	}
	g.Expect(yaml.Unmarshal(read(t, "compat", "guard.yaml"), &operations)).To(Succeed())
	g.Expect(operations).To(HaveLen(2))
	g.Expect(operations[1].Path).To(Equal("/spec"))
	var compat admissionv1.ValidatingAdmissionPolicySpec
	g.Expect(json.Unmarshal(operations[1].Value, &compat)).To(Succeed())

	g.Expect(compat.MatchConstraints).To(Equal(policy.Spec.MatchConstraints))
	g.Expect(compat.FailurePolicy).To(Equal(policy.Spec.FailurePolicy))
	there := rules(compat)
	for text, rule := range rules(policy.Spec) {
		g.Expect(there).To(HaveKey(text))
		// In config/compat, an additional variable allows the operator to inject pending lists and to
		// complete initializations, and an additional annotation is immutable.
		without := strings.NewReplacer(" || variables.injects", "", ", 'injected-at'", "").Replace(there[text])
		if strings.Contains(text, "must be \"true\" on namespace") || strings.Contains(text, "sets the labels") {
			continue
		}
		// In config/compat, the limits already apply at the creation of a namespace.
		if strings.HasPrefix(text, "a namespace can have at most") {
			without, rule = bound.FindString(without), bound.FindString(rule)
			g.Expect(rule).NotTo(BeEmpty(), text)
		}
		g.Expect(without).To(Equal(rule), text)
	}
}

// Every ValidatingAdmissionPolicy must compile on API servers of version 1.30. For new policies, these
// support only the CEL libraries of 1.29.
func TestPoliciesCompile(t *testing.T) {
	g := NewWithT(t)
	compiled := 0
	err := filepath.WalkDir(filepath.Join(controlplane.Root(), "config"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		for _, document := range bytes.Split(content, []byte("\n---\n")) {
			if !bytes.Contains(document, []byte("\nkind: ValidatingAdmissionPolicy\n")) {
				continue
			}
			var policy admissionv1.ValidatingAdmissionPolicy
			g.Expect(yaml.UnmarshalStrict(document, &policy)).To(Succeed(), path)
			g.Expect(compile(t, policy.Spec)).To(BeEmpty(), path)
			compiled++
		}
		return err
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(compiled).To(BeNumerically(">=", 12))
}

// compile returns the errors in the expressions of a policy.
func compile(t *testing.T, spec admissionv1.ValidatingAdmissionPolicySpec) []error {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 29)))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var expressions []plugincel.ExpressionAccessor
	for _, condition := range spec.MatchConditions {
		expressions = append(expressions, &validating.ValidationCondition{Expression: condition.Expression})
	}
	for _, validation := range spec.Validations {
		expressions = append(expressions, &validating.ValidationCondition{Expression: validation.Expression})
		if validation.MessageExpression != "" {
			expressions = append(expressions, &validating.MessageExpressionCondition{MessageExpression: validation.MessageExpression})
		}
	}
	options := plugincel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil, HasAuthorizer: true}
	var errs []error
	for _, variable := range spec.Variables {
		result := compiler.CompileAndStoreVariable(
			&validating.Variable{Name: variable.Name, Expression: variable.Expression}, options, environment.NewExpressions)
		if result.Error != nil {
			errs = append(errs, result.Error)
		}
	}
	return append(errs, compiler.CompileCondition(expressions, options, environment.NewExpressions).CompilationErrors()...)
}

// bound matches the part of a rule that compares sizes.
var bound = regexp.MustCompile(`variables\.(userBytes|userEntries|conditionBytes) .*$`)

// rules returns the expressions of a policy, keyed by the common prefix of their messages.
func rules(spec admissionv1.ValidatingAdmissionPolicySpec) map[string]string {
	blanks := regexp.MustCompile(`\s+`)
	found := map[string]string{}
	for _, validation := range spec.Validations {
		text := blanks.ReplaceAllString(validation.Message+validation.MessageExpression, " ")
		text = strings.NewReplacer(" that is being initialized can have", " can have", " until it is initialized", "",
			"the operator sets", "the API server sets", " after a namespace", " when a namespace").Replace(text)
		// Cut the messages where they differ.
		for _, end := range []string{"; remove them", "\" while annotation", " and nslifecycle.dev/init",
			", nslifecycle.dev/initializers and"} {
			text, _, _ = strings.Cut(text, end)
		}
		found[text] = blanks.ReplaceAllString(validation.Expression, " ")
	}
	return found
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{controlplane.Root(), "config"}, path...)...))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return content
}

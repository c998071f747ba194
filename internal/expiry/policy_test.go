// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// TestPolicyAcceptsParsedDates evaluates the rule for expires-at in config/expiry/expiry.yaml with all days of some
// years, valid or not, as an API server of version 1.33 does. test/guardrails tests other values with an API server.
func TestPolicyAcceptsParsedDates(t *testing.T) {
	content, err := os.ReadFile("../../config/expiry/expiry.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var policy admissionv1.ValidatingAdmissionPolicy
	if err := yaml.UnmarshalStrict(bytes.Split(content, []byte("\n---\n"))[0], &policy); err != nil {
		t.Fatal(err)
	}
	// New policies can use only what the previous version supports.
	base, err := environment.MustBaseEnvSet(version.MajorMinor(1, 32)).Env(environment.NewExpressions)
	if err != nil {
		t.Fatal(err)
	}
	env, err := base.Extend(cel.Variable("variables", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	ast, issues := env.Compile(policy.Spec.Validations[2].Expression)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for _, year := range []int{0, 1, 4, 1900, 2000, 2026, 2028, 2100, 2400, 9996, 9999} {
		for month := range 14 {
			for day := range 33 {
				value := fmt.Sprintf("%04d-%02d-%02dT12:00:00Z", year, month, day)
				_, parseErr := parseTime(value)
				got, _, err := program.Eval(map[string]any{"variables": map[string]any{"expiresAt": []string{value}}})
				if err != nil || got.Value() != (parseErr == nil) {
					t.Errorf("%s: the policy returned %v, %v; the operator %v", value, got, err, parseErr)
				}
				if parseErr == nil {
					accepted++
				}
			}
		}
	}
	if want := 11*365 + 6; accepted != want {
		t.Errorf("accepted %d days, want %d", accepted, want)
	}
}

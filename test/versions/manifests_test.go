// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
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
		// complete initializations.
		without := strings.NewReplacer(" || variables.injects", "").Replace(there[text])
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

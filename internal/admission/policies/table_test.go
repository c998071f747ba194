// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

const root = "../../.."

// manifest describes the policies with one label in config.
type manifest struct {
	policy            *unstructured.Unstructured
	text              string
	bindings, denying int
}

func manifests(t *testing.T) map[string]*manifest {
	t.Helper()
	g := NewWithT(t)
	found := map[string]*manifest{}
	for _, pattern := range []string{"*/*.yaml", "mutating/binding/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, "config", pattern))
		g.Expect(err).NotTo(HaveOccurred())
		for _, file := range files {
			content, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			if !strings.Contains(string(content), internalv1alpha1.LabelPolicy+": ") {
				continue
			}
			for _, object := range Decode(content) {
				label := object.GetLabels()[internalv1alpha1.LabelPolicy]
				if found[label] == nil {
					found[label] = &manifest{}
				}
				if strings.HasSuffix(object.GetKind(), "Binding") {
					actions, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "validationActions")
					found[label].bindings++
					if len(actions) == 0 || slices.Contains(actions, "Deny") {
						found[label].denying++
					}
					continue
				}
				object.SetAnnotations(map[string]string{"directory": filepath.Base(filepath.Dir(file))})
				found[label].policy, found[label].text = object, string(content)
			}
		}
	}
	return found
}

var checkedVerb = regexp.MustCompile(`\.check\('([^']+)'\)`)

// TestTable compares the table with the manifests.
func TestTable(t *testing.T) {
	found := manifests(t)
	for _, policy := range table {
		t.Run(policy.Label, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(found).To(HaveKey(policy.Label))
			manifest := found[policy.Label]
			delete(found, policy.Label)
			spec := manifest.policy.Object["spec"].(map[string]any)
			g.Expect(manifest.policy.GetKind()).To(Equal(policy.Kind))
			g.Expect(manifest.policy.GetAnnotations()["directory"]).To(Equal(policy.Directory))
			fails := "Fail"
			if policy.FailsOpen && policy.Label != internalv1alpha1.PolicyInject { // See Mutating.
				fails = "Ignore"
			}
			g.Expect(spec["failurePolicy"]).To(Equal(fails))
			g.Expect(policy.FailsOpen || policy.FailsFor == nil).To(BeTrue())
			g.Expect(spec["paramKind"] != nil).To(Equal(policy.HasParameter))
			want := 1
			if policy.HasSecondBinding {
				want = 2
			}
			g.Expect(manifest.bindings).To(Equal(want))
			wantDenying := want
			if policy.Label == internalv1alpha1.PolicyUnusedSettings { // It only warns.
				wantDenying = 0
			}
			g.Expect(manifest.denying).To(Equal(wantDenying))
			verbs := map[string]bool{}
			for _, match := range checkedVerb.FindAllStringSubmatch(manifest.text, -1) {
				verbs[match[1]] = true
			}
			g.Expect(slices.Sorted(maps.Keys(verbs))).To(Equal(slices.Sorted(slices.Values(policy.Exempt))))
			g.Expect(strings.Contains(manifest.text, "params.?operators")).To(Equal(policy.ExemptsOperator))
			if policy.Origin == Operator { // `make undeploy` selects the label.
				g.Expect(manifest.policy.GetLabels()).To(HaveKeyWithValue(internalv1alpha1.LabelName, internalv1alpha1.Name))
			}
		})
	}
	NewWithT(t).Expect(found).To(BeEmpty(), "policies that are not in the table")
}

// TestOrigin compares the table with config/default.
func TestOrigin(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "config/default/kustomization.yaml"))
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	for _, policy := range table {
		isDefault := strings.Contains(string(content), "\n- ../"+policy.Directory+"\n")
		g.Expect(isDefault).To(Equal(policy.Origin == Manifest), policy.Label)
	}
}

func labelsOf(selected []Policy) (labels []string) {
	for _, policy := range selected {
		labels = append(labels, policy.Label)
	}
	return labels
}

func TestSelections(t *testing.T) {
	g := NewWithT(t)
	g.Expect(labelsOf(InstalledFirst())).To(Equal([]string{"gate", "guard"}))
	g.Expect(labelsOf(Protecting())).To(Equal([]string{"gate", "guard", "waiting-subjects", "initializer-subjects"}))
	g.Expect(labelsOf(For(ForTemplates))).To(Equal([]string{"templates", "template-authors", "template-objects"}))
	g.Expect(labelsOf(For(ForState))).To(Equal(append([]string{"inject", "complete", "require-set"}, labelsOf(Protecting())...)))
	g.Expect(labelsOf(Where(func(p Policy) bool { return p.Injects }))).To(Equal([]string{"inject", "require-set", "guard"}))
}

// TestApplied verifies what the operator changes in manifests.
func TestApplied(t *testing.T) {
	field := func(objects []*unstructured.Unstructured, field string) map[string]any {
		values := map[string]any{}
		for _, object := range objects {
			if value, ok := object.Object["spec"].(map[string]any)[field]; ok {
				values[object.GetName()] = value
			}
		}
		return values
	}
	g := NewWithT(t)
	g.Expect(field(Mutating(), "failurePolicy")).To(Equal(map[string]any{
		"nslifecycle-complete": "Fail", "nslifecycle-require-set": "Fail", "nslifecycle-inject": "Ignore",
	}))
	g.Expect(field(Validating(false), "failurePolicy")).To(HaveLen(4))
	g.Expect(field(Validating(false), "failurePolicy")).To(HaveEach("Ignore"))
	g.Expect(field(Validating(false), "validationActions")).To(HaveEach(ConsistOf("Deny")))
	for name, actions := range field(Validating(true), "validationActions") {
		isAudited := strings.HasPrefix(name, "nslifecycle-waiting-subjects")
		g.Expect(slices.Contains(actions.([]any), any("Deny"))).To(Equal(!isAudited), name)
	}
	g.Expect(InjectBinding()).To(ConsistOf(HaveField("GetName()", internalv1alpha1.InjectConfiguration)))
}

// TestUndeploy verifies that `make undeploy` deletes the policies of all kinds, and their bindings before.
func TestUndeploy(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "hack/install.sh"))
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	match := regexp.MustCompile(`for kind in ((?:.*\n)+?.*); do`).FindSubmatch(content)
	g.Expect(match).NotTo(BeNil())
	kinds := strings.Fields(string(match[1]))
	for _, policy := range table {
		kind := strings.TrimSuffix(strings.ToLower(policy.Kind), "policy")
		bindings := slices.Index(kinds, kind+"policybindings")
		g.Expect(bindings).To(BeNumerically(">=", 0))
		g.Expect(slices.Index(kinds, kind+"policies")).To(BeNumerically(">", bindings))
	}
}

// TestDocumentation verifies that the table in docs/design.md lists all policies that are installed by default.
func TestDocumentation(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs/design.md"))
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	_, rest, _ := strings.Cut(string(content), "\n| Policy | Matches |\n|---|---|\n")
	rows, _, _ := strings.Cut(rest, "\n\n")
	found, want := map[string]bool{}, map[string]bool{}
	for row := range strings.SplitSeq(rows, "\n") {
		for name := range strings.SplitSeq(strings.Split(row, " | ")[0], ", ") {
			if match := regexp.MustCompile(`^(?:\| )?\[?([a-z-]+)(?:]\(.*\))?( \(mutating\))?$`).FindStringSubmatch(name); match != nil {
				found[match[1]] = match[2] != ""
			}
		}
	}
	for _, policy := range Where(func(p Policy) bool { return p.Origin != Optional }) {
		want[policy.Label] = policy.Kind == MutatingKind
	}
	g.Expect(found).To(Equal(want))
}

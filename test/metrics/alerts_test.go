// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

const runbooks = "https://github.com/nslifecycle/nslifecycle/blob/main/docs/runbooks.md#"

// ruleFile is a Prometheus rule file, which is also the spec of a PrometheusRule.
type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// alerts returns the rules in config/prometheus.
func alerts() (ruleFile, []rule) {
	GinkgoHelper()
	var object struct {
		Spec ruleFile `json:"spec"`
	}
	Expect(yaml.UnmarshalStrict([]byte(readFile("config", "prometheus", "rules.yaml")), &struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       *ruleFile      `json:"spec"`
	}{Spec: &object.Spec})).To(Succeed())
	var rules []rule
	for _, group := range object.Spec.Groups {
		rules = append(rules, group.Rules...)
	}
	Expect(rules).NotTo(BeEmpty())
	return object.Spec, rules
}

// metricName matches the metric names in a query: a name followed by braces or a range, or alone
// in parentheses.
var metricName = regexp.MustCompile(`\b([a-z]+(?:_[a-z0-9]+)+)(?:\{|\[|\))`)

var _ = Describe("The alerts", func() {
	It("pass their unit tests", func(ctx context.Context) {
		spec, _ := alerts()
		content, err := yaml.Marshal(spec)
		Expect(err).NotTo(HaveOccurred())
		dir := GinkgoT().TempDir()
		tests := filepath.Join(dir, "alerts.yaml")
		Expect(os.WriteFile(filepath.Join(dir, "rules.yaml"), content, 0o600)).To(Succeed())
		Expect(os.WriteFile(tests, []byte(readFile("test", "metrics", "testdata", "alerts.yaml")), 0o600)).To(Succeed())
		_, err = promtool(ctx, "", "check", "rules", "--lint-fatal", filepath.Join(dir, "rules.yaml"))
		Expect(err).NotTo(HaveOccurred())
		_, err = promtool(ctx, "", "test", "rules", tests)
		Expect(err).NotTo(HaveOccurred())
	})

	It("each have a unit test and a runbook", func() {
		var tested struct {
			Tests []struct {
				Alerts []struct {
					Name string           `json:"alertname"`
					Want []map[string]any `json:"exp_alerts"`
				} `json:"alert_rule_test"`
			} `json:"tests"`
		}
		Expect(yaml.Unmarshal([]byte(readFile("test", "metrics", "testdata", "alerts.yaml")), &tested)).To(Succeed())
		var firing []string
		for _, test := range tested.Tests {
			for _, alert := range test.Alerts {
				if len(alert.Want) > 0 {
					firing = append(firing, alert.Name)
				}
			}
		}
		firing = append(firing, "NslifecycleAbsent") // It has a separate test.

		headings := regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(readFile("docs", "runbooks.md"), -1)
		var sections, names []string
		for _, heading := range headings {
			sections = append(sections, heading[1])
		}
		_, rules := alerts()
		for _, rule := range rules {
			names = append(names, rule.Alert)
			Expect(rule.Annotations).To(And(HaveKey("summary"), HaveKey("description"),
				HaveKeyWithValue("runbook_url", runbooks+strings.ToLower(rule.Alert))))
			Expect(rule.Labels["severity"]).To(BeElementOf("critical", "warning"))
			Expect(rule.For).NotTo(BeEmpty())
		}
		Expect(firing).To(ConsistOf(names))
		Expect(sections).To(Equal(names), "the runbooks must be in the order of the alerts")
	})

	It("have runbooks whose commands succeed", func(ctx context.Context) {
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(controlplane.WriteKubeconfig(kubeconfig, plane.Admin)).To(Succeed())
		commands := 0
		for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(readFile("docs", "runbooks.md"), -1) {
			for line := range strings.Lines(block[1]) {
				// No Pods run here, and the plugin has its own tests.
				if strings.Contains(line, " logs ") || strings.Contains(line, "kubectl nslifecycle ") {
					continue
				}
				commands++
				command := exec.CommandContext(ctx, "bash", "-ec", line)
				command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig,
					"PATH="+filepath.Dir(plane.KubectlPath())+string(os.PathListSeparator)+os.Getenv("PATH"))
				output, err := run(command, "")
				Expect(err).NotTo(HaveOccurred())
				Expect(output).NotTo(ContainSubstring("No resources found"), line)
			}
		}
		Expect(commands).To(BeNumerically(">=", 9))
	})

	It("query existing metrics", func() {
		_, rules := alerts()
		for _, rule := range rules {
			names := metricName.FindAllStringSubmatch(rule.Expr, -1)
			Expect(names).NotTo(BeEmpty(), rule.Alert)
			for _, name := range names {
				Expect(slices.Sorted(maps.Keys(second))).To(ContainElement(name[1]), rule.Alert)
			}
		}
	})
})

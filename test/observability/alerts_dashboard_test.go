// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observability

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// Values of the dashboard's variables.
const (
	job       = "nslifecycle-controller-manager-metrics-service"
	apiserver = "apiserver"
	inScrape  = `job="%s",namespace="nslifecycle-system",instance="a"`
)

// mayBeEmpty contains the panels whose queries return no series in this run, and the reasons.
var mayBeEmpty = map[string]string{}

// dashboard holds the fields of a Grafana dashboard that the specs check.
type dashboard struct {
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID         int            `json:"id"`
	Title      string         `json:"title"`
	Type       string         `json:"type"`
	Datasource map[string]any `json:"datasource"`
	GridPos    struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	} `json:"gridPos"`
	Targets []struct {
		Datasource map[string]any `json:"datasource"`
		Expr       string         `json:"expr"`
	} `json:"targets"`
}

func readDashboard() dashboard {
	GinkgoHelper()
	var result dashboard
	Expect(json.Unmarshal([]byte(readFile("config", "grafana", "nslifecycle.json")), &result)).To(Succeed())
	return result
}

// unitTest is an input file of `promtool test rules`.
type unitTest struct {
	RuleFiles          []string `json:"rule_files"`
	EvaluationInterval string   `json:"evaluation_interval"`
	Tests              []test   `json:"tests"`
}

type test struct {
	Interval    string       `json:"interval"`
	InputSeries []series     `json:"input_series"`
	Expressions []expression `json:"promql_expr_test"`
}

type series struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

type expression struct {
	Expr     string   `json:"expr"`
	EvalTime string   `json:"eval_time"`
	Samples  []sample `json:"exp_samples"`
}

type sample struct {
	Labels string  `json:"labels"`
	Value  float64 `json:"value"`
}

// addSeries adds the samples of one scrape to the series that Prometheus would store.
func addSeries(values map[string][]float64, from families, scrapeLabels string) {
	for name, family := range from {
		for _, metric := range family.GetMetric() {
			add := func(suffix string, value float64, labels ...string) {
				all := append(labelsOf(metric), labels...)
				all = append(all, scrapeLabels)
				key := name + suffix + "{" + strings.Join(all, ",") + "}"
				values[key] = append(values[key], value)
			}
			switch family.GetType() {
			case dto.MetricType_COUNTER:
				add("", metric.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				add("", metric.GetGauge().GetValue())
			case dto.MetricType_UNTYPED:
				add("", metric.GetUntyped().GetValue())
			case dto.MetricType_HISTOGRAM:
				histogram := metric.GetHistogram()
				for _, bucket := range histogram.GetBucket() {
					bound := strconv.FormatFloat(bucket.GetUpperBound(), 'g', -1, 64)
					add("_bucket", float64(bucket.GetCumulativeCount()), fmt.Sprintf("le=%q", bound))
				}
				add("_sum", histogram.GetSampleSum())
				add("_count", float64(histogram.GetSampleCount()))
			}
		}
	}
}

// queries returns the dashboard's queries by panel or variable.
func queries(of dashboard) map[string]string {
	result := map[string]string{}
	for _, panel := range of.Panels {
		for i, target := range panel.Targets {
			result[fmt.Sprintf("%s (%d)", panel.Title, i)] = target.Expr
		}
	}
	values := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for _, variable := range of.Templating.List {
		if variable.Type == "query" {
			result["variable "+variable.Name] = values.ReplaceAllString(variable.Definition, "group by ($2) ($1)")
		}
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", job, "$namespace", "nslifecycle-system")
	for place, query := range result {
		result[place] = variables.Replace(query)
	}
	return result
}

var _ = Describe("The dashboard", func() {
	It("queries only existing metrics", func(ctx context.Context) {
		values := map[string][]float64{}
		for _, scraped := range []families{first, second} {
			addSeries(values, scraped, fmt.Sprintf(inScrape, job))
		}
		for _, scraped := range []families{firstOfServer, secondOfServer} {
			addSeries(values, scraped, fmt.Sprintf(inScrape, apiserver))
		}
		var input []series
		for _, name := range slices.Sorted(maps.Keys(values)) {
			var texts []string
			for _, value := range values[name] {
				texts = append(texts, strconv.FormatFloat(value, 'f', -1, 64))
			}
			input = append(input, series{Series: name, Values: strings.Join(texts, " ")})
		}

		asked := queries(readDashboard())
		Expect(len(asked)).To(BeNumerically(">", 30))
		var expressions []expression
		for _, place := range slices.Sorted(maps.Keys(asked)) {
			query := asked[place]
			Expect(query).NotTo(ContainSubstring("$"), place)
			expected := expression{Expr: "count(" + query + ") > bool 0", EvalTime: "1m"}
			if mayBeEmpty[place] == "" {
				expected.Samples = []sample{{Labels: "{}", Value: 1}}
			}
			expressions = append(expressions, expected)
		}
		for place := range mayBeEmpty {
			Expect(asked).To(HaveKey(place))
		}
		file := filepath.Join(GinkgoT().TempDir(), "queries.yaml")
		content, err := yaml.Marshal(unitTest{
			RuleFiles: []string{}, EvaluationInterval: "1m",
			Tests: []test{{Interval: "1m", InputSeries: input, Expressions: expressions}},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
		_, err = promtool(ctx, "", "test", "rules", file)
		Expect(err).NotTo(HaveOccurred())
	})

	It("has the layout and fields that Grafana requires", func() {
		read := readDashboard()
		Expect(read.Title).To(Equal("nslifecycle"))
		Expect(read.SchemaVersion).To(BeNumerically(">=", 39))
		var names []string
		for _, variable := range read.Templating.List {
			names = append(names, variable.Name)
		}
		Expect(names).To(Equal([]string{"datasource", "job", "namespace"}))
		ids, places := map[int]bool{}, map[string]string{}
		for _, panel := range read.Panels {
			Expect(ids).NotTo(HaveKey(panel.ID), panel.Title)
			ids[panel.ID] = true
			Expect(panel.Type).To(BeElementOf("row", "stat", "timeseries", "heatmap"))
			Expect(panel.Title).NotTo(BeEmpty())
			for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
				Expect(x).To(BeNumerically("<", 24), panel.Title)
				for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
					cell := fmt.Sprint(x, "/", y)
					Expect(places[cell]).To(BeEmpty(), "overlaps with %s", panel.Title)
					places[cell] = panel.Title
				}
			}
			if panel.Type == "row" {
				continue
			}
			Expect(panel.Targets).NotTo(BeEmpty(), panel.Title)
			for _, target := range panel.Targets {
				Expect(target.Datasource).To(HaveKeyWithValue("uid", "${datasource}"))
			}
		}
	})
})

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

var (
	// controllerFilter and leaseFilter match the names that a query selects.
	controllerFilter = regexp.MustCompile(`controller=~"([^"]+)"`)
	leaseFilter      = regexp.MustCompile(`leader_election_master_status\{[^}]*name=~"([^"]+)"`)
	// controllerName matches the name of a controller in code, without the number of a certificate controller.
	controllerName = regexp.MustCompile(`ControllerName(?: +=|:) +(?:fmt\.Sprintf\()?"([a-z-]+)`)
	leaseName      = regexp.MustCompile(`--leader-elect-resource-name=(\S+)`)
)

// controllers returns the names of the controllers in the code, which include those of the running processes.
func controllers(ctx context.Context) []string {
	GinkgoHelper()
	names := map[string]bool{}
	for _, pattern := range []string{"internal/controller/*.go", "internal/admission/webhooks/*.go"} {
		files, err := filepath.Glob(filepath.Join(controlplane.Root(), pattern))
		Expect(err).NotTo(HaveOccurred())
		for _, file := range files {
			content, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			for _, match := range controllerName.FindAllStringSubmatch(string(content), -1) {
				names[match[1]] = true
			}
		}
	}
	for _, running := range []families{second, admission.scrape(ctx)} {
		for _, metric := range running["controller_runtime_reconcile_total"].GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "controller" {
					Expect(names).To(HaveKey(strings.TrimRight(label.GetValue(), "0123456789")))
				}
			}
		}
	}
	Expect(names).To(And(HaveKey("admission"), HaveKey("namespace-diagnosis"), HaveKey("webhook-certificate-")))
	return slices.Sorted(maps.Keys(names))
}

// leases returns the names of the Leases of the Deployments in config and in the chart. Each Deployment serves metrics.
func leases(ctx context.Context) []string {
	GinkgoHelper()
	names := []string{"nslifecycle.dev"}
	manifest, err := cluster.Kubectl(ctx, cluster.Admin.Config, "kustomize", framework.Variant("separate-finalization"))
	Expect(err).NotTo(HaveOccurred())
	deployments := strings.Count(manifest, "\nkind: Deployment\n")
	Expect(strings.Count(manifest, "- --metrics-bind-address=")).To(Equal(deployments))
	for _, match := range leaseName.FindAllStringSubmatch(manifest, -1) {
		names = append(names, match[1])
	}
	Expect(names).To(HaveLen(deployments))
	return names
}

var _ = Describe("The alerts", func() {
	It("pass their unit tests", func(ctx context.Context) {
		spec, _ := alerts()
		content, err := yaml.Marshal(spec)
		Expect(err).NotTo(HaveOccurred())
		dir := GinkgoT().TempDir()
		tests := filepath.Join(dir, "alerts.yaml")
		Expect(os.WriteFile(filepath.Join(dir, "rules.yaml"), content, 0o600)).To(Succeed())
		Expect(os.WriteFile(tests, []byte(readFile("test", "observability", "testdata", "alerts.yaml")), 0o600)).To(Succeed())
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
		Expect(yaml.Unmarshal([]byte(readFile("test", "observability", "testdata", "alerts.yaml")), &tested)).To(Succeed())
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
		kubeconfig := framework.KubeconfigFile(cluster.Admin.Config)
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
					"PATH="+filepath.Dir(cluster.KubectlPath())+string(os.PathListSeparator)+os.Getenv("PATH"))
				output, err := run(command, "")
				Expect(err).NotTo(HaveOccurred())
				Expect(output).NotTo(ContainSubstring("No resources found"), line)
			}
		}
		Expect(commands).To(BeNumerically(">=", 9))
	})

	It("query, as the dashboard does, the metrics of every controller and every Lease", func(ctx context.Context) {
		_, rules := alerts()
		var asked []string
		for _, rule := range rules {
			asked = append(asked, rule.Expr)
		}
		asked = append(asked, slices.Collect(maps.Values(queries(readDashboard())))...)
		for filter, wanted := range map[*regexp.Regexp][]string{controllerFilter: controllers(ctx), leaseFilter: leases(ctx)} {
			filters := 0
			for _, query := range asked {
				for _, match := range filter.FindAllStringSubmatch(query, -1) {
					filters++
					for _, name := range wanted {
						Expect(name).To(MatchRegexp("^(%s)$", match[1]), query)
					}
				}
			}
			Expect(filters).To(BeNumerically(">=", 2), filter.String())
		}
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

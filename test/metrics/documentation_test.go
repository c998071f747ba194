// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

const own = "nslifecycle_"

// described is a metric as somebody sees it.
type described struct {
	Type   string
	Labels []string
}

var (
	metricRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*)\\|")
	logRow    = regexp.MustCompile("(?m)^\\| `([A-Z][^`]+)` \\| ([a-z]+) \\| ([^|]*)\\|")
	quoted    = regexp.MustCompile("`([^`]+)`")
)

// readFile returns a file of the repository.
func readFile(path ...string) string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(append([]string{controlplane.Root()}, path...)...))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

// The pages with the metrics of this project, and with other metrics and log lines.
const (
	reference = "reference/metrics.md"
	operate   = "operate.md"
)

// documented returns the rows of the tables in a page of docs whose first cell has the prefix.
func documented(page string, row *regexp.Regexp, prefix string) map[string]described {
	GinkgoHelper()
	result := map[string]described{}
	for _, match := range row.FindAllStringSubmatch(readFile("docs", page), -1) {
		if strings.HasPrefix(match[1], prefix) {
			result[match[1]] = described{Type: match[2], Labels: cells(match[3])}
		}
	}
	return result
}

func cells(text string) []string {
	labels := []string{}
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		labels = append(labels, match[1])
	}
	slices.Sort(labels)
	return labels
}

// emitted returns the metrics whose names begin so. Each of a family has to have the same
// labels.
func emitted(from families, prefix string) map[string]described {
	GinkgoHelper()
	result := map[string]described{}
	for name, family := range from {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		for i, metric := range family.GetMetric() {
			labels := []string{}
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName())
			}
			slices.Sort(labels)
			if i > 0 {
				Expect(labels).To(Equal(result[name].Labels), name)
			}
			result[name] = described{Type: strings.ToLower(family.GetType().String()), Labels: labels}
		}
	}
	return result
}

var _ = Describe("The documentation of metrics and logs", func() {
	It("lists each metric of this project, and no other", func() {
		Expect(emitted(second, own)).To(Equal(documented(reference, metricRow, own)))
		Expect(documented(reference, metricRow, own)).NotTo(BeEmpty())
	})

	It("names metrics of others that the manager really has", func() {
		others := documented(operate, metricRow, "")
		maps.DeleteFunc(others, func(name string, _ described) bool {
			return strings.HasPrefix(name, own) || strings.HasPrefix(name, "apiserver_")
		})
		Expect(others).To(HaveLen(6))
		all := emitted(second, "")
		for name, want := range others {
			Expect(all).To(HaveKeyWithValue(name, want))
		}
	})

	It("names the metrics of the API server's policies as they are", func() {
		wanted := documented(operate, metricRow, "apiserver_")
		Expect(wanted).To(HaveLen(4))
		Expect(emitted(secondOfServer, "apiserver_")).To(Equal(wanted))
		binding := func(name string) string { return fmt.Sprintf("policy_binding=%q", name) }
		policy := func(name string) string { return fmt.Sprintf("policy=%q", name) }
		injected, _ := secondOfServer.value("apiserver_mutating_admission_policy_check_total",
			`error_type="no_error"`, policy("nslifecycle-inject"), binding("nslifecycle-inject"))
		Expect(injected).To(BeNumerically(">=", 16), "the namespaces of two rounds")
		refused, _ := secondOfServer.value("apiserver_validating_admission_policy_check_total",
			`enforcement_action="deny"`, `error_type="invalid_error"`, policy("nslifecycle-gate"), binding("nslifecycle-gate"))
		Expect(refused).To(Equal(2.0))
	})

	It("lists each line that tells of a transition, with its keys", func() {
		wanted := documented(operate, logRow, "")
		logged := map[string]described{}
		for _, line := range leader.logged("") {
			if !strings.HasPrefix(line["controller"].(string), "namespace-") {
				continue
			}
			message := line["msg"].(string)
			keys := slices.Sorted(maps.Keys(line))
			keys = slices.DeleteFunc(keys, func(key string) bool {
				return slices.Contains([]string{"level", "ts", "msg", "controller", "controllerGroup", "controllerKind",
					"Namespace", "namespace", "name", "reconcileID"}, key)
			})
			if isChore(message) {
				continue
			}
			logged[message] = described{Type: line["level"].(string), Labels: keys}
		}
		Expect(logged).To(Equal(wanted))
	})
})

// isChore tells whether a line is about no transition of the namespace.
func isChore(message string) bool {
	return message == "Chose the grace period of terminating namespaces"
}

var _ = Describe("The metrics", func() {
	It("are for those who may read them", func(ctx context.Context) {
		for token, status := range map[string]int{
			"": http.StatusUnauthorized, stranger: http.StatusForbidden, scraper: http.StatusOK,
		} {
			response, err := leader.get(ctx, token, "text/plain")
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			Expect(response).To(HaveHTTPStatus(status))
		}
	})

	It("are the leader's alone", func(ctx context.Context) {
		standby := startManager(ctx)
		var scraped families
		Eventually(func(g Gomega) {
			scraped = parse(g, standby.text(g, ctx))
			g.Expect(scraped).To(HaveKey("leader_election_master_status"))
		}).WithContext(ctx).Should(Succeed())
		for name, family := range scraped {
			// Every manager says which it is.
			if !strings.HasPrefix(name, own) || name == own+"build_info" {
				continue
			}
			Expect(family.GetType()).NotTo(Equal(dto.MetricType_GAUGE), name)
			for _, metric := range family.GetMetric() {
				value, _ := scraped.value(name, labelsOf(metric)...)
				Expect(value).To(BeZero(), name)
			}
		}
		// What the alert that there is no leader goes by.
		for metrics, want := range map[*families]float64{&scraped: 0, &second: 1} {
			isLeader, isThere := metrics.value("leader_election_master_status", `name="nslifecycle.dev"`)
			Expect(isThere).To(BeTrue())
			Expect(isLeader).To(Equal(want))
		}
	})

	It("follow the conventions of Prometheus", func(ctx context.Context) {
		var ours strings.Builder
		for line := range strings.Lines(leader.text(Default, ctx)) {
			if strings.Contains(line, own) {
				ours.WriteString(line)
			}
		}
		output, err := promtool(ctx, ours.String(), "check", "metrics")
		Expect(err).NotTo(HaveOccurred())
		Expect(output).To(BeEmpty())
	})

	It("have durations as native histograms too", func(ctx context.Context) {
		format := expfmt.NewFormat(expfmt.TypeProtoDelim)
		response, err := leader.get(ctx, scraper, string(format))
		Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		decoder := expfmt.NewDecoder(response.Body, format)
		native := map[string]bool{}
		for {
			var family dto.MetricFamily
			if err := decoder.Decode(&family); err != nil {
				break
			}
			if strings.HasPrefix(family.GetName(), own) && family.GetType() == dto.MetricType_HISTOGRAM {
				histogram := family.GetMetric()[0].GetHistogram()
				native[family.GetName()] = len(histogram.GetPositiveSpan()) > 0 && len(histogram.GetBucket()) > 0
			}
		}
		Expect(native).To(Equal(map[string]bool{
			own + "initialization_duration_seconds": true, own + "finalization_duration_seconds": true,
			own + "diagnosis_duration_seconds": true,
		}))
	})

	It("count the lives that were led", func() {
		expected := []struct {
			name   string
			labels []string
			first  float64
			second float64
		}{
			// Those that end, the tokenless and the blocked one, and the late one get open, and those
			// that an initializer was skipped for.
			{own + "initialization_duration_seconds", []string{`outcome="completed"`}, 7, 14},
			{own + "initialization_duration_seconds", []string{`outcome="failed"`}, 2, 4},
			{own + "initializers_skipped_total", []string{`reason="TimedOut"`}, 1, 2},
			{own + "initializers_skipped_total", []string{`reason="Deregistered"`}, 1, 2},
			{own + "initialization_duration_seconds", []string{`outcome="deleted"`}, 1, 2},
			{own + "finalization_duration_seconds", []string{`outcome="released"`}, 4, 8},
			{own + "finalization_duration_seconds", []string{`outcome="overtaken"`}, 1, 2},
			{own + "namespaces_initializing", []string{`initializer="` + quota + `"`}, 1, 2},
			{own + "namespaces_initializing", []string{`initializer="` + policy + `"`}, 0, 0},
			{own + "namespaces_terminating", []string{`state="remaining"`}, 1, 2},
			{own + "namespaces_terminating", []string{`state="emptying"`}, 0, 0},
			{own + "namespaces_blocked", []string{`cause="InitializerNotRunning"`, `stage="Initializing"`}, 1, 2},
			{own + "namespaces_blocked", []string{`cause="FinalizerPending"`, `stage="Terminating"`}, 1, 2},
			{own + "configurations", []string{`active="True"`}, 1, 1},
			{own + "effective_set_status", []string{`reason="Enforced"`}, 1, 1},
			{own + "effective_set_status", []string{`reason="PolicyMissing"`}, 0, 0},
			{own + "settling_time_seconds", nil, 1, 1},
			{own + "objects_deleted_total", nil, configMaps + 2, 2*configMaps + 4},
		}
		for _, expect := range expected {
			for i, want := range []float64{expect.first, expect.second} {
				got, isThere := []families{first, second}[i].value(expect.name, expect.labels...)
				Expect(isThere).To(BeTrue(), "%s%v", expect.name, expect.labels)
				Expect(got).To(Equal(want), "%s%v after round %d", expect.name, expect.labels, i+1)
			}
		}
		for _, purpose := range []string{"shared_list", "list", "confirm", "delete"} {
			count, _ := second.value(own+"finalization_requests_total", `purpose="`+purpose+`"`)
			Expect(count).To(BeNumerically(">", 0), purpose)
		}
		answers, _ := second.value(own + "shared_list_requests_total")
		Expect(answers).To(BeNumerically(">", 0))
	})
})

var _ = Describe("The log", func() {
	// transitions returns in words what each controller tells of a namespace, in order. The
	// controllers do not wait for each other.
	transitions := func(name string) map[string][]string {
		words := map[string][]string{}
		for _, line := range leader.logged(name) {
			if isChore(line["msg"].(string)) {
				continue
			}
			word := line["msg"].(string)
			for _, key := range []string{"reason", "condition", "status", "finding"} {
				if value, isThere := line[key].(string); isThere {
					word += " " + value
				}
			}
			if line["reason"] == "Pending" {
				word += " " + line["pending"].([]any)[0].(string)
			}
			controller := line["controller"].(string)
			words[controller] = append(words[controller], word)
		}
		return words
	}
	const (
		began = "Initialization has moved on Pending " + quota
		next  = "Initialization has moved on Pending " + policy
		open  = "Initialization has moved on Completed"

		turnOfLate = "Initialization has moved on Pending " + late

		dies     = "Started finalization"
		released = "Removed the namespace finalizer from an empty namespace"
		remains  = "A finalization condition changed NamespaceContentRemaining True"
		held     = "A finalization condition changed NamespaceFinalizersRemaining True"
		found    = "Found out why the namespace does not get on"
		goesOn   = "The namespace gets on again nslifecycle.dev/InitializationBlocked"
	)
	DescribeTable("tells each transition of a life once",
		func(name string, births, deaths []string, lastFinding string) {
			told := transitions("first-" + name)
			Expect(told["namespace-initialization"]).To(Equal(births))
			Expect(told["namespace-finalization"]).To(Equal(deaths))
			// On a slow machine any may stand still for a moment between two steps of the spec,
			// and get on again: how often is not known, but nothing is told twice.
			standstills := told["namespace-diagnosis"]
			Expect(slices.Compact(slices.Clone(standstills))).To(Equal(standstills))
			if lastFinding != "" {
				Expect(standstills).To(ContainElement(HavePrefix(found)))
				Expect(standstills[len(standstills)-1]).To(HavePrefix(lastFinding))
			}
		},
		Entry("a whole life", "completed", []string{began, next, open}, []string{dies, released}, ""),
		Entry("a failure", "failed", []string{
			began, "Initialization has moved on Failed", "Deleted a namespace whose initialization failed",
		}, []string{dies, released}, ""),
		Entry("a time-out that is ignored", "skipped", []string{
			began, next, turnOfLate, "Went on without initializers TimedOut", open,
		}, nil, ""),
		Entry("a time-out that is not", "expired", []string{
			began, next, turnOfLate, "Failed an initialization, since its time was over",
			"Initialization has moved on Failed", "Deleted a namespace whose initialization failed",
		}, []string{dies, released}, ""),
		Entry("a deregistration", "dropped", []string{
			began, next, turnOfLate, "Went on without initializers Deregistered", open,
		}, nil, ""),
		Entry("a deletion of what waits", "deleted", []string{began}, []string{dies, released}, ""),
		Entry("an end by somebody else's hand", "overtaken", []string{began, next, open}, []string{
			dies, remains, held, "Another controller finalized the namespace",
		}, ""),
		Entry("an end without a token", "tokenless", []string{began, next, open},
			[]string{"Deleted a terminating namespace without namespace finalizers"}, ""),
		Entry("a standstill that is over", "late", []string{began, next, open}, nil, goesOn),
		Entry("an end that is blocked", "blocked", []string{began, next, open}, []string{dies, remains, held},
			found),
	)
})

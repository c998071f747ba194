// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observability

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

	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const own = "nslifecycle_"

// described is the type and the labels of a metric, or the level and the keys of a log line.
type described struct {
	Type   string
	Labels []string
}

var (
	metricRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*)\\|")
	logRow    = regexp.MustCompile("(?m)^\\| `([A-Z][^`]+)` \\| ([a-z]+) \\| ([^|]*)\\|")
	quoted    = regexp.MustCompile("`([^`]+)`")
)

// readFile returns the content of a file in the repository.
func readFile(path ...string) string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(append([]string{controlplane.Root()}, path...)...))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

// The page that lists the project's own metrics, and the page that lists other metrics and log lines.
const (
	reference = "reference/metrics.md"
	operate   = "operate.md"
)

// documented returns the table rows in a documentation page whose first cell has the prefix.
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

// emitted returns the metrics whose names have the prefix. All metrics of a family must have
// the same labels.
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
	It("lists exactly the project's own metrics", func() {
		Expect(emitted(second, own)).To(Equal(documented(reference, metricRow, own)))
		Expect(documented(reference, metricRow, own)).NotTo(BeEmpty())
	})

	It("names metrics of the API server that count evaluations and rejections", func() {
		binding := func(name string) string { return fmt.Sprintf("policy_binding=%q", name) }
		policy := func(name string) string { return fmt.Sprintf("policy=%q", name) }
		injected, _ := secondOfServer.value("apiserver_mutating_admission_policy_check_total",
			`error_type="no_error"`, policy("nslifecycle-inject"), binding("nslifecycle-inject"))
		Expect(injected).To(BeNumerically(">=", 16), "the namespaces of both rounds")
		rejected, _ := secondOfServer.value("apiserver_validating_admission_policy_check_total",
			`enforcement_action="deny"`, `error_type="invalid_error"`, policy("nslifecycle-gate"), binding("nslifecycle-gate"))
		Expect(rejected).To(Equal(2.0))
	})

	It("lists each log line about a state transition, with its keys", func() {
		wanted := documented(operate, logRow, "")
		logged := map[string]described{}
		for _, line := range leader.logged("") {
			controller, isOfController := line["controller"].(string)
			isOfTemplates := slices.Contains([]string{"template-initialization", "templated-namespace"}, controller)
			if !isOfController || !strings.HasPrefix(controller, "namespace-") && !isOfTemplates {
				continue
			}
			message := line["msg"].(string)
			keys := slices.Sorted(maps.Keys(line))
			keys = slices.DeleteFunc(keys, func(key string) bool {
				return slices.Contains([]string{"level", "ts", "msg", "controller", "controllerGroup", "controllerKind",
					"Namespace", "namespace", "name", "reconcileID"}, key)
			})
			if isUnrelated(message) {
				continue
			}
			logged[message] = described{Type: line["level"].(string), Labels: keys}
		}
		Expect(logged).To(Equal(wanted))
	})
})

// isUnrelated reports whether a log line is unrelated to a state transition of the namespace.
func isUnrelated(message string) bool {
	return message == "Chose the grace period of terminating namespaces"
}

var _ = Describe("The metrics", func() {
	It("require authentication and authorization", func(ctx context.Context) {
		for token, status := range map[string]int{
			"": http.StatusUnauthorized, unauthorized: http.StatusForbidden, scraper: http.StatusOK,
		} {
			response, err := leader.get(ctx, token, "text/plain")
			Expect(err).NotTo(HaveOccurred())
			Expect(response.Body.Close()).To(Succeed())
			Expect(response).To(HaveHTTPStatus(status))
		}
	})

	It("are recorded only by the leader", func(ctx context.Context) {
		standby := startManager(ctx)
		var scraped families
		Eventually(func(g Gomega) {
			scraped = parse(g, standby.text(g, ctx))
			g.Expect(scraped).To(HaveKey("leader_election_master_status"))
		}).WithContext(ctx).Should(Succeed())
		cluster.Admin.Creates(ctx, wrappers.MakeNamespace("standby").Obj())
		remove(ctx, "standby")
		expectDeleted(ctx, "standby")
		scraped = standby.scrape(ctx)
		for name, family := range scraped {
			// Every manager exposes its build information and the writes that it holds.
			if !strings.HasPrefix(name, own) || name == own+"build_info" || name == own+"hold_writes" {
				continue
			}
			Expect(family.GetType()).NotTo(Equal(dto.MetricType_GAUGE), name)
			for _, metric := range family.GetMetric() {
				value, _ := scraped.value(name, labelsOf(metric)...)
				Expect(value).To(BeZero(), name)
			}
		}
		// The NslifecycleNoLeader alert uses this metric.
		for metrics, want := range map[*families]float64{&scraped: 0, &second: 1} {
			isLeader, ok := metrics.value("leader_election_master_status", `name="nslifecycle.dev"`)
			Expect(ok).To(BeTrue())
			Expect(isLeader).To(Equal(want))
		}
	})

	It("follow the Prometheus naming conventions", func(ctx context.Context) {
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

	It("also expose durations as native histograms", func(ctx context.Context) {
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
				// No write was held, so this histogram has no native buckets.
				isFilled := len(histogram.GetPositiveSpan()) > 0 || family.GetName() == own+"hold_duration_seconds"
				native[family.GetName()] = isFilled && len(histogram.GetBucket()) > 0
			}
		}
		Expect(native).To(Equal(map[string]bool{
			own + "initialization_duration_seconds": true, own + "finalization_duration_seconds": true,
			own + "diagnosis_duration_seconds": true, own + "hold_duration_seconds": true,
			own + "template_apply_duration_seconds": true,
		}))
	})

	It("count initializations and finalizations", func() {
		expected := []struct {
			name   string
			labels []string
			first  float64
			second float64
		}{
			// Eight namespaces are initialized in each round: templated, completed, superseded, unfinalized, late
			// and blocked, and skipped and deregistered, whose initializer is skipped.
			{own + "initialization_duration_seconds", []string{`outcome="Initialized"`}, 8, 16},
			{own + "initialization_duration_seconds", []string{`outcome="Failed"`}, 2, 4},
			{own + "initializers_skipped_total", []string{`reason="TimedOut"`}, 1, 2},
			{own + "initializers_skipped_total", []string{`reason="Deregistered"`}, 1, 2},
			{own + "initialization_duration_seconds", []string{`outcome="Deleted"`}, 1, 2},
			{own + "finalization_duration_seconds", []string{`outcome="Released"`}, 6, 12},
			{own + "finalization_duration_seconds", []string{`outcome="Superseded"`}, 1, 2},
			{own + "namespaces_initializing", []string{`initializer="` + quota + `"`}, 1, 2},
			{own + "namespaces_initializing", []string{`initializer="` + policy + `"`}, 0, 0},
			{own + "namespaces_terminating", []string{`reason="ObjectsRemain"`}, 1, 2},
			{own + "namespaces_terminating", []string{`reason="Deleting"`}, 0, 0},
			{own + "namespaces_blocked", []string{`cause="InitializerNotRunning"`, `state="Initializing"`}, 1, 2},
			{own + "namespaces_blocked", []string{`cause="FinalizerPending"`, `state="Terminating"`}, 1, 2},
			{own + "configurations", []string{`active="True"`}, 1, 1},
			{own + "effective_set_status", []string{`reason="Enforced"`}, 1, 1},
			{own + "effective_set_status", []string{`reason="PolicyMissing"`}, 0, 0},
			{own + "finalization_grace_period_seconds", nil, 1, 1},
			{own + "finalization_objects_deleted_total", nil, configMaps + 3, 2*configMaps + 6},
			{own + "template_apply_duration_seconds", nil, 1, 2},
			{own + "template_writes_total", []string{`action="Create"`, `template="team"`}, 1, 2},
			{own + "template_writes_total", []string{`action="Delete"`, `template="team"`}, 0, 0},
			{own + "template_namespaces", []string{`state="Conflicted"`, `template="team"`}, 0, 0},
			{own + "template_rollout_paused", []string{`reason="Paused"`, `template="team"`}, 0, 0},
		}
		for _, expect := range expected {
			for i, want := range []float64{expect.first, expect.second} {
				got, ok := []families{first, second}[i].value(expect.name, expect.labels...)
				Expect(ok).To(BeTrue(), "%s%v", expect.name, expect.labels)
				Expect(got).To(Equal(want), "%s%v after round %d", expect.name, expect.labels, i+1)
			}
		}
		for _, purpose := range []string{"SharedList", "List", "Confirm", "Delete"} {
			count, _ := second.value(own+"finalization_requests_total", `purpose="`+purpose+`"`)
			Expect(count).To(BeNumerically(">", 0), purpose)
		}
		restored, _ := second.value(own+"template_writes_total", `action="Restore"`, `template="team"`)
		Expect(restored).To(BeNumerically(">=", 6), "three restorations in each round")
		conflicts, _ := second.value(own+"template_conflicts_total", `template="team"`)
		Expect(conflicts).To(BeNumerically(">=", 2))
		requests, _ := second.value(own + "finalization_shared_list_requests_total")
		Expect(requests).To(BeNumerically(">", 0))
		requests, _ = second.value(own + "diagnosis_requests_total")
		Expect(requests).To(BeNumerically(">", 0))
		diagnoses, _ := second.value(own+"diagnoses_total", `result="Blocked"`)
		Expect(diagnoses).To(BeNumerically(">", 0))
	})
})

var _ = Describe("The log", func() {
	// transitions returns each controller's log lines about a namespace, in order. The
	// controllers work concurrently.
	transitions := func(name string) map[string][]string {
		lines := map[string][]string{}
		for _, line := range leader.logged(name) {
			if isUnrelated(line["msg"].(string)) {
				continue
			}
			text := line["msg"].(string)
			for _, key := range []string{"reason", "condition", "status", "finding"} {
				if value, ok := line[key].(string); ok {
					text += " " + value
				}
			}
			if line["reason"] == "Initializing" {
				text += " " + line["pending"].([]any)[0].(string)
			}
			controller := line["controller"].(string)
			lines[controller] = append(lines[controller], text)
		}
		return lines
	}
	const (
		began     = "Initialization progressed Initializing " + quota
		next      = "Initialization progressed Initializing " + policy
		completed = "Initialization progressed Initialized"

		pendingLate = "Initialization progressed Initializing " + late

		started  = "Started finalization"
		released = "Removed the namespace finalizer from an empty namespace"
		content  = "A finalization condition changed NamespaceContentRemaining True"
		held     = "A finalization condition changed NamespaceFinalizersRemaining True"
		found    = "Diagnosed blocked namespace"
		resumed  = "The namespace is making progress again nslifecycle.dev/InitializationBlocked"
	)
	DescribeTable("records each state transition once",
		func(name string, initialization, finalization []string, lastFinding string) {
			logged := transitions("first-" + name)
			Expect(logged["namespace-initialization"]).To(Equal(initialization))
			Expect(logged["namespace-finalization"]).To(Equal(finalization))
			// On a slow machine, any namespace can exceed the progress deadline between two steps of
			// the spec. The number of lines varies, but no line is repeated.
			diagnoses := logged["namespace-diagnosis"]
			Expect(slices.Compact(slices.Clone(diagnoses))).To(Equal(diagnoses))
			if lastFinding != "" {
				Expect(diagnoses).To(ContainElement(HavePrefix(found)))
				Expect(diagnoses[len(diagnoses)-1]).To(HavePrefix(lastFinding))
			}
		},
		Entry("a completed initialization and deletion", "completed", []string{began, next, completed}, []string{started, released}, ""),
		Entry("a failed initialization", "failed", []string{
			began, "Initialization progressed Failed", "Deleted a namespace whose initialization failed",
		}, []string{started, released}, ""),
		Entry("a timeout with the failure policy Ignore", "skipped", []string{
			began, next, pendingLate, "Skipped initializers TimedOut", completed,
		}, nil, ""),
		Entry("a timeout with the failure policy Fail", "expired", []string{
			began, next, pendingLate, "Failed an initialization that timed out",
			"Initialization progressed Failed", "Deleted a namespace whose initialization failed",
		}, []string{started, released}, ""),
		Entry("a deregistered initializer", "deregistered", []string{
			began, next, pendingLate, "Skipped initializers Deregistered", completed,
		}, nil, ""),
		Entry("the deletion of an initializing namespace", "deleted", []string{began}, []string{started, released}, ""),
		Entry("a finalization by another controller", "superseded", []string{began, next, completed}, []string{
			started, content, held, "Another controller finalized the namespace",
		}, ""),
		Entry("a deletion without namespace finalizers", "unfinalized", []string{began, next, completed},
			[]string{"Added the namespace finalizer to a terminating namespace without finalizers", started, released}, ""),
		Entry("an initialization that makes progress again", "late", []string{began, next, completed}, nil, resumed),
		Entry("a blocked deletion", "blocked", []string{began, next, completed}, []string{started, content, held},
			found),
	)
})

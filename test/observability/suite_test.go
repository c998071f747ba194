// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observability

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/onsi/gomega/types"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/initializers"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var (
	cluster *framework.Cluster
	// leader is the manager whose metrics and logs the specs check, and admission runs the controller admission.
	leader, admission *process
	// first and second are the leader's metrics after the first and second round of lifecycles.
	first, second families
	// firstOfServer and secondOfServer are the API server's metrics at the same times.
	firstOfServer, secondOfServer families
)

func TestObservability(t *testing.T) {
	framework.RunSuite(t, "Observability")
}

var _ = BeforeSuite(func(ctx context.Context) {
	cluster = framework.StartControlPlane(ctx)
	Expect(cluster.ControlPlane.Install(ctx)).To(Succeed())

	build(ctx)
	leader = startManager(ctx)
	admission = startProcess(ctx, controlplane.AdmissionAccount, "--controllers=admission",
		"--leader-elect-resource-name=admission.nslifecycle.dev")
	cluster.Admin.Creates(ctx, wrappers.MakeConfiguration("test").Initializers(quota, policy).Obj())
	cluster.ExpectActive(ctx, "test")
	registerTemplate(ctx)
	runLifecycles(ctx, "first")
	first, firstOfServer = leader.scrape(ctx), scrapeServer(ctx)
	runLifecycles(ctx, "second")
	second, secondOfServer = leader.scrape(ctx), scrapeServer(ctx)
}, NodeTimeout(20*time.Minute))

// scrapeServer returns the API server's admission policy metrics.
func scrapeServer(ctx context.Context) families {
	GinkgoHelper()
	text, err := cluster.Kubectl(ctx, cluster.Admin.Config, "get", "--raw=/metrics")
	Expect(err).NotTo(HaveOccurred())
	var admission strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, "apiserver_mutating_admission_policy_") ||
			strings.Contains(line, "apiserver_validating_admission_policy_") {
			admission.WriteString(line)
		}
	}
	return parse(Default, admission.String())
}

// promtool runs the promtool that `make promtool` builds, and returns its output.
func promtool(ctx context.Context, input string, args ...string) (string, error) {
	return run(exec.CommandContext(ctx, filepath.Join(controlplane.Root(), "bin", "promtool"), args...), input)
}

// families are metric families by name.
type families map[string]*dto.MetricFamily

// process is a running manager.
type process struct {
	*gexec.Session
	address string
}

// scraper is the bearer token of a ServiceAccount that is authorized to read metrics. unauthorized
// is the token of a ServiceAccount that is authorized only to create ConfigMaps.
var scraper, unauthorized string

// binary returns the path of the manager's binary.
func binary() string { return filepath.Join(cluster.Dir, "manager") }

// build builds the manager and creates the ServiceAccounts that request its metrics.
func build(ctx context.Context) {
	GinkgoHelper()
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.ManagerProgram, binary())).To(Succeed())
	scraper, unauthorized = newToken(ctx, "scraper"), newToken(ctx, "unauthorized")
	cluster.Bind(ctx, "unauthorized", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
	}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: "unauthorized"})
	_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "create", "clusterrolebinding", "scraper", "--clusterrole=nslifecycle-metrics-reader",
		"--serviceaccount="+controlplane.SystemNamespace+":scraper")
	Expect(err).NotTo(HaveOccurred())
}

// startManager runs the manager until the end of the spec or suite.
func startManager(ctx context.Context) *process {
	GinkgoHelper()
	return startProcess(ctx, controlplane.ServiceAccount, controlplane.WithoutAdmission, "--diagnosis-progress-deadline=1s")
}

// startProcess runs a Deployment of config/default with its ServiceAccount.
func startProcess(ctx context.Context, account string, flags ...string) *process {
	GinkgoHelper()
	config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, account)
	Expect(err).NotTo(HaveOccurred())
	address := framework.FreeAddress()
	return &process{address: address, Session: framework.StartProcess(exec.Command(binary(), append([]string{
		"--kubeconfig=" + framework.KubeconfigFile(config), "--leader-elect", "--health-probe-bind-address=0",
		"--metrics-bind-address=" + address,
	}, flags...)...))}
}

// newToken creates a ServiceAccount and returns a bearer token for it.
func newToken(ctx context.Context, name string) string {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: name}}
	cluster.Admin.Creates(ctx, account)
	config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, name)
	Expect(err).NotTo(HaveOccurred())
	return config.BearerToken
}

// get requests the metrics with a bearer token, in the given format.
func (p *process) get(ctx context.Context, token, format string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	request.Header.Set("Accept", format)
	// The manager's certificate is self-signed.
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer insecure.CloseIdleConnections()
	return insecure.Do(request)
}

// text returns the metrics in the text format.
func (p *process) text(g Gomega, ctx context.Context) string {
	response, err := p.get(ctx, scraper, "text/plain")
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	g.Expect(response).To(HaveHTTPStatus(http.StatusOK))
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return string(body)
}

func (p *process) scrape(ctx context.Context) families {
	GinkgoHelper()
	return parse(Default, p.text(Default, ctx))
}

func parse(g Gomega, text string) families {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(text))
	g.Expect(err).NotTo(HaveOccurred())
	return parsed
}

// value returns the value of the counter or gauge, or the count of the histogram, with the given
// labels, and reports whether the metric exists.
func (f families) value(name string, labels ...string) (float64, bool) {
	for _, metric := range f[name].GetMetric() {
		if found := labelsOf(metric); strings.Join(found, ",") == strings.Join(labels, ",") {
			switch f[name].GetType() {
			case dto.MetricType_COUNTER:
				return metric.GetCounter().GetValue(), true
			case dto.MetricType_GAUGE:
				return metric.GetGauge().GetValue(), true
			case dto.MetricType_HISTOGRAM:
				return float64(metric.GetHistogram().GetSampleCount()), true
			}
		}
	}
	return 0, false
}

// labelsOf returns labels in the form cause="x", sorted by name.
func labelsOf(metric *dto.Metric) []string {
	var labels []string
	for _, label := range metric.GetLabel() {
		labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
	}
	return labels
}

// logged returns the log lines about the named namespace, or about all namespaces if name is empty.
func (p *process) logged(name string) []map[string]any {
	GinkgoHelper()
	var lines []map[string]any
	for line := range bytes.Lines(p.Err.Contents()) {
		var fields map[string]any
		if !bytes.HasSuffix(line, []byte("\n")) || !bytes.HasPrefix(line, []byte("{")) {
			continue
		}
		Expect(json.Unmarshal(line, &fields)).To(Succeed(), string(line))
		if named, ok := fields["name"].(string); ok && (name == "" || named == name) {
			lines = append(lines, fields)
		}
	}
	return lines
}

// run runs a command and returns its output. If the command fails, the error contains the output.
func run(command *exec.Cmd, input string) (string, error) {
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, output)
	}
	return string(output), err
}

// The specs act as these initializers.
const (
	quota  = "quota.test.example.com"
	policy = "policy.test.example.com"
	// late is an initializer that never runs.
	late = "late.test.example.com"
	// configMaps is the number of ConfigMaps in each namespace whose name ends with "completed".
	configMaps = 3
)

// registerTemplate creates a template, and waits until the API server selects new namespaces with it.
func registerTemplate(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		_, err := cluster.KubectlWithInput(
			ctx, cluster.Admin.Config, readFile("test", "observability", "testdata", "template.yaml"), "apply", "--filename=-")
		return err
	}).WithContext(ctx).Should(Succeed())
	Eventually(func(g Gomega) {
		probe := wrappers.MakeNamespace("probe").Label("team", "true").Obj()
		g.Expect(cluster.Admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(framework.PendingOf(probe)).To(ContainSubstring(v1alpha1.TemplatesInitializer))
	}).WithContext(ctx).Should(Succeed())
}

// applyTemplate creates a namespace with the template, and changes the object of the template until the
// operator reports a conflict.
func applyTemplate(ctx context.Context, name string) {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(name).Label("team", "true").Obj()
	cluster.Admin.Creates(ctx, namespace)
	finishAll(ctx, name)
	key := client.ObjectKey{Name: "team"}
	template := &v1alpha1.NamespaceTemplate{}
	Eventually(func(g Gomega) {
		settings := wrappers.MakeConfigMap(name, "settings")
		settings.Data = map[string]string{"team": "other"}
		g.Expect(cluster.Admin.Update(ctx, settings)).To(Succeed())
		g.Expect(cluster.Admin.Get(ctx, key, template)).To(Succeed())
		g.Expect(template.Status.Namespaces).NotTo(BeNil())
		g.Expect(template.Status.Namespaces.Conflicted).To(BeEquivalentTo(1))
	}).WithContext(ctx).Should(Succeed())
	remove(ctx, name)
	expectDeleted(ctx, name)
	Eventually(func(g Gomega) {
		g.Expect(cluster.Admin.Get(ctx, key, template)).To(Succeed())
		g.Expect(template.Status.Namespaces.Desired).To(BeZero())
	}).WithContext(ctx).Should(Succeed())
}

// skipLateInitializer creates namespaces whose initializer times out under each failure policy,
// and one whose initializer is deregistered. It deletes its configuration afterwards.
func skipLateInitializer(ctx context.Context, prefix string) {
	GinkgoHelper()
	name := func(suffix string) string { return prefix + "-" + suffix }
	configuration := wrappers.MakeConfiguration("test-" + prefix).Initializers(late).Obj()
	change := func(seconds *int32, failurePolicy v1alpha1.FailurePolicy) {
		configuration.Initializers[0].TimeoutSeconds = seconds
		configuration.Initializers[0].FailurePolicy = failurePolicy
	}
	update := func(seconds *int32, failurePolicy v1alpha1.FailurePolicy) {
		Eventually(func() error {
			if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
				return err
			}
			change(seconds, failurePolicy)
			return cluster.Admin.Update(ctx, configuration)
		}).WithContext(ctx).Should(Succeed())
		cluster.ExpectActive(ctx, configuration.Name)
	}
	change(ptr.To[int32](1), v1alpha1.FailurePolicyIgnore)
	cluster.Admin.Creates(ctx, configuration)
	cluster.ExpectActive(ctx, configuration.Name)
	isInitialized := matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse, v1alpha1.ReasonInitialized)

	By("skipping an initializer that timed out")
	startInitialization(ctx, name("skipped"))
	finishAll(ctx, name("skipped"))
	eventually(ctx, name("skipped"), isInitialized)

	By("failing an initialization that timed out")
	update(ptr.To[int32](1), v1alpha1.FailurePolicyFail)
	startInitialization(ctx, name("expired"))
	finishAll(ctx, name("expired"))
	expectDeleted(ctx, name("expired"))

	By("skipping a deregistered initializer")
	update(nil, "")
	startInitialization(ctx, name("deregistered"))
	finishAll(ctx, name("deregistered"))
	eventually(ctx, name("deregistered"), matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionTrue,
		v1alpha1.ReasonInitializing, late))
	cluster.Admin.Deletes(ctx, configuration)
	eventually(ctx, name("deregistered"), isInitialized)
}

// runLifecycles creates a namespace for each outcome of initialization and finalization. Two of the
// namespaces remain: one waits for an initializer, and the deletion of the other is blocked.
func runLifecycles(ctx context.Context, prefix string) {
	GinkgoHelper()
	name := func(suffix string) string { return prefix + "-" + suffix }
	skipLateInitializer(ctx, prefix)

	By("applying a template")
	applyTemplate(ctx, name("templated"))

	By("completing an initialization, and deleting the namespace")
	initialize(ctx, name("completed"))
	for i := range configMaps {
		cluster.Admin.Creates(ctx, wrappers.MakeConfigMap(name("completed"), fmt.Sprint("c", i)))
	}
	begin := time.Now()
	remove(ctx, name("completed"))
	expectDeleted(ctx, name("completed"))
	AddReportEntry("deletion took", time.Since(begin).String())

	By("failing an initialization")
	startInitialization(ctx, name("failed"))
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`,
		v1alpha1.AnnotationInitializationResult, `{"status":"Failure","message":"no budget"}`)
	cluster.Admin.Patches(ctx, wrappers.MakeNamespace(name("failed")).Obj(), patch)
	expectDeleted(ctx, name("failed"))

	By("deleting an initializing namespace")
	startInitialization(ctx, name("deleted"))
	remove(ctx, name("deleted"))
	expectDeleted(ctx, name("deleted"))

	By("finalizing a namespace as another controller")
	initialize(ctx, name("superseded"))
	hold(ctx, name("superseded"))
	remove(ctx, name("superseded"))
	eventually(ctx, name("superseded"), matchers.HaveCondition(corev1.NamespaceContentRemaining, corev1.ConditionTrue,
		"SomeResourcesRemain"))
	framework.SetNamespaceFinalizers(ctx, cluster.Admin, name("superseded"))
	expectDeleted(ctx, name("superseded"))

	By("deleting a namespace without namespace finalizers")
	initialize(ctx, name("unfinalized"))
	framework.SetNamespaceFinalizers(ctx, cluster.Admin, name("unfinalized"))
	remove(ctx, name("unfinalized"))
	expectDeleted(ctx, name("unfinalized"))

	By("completing a blocked initialization")
	startInitialization(ctx, name("late"))
	eventually(ctx, name("late"), isBlocked(v1alpha1.ConditionInitializationBlocked, corev1.ConditionTrue))
	finishAll(ctx, name("late"))
	eventually(ctx, name("late"), isBlocked(v1alpha1.ConditionInitializationBlocked, corev1.ConditionFalse))

	By("creating the namespaces that remain: one is initializing, and the deletion of the other is blocked")
	startInitialization(ctx, name("waiting"))
	writeEarly(ctx, name("waiting"))
	eventually(ctx, name("waiting"), isBlocked(v1alpha1.ConditionInitializationBlocked, corev1.ConditionTrue))
	initialize(ctx, name("blocked"))
	hold(ctx, name("blocked"))
	remove(ctx, name("blocked"))
	// The first diagnosis can precede the conditions of the finalization, and report another cause.
	eventually(ctx, name("blocked"), matchers.HaveCondition(v1alpha1.ConditionDeletionBlocked, corev1.ConditionTrue, "FinalizerPending"))
}

// writeEarly attempts a write that the gate must reject, as a user without the `initialize` verb.
func writeEarly(ctx context.Context, name string) {
	GinkgoHelper()
	config := rest.AnonymousClientConfig(cluster.Admin.Config)
	config.BearerToken = unauthorized
	Expect(framework.NewUser(config).Create(ctx, wrappers.MakeConfigMap(name, "early"))).
		To(MatchError(ContainSubstring("'nslifecycle-gate'")))
}

// startInitialization creates a namespace and waits until its initialization is pending.
func startInitialization(ctx context.Context, name string) {
	GinkgoHelper()
	cluster.Admin.Creates(ctx, wrappers.MakeNamespace(name).Obj())
	eventually(ctx, name, matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionTrue,
		v1alpha1.ReasonInitializing))
}

// initialize creates a namespace and completes its initialization.
func initialize(ctx context.Context, name string) {
	GinkgoHelper()
	startInitialization(ctx, name)
	finishAll(ctx, name)
	eventually(ctx, name, matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionFalse,
		v1alpha1.ReasonInitialized))
}

func finishAll(ctx context.Context, name string) {
	GinkgoHelper()
	finish(ctx, name, quota)
	// Wait for the condition, since two patches in quick succession can result in one watch event.
	eventually(ctx, name, matchers.HaveCondition(v1alpha1.ConditionInitializing, corev1.ConditionTrue,
		v1alpha1.ReasonInitializing, policy))
	finish(ctx, name, policy)
}

func finish(ctx context.Context, name, initializer string) {
	GinkgoHelper()
	Eventually(func(g Gomega) error {
		return initializers.Finish(ctx, cluster.Admin.Clientset(), cluster.GetNamespace(g, ctx, name), initializer)
	}).WithContext(ctx).Should(Succeed())
}

// hold creates an object with a finalizer that no controller removes.
func hold(ctx context.Context, name string) {
	GinkgoHelper()
	held := wrappers.MakeConfigMap(name, "held")
	held.Finalizers = []string{"test.example.com/hold"}
	cluster.Admin.Creates(ctx, held)
}

func remove(ctx context.Context, name string) {
	GinkgoHelper()
	cluster.Admin.Deletes(ctx, wrappers.MakeNamespace(name).Obj())
}

// isBlocked matches a namespace that has a diagnosis condition with the given type and status,
// regardless of the cause.
func isBlocked(conditionType corev1.NamespaceConditionType, status corev1.ConditionStatus) types.GomegaMatcher {
	return Satisfy(func(namespace *corev1.Namespace) bool {
		condition := nsobject.FindCondition(namespace, conditionType)
		return condition != nil && condition.Status == status
	})
}

func eventually(ctx context.Context, name string, matcher types.GomegaMatcher) {
	GinkgoHelper()
	Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(ctx, name).Should(matcher)
}

func expectDeleted(ctx context.Context, name string) {
	GinkgoHelper()
	framework.ExpectDeleted(ctx, cluster.Admin, wrappers.MakeNamespace(name).Obj())
}

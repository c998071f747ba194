// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

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
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

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
func binary() string { return filepath.Join(plane.Dir, "manager") }

// build builds the manager and creates the ServiceAccounts that request its metrics.
func build(ctx context.Context) {
	GinkgoHelper()
	Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.ManagerProgram, binary())).To(Succeed())
	scraper, unauthorized = newToken(ctx, "scraper"), newToken(ctx, "unauthorized")
	bind(ctx, "scraper", "nslifecycle-metrics-reader")
	Expect(admin.Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "writer"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}},
	})).To(Succeed())
	bind(ctx, "unauthorized", "writer")
}

// startManager runs the manager until the end of the spec or suite.
func startManager(ctx context.Context) *process {
	GinkgoHelper()
	config, err := plane.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
	Expect(err).NotTo(HaveOccurred())
	started := &process{address: framework.FreeAddress()}
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(controlplane.WriteKubeconfig(kubeconfig, config)).To(Succeed())
	started.Session, err = gexec.Start(exec.Command(binary(), "--kubeconfig="+kubeconfig, controlplane.WithoutAdmission, "--leader-elect",
		"--health-probe-bind-address=0", "--metrics-bind-address="+started.address, "--diagnosis-progress-deadline=1s"),
		GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { started.Terminate().Wait(30 * time.Second) })
	return started
}

// newToken creates a ServiceAccount and returns a bearer token for it.
func newToken(ctx context.Context, name string) string {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: name}}
	Expect(admin.Create(ctx, account)).To(Succeed())
	config, err := plane.ServiceAccountConfig(ctx, controlplane.SystemNamespace, name)
	Expect(err).NotTo(HaveOccurred())
	return config.BearerToken
}

// bind binds a ClusterRole to a ServiceAccount.
func bind(ctx context.Context, account, role string) {
	GinkgoHelper()
	Expect(admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: account},
		},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	})).To(Succeed())
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

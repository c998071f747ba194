// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var (
	plane *controlplane.ControlPlane
	// admin is a member of system:masters.
	admin client.Client
	// leader is the manager whose metrics and logs the specs check.
	leader *process
	// first and second are the leader's metrics after the first and second round of lifecycles.
	first, second families
	// firstOfServer and secondOfServer are the API server's metrics at the same times.
	firstOfServer, secondOfServer families
)

func TestMetrics(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Metrics")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()

	cluster := framework.StartControlPlane(ctx)
	plane, admin = cluster.ControlPlane, cluster.Admin
	Expect(plane.Install(ctx)).To(Succeed())

	build(ctx)
	leader = startManager(ctx)
	_, err := plane.StartAdmission(ctx)
	Expect(err).NotTo(HaveOccurred())
	register(ctx)
	registerTemplate(ctx)
	runLifecycles(ctx, "first")
	first, firstOfServer = leader.scrape(ctx), scrapeServer(ctx)
	runLifecycles(ctx, "second")
	second, secondOfServer = leader.scrape(ctx), scrapeServer(ctx)
}, NodeTimeout(20*time.Minute))

// scrapeServer returns the API server's admission policy metrics.
func scrapeServer(ctx context.Context) families {
	GinkgoHelper()
	text, err := plane.Kubectl(ctx, plane.Admin, "get", "--raw=/metrics")
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

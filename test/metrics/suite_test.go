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
	// leader is the manager whose metrics and logs are looked at.
	leader *process
	// first and second are its metrics after one round of lives and after another.
	first, second families
	// firstOfServer and secondOfServer are those of the API server at the same times.
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
	register(ctx)
	liveAndDie(ctx, "first")
	first, firstOfServer = leader.scrape(ctx), scrapeServer(ctx)
	liveAndDie(ctx, "second")
	second, secondOfServer = leader.scrape(ctx), scrapeServer(ctx)
}, NodeTimeout(10*time.Minute))

// scrapeServer returns the metrics of the API server's admission.
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

// promtool runs the one that `make promtool` builds, and returns what it says.
func promtool(ctx context.Context, input string, args ...string) (string, error) {
	return run(exec.CommandContext(ctx, filepath.Join(controlplane.Root(), "bin", "promtool"), args...), input)
}

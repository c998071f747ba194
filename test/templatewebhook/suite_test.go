// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templatewebhook

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// account is the ServiceAccount of the templates.
const account = "furnisher"

// cluster is shared by all specs.
var cluster *framework.Cluster

func TestTemplateWebhook(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Template webhook")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()
	cluster = framework.StartControlPlane(ctx)
	cluster.StartHoldingManager(ctx)
	Expect(cluster.Admin.Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: account},
	})).To(Succeed())
	waitForWebhook(ctx)
}, NodeTimeout(15*time.Minute))

// waitForWebhook waits until the API server calls the webhook.
func waitForWebhook(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() string {
		output, _ := apply(ctx, manifest("probe", clusterScoped), "--dry-run=server")
		return output
	}).WithContext(ctx).Should(ContainSubstring("is cluster-scoped"))
}

// restartManager starts the manager again, at another port.
func restartManager(ctx context.Context) {
	GinkgoHelper()
	cluster.RestartHoldingManager(ctx)
	waitForWebhook(ctx)
}

// manifest returns a NamespaceTemplate with the given objects, which selects no Namespaces.
func manifest(name string, templates ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: nslifecycle.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: %s}
spec:
  serviceAccountName: %s
  parameters: [{name: size}]
  objects:
`, name, account)
	for i, template := range templates {
		fmt.Fprintf(&text, "  - {name: o%d, template: %s}\n", i, template)
	}
	return text.String()
}

// apply runs kubectl apply, and returns what it prints.
func apply(ctx context.Context, manifest string, flags ...string) (string, error) {
	GinkgoHelper()
	command := cluster.KubectlCommand(ctx, framework.KubeconfigFile(cluster.Admin.Config),
		append([]string{"apply", "-f", "-"}, flags...)...)
	command.Stdin = strings.NewReader(manifest)
	output, err := command.CombinedOutput()
	return string(output), err
}

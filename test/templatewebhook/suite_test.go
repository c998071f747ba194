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
	"k8s.io/client-go/rest"

	"github.com/nslifecycle/nslifecycle/internal/hold"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// account is the ServiceAccount of the templates.
const account = "furnisher"

var (
	// cluster is shared by all specs.
	cluster *framework.Cluster
	options *hold.Options
)

func TestTemplateWebhook(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Template webhook")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()
	cluster = framework.StartControlPlane(ctx)
	options = cluster.StartHoldingManager(ctx)
	Expect(cluster.Admin.Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: account},
	})).To(Succeed())
	waitForWebhook(ctx)
}, NodeTimeout(5*time.Minute))

// waitForWebhook waits until the API server calls the webhook.
func waitForWebhook(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		return apply(ctx, manifest("probe", "{apiVersion: v1, kind: Namespace, metadata: {name: x}}"), "--dry-run=server")
	}).WithContext(ctx).Should(MatchError(ContainSubstring("cluster-scoped")))
}

// restartManager starts the manager again, at the same address.
func restartManager(ctx context.Context) {
	GinkgoHelper()
	cluster.StartManager(ctx, func(o *manager.Options) { o.Hold = options })
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

// apply runs kubectl apply.
func apply(ctx context.Context, manifest string, flags ...string) error {
	_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifest, append([]string{"apply", "-f", "-"}, flags...)...)
	return err
}

// recorder collects the warnings in responses.
type recorder []string

// HandleWarningHeader implements rest.WarningHandler.
func (r *recorder) HandleWarningHeader(_ int, _, text string) { *r = append(*r, text) }

// withWarnings returns an administrator whose warnings are recorded.
func withWarnings() (*framework.User, *recorder) {
	GinkgoHelper()
	warnings := &recorder{}
	config := rest.CopyConfig(cluster.Admin.Config)
	config.WarningHandler = warnings
	return framework.NewUser(config), warnings
}

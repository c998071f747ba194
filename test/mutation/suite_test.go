// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

const (
	first  = "first.test.example.com"
	second = "second.test.example.com"
)

// cluster is the control plane of the container that is running.
var cluster *framework.Cluster

func TestMutation(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Mutation")
}

var _ = BeforeSuite(func() {
	framework.ExpectNoLeaks()
	framework.SetDefaults()
})

// startCluster starts a control plane with this project, without a manager, until the container ends.
func startCluster(ctx context.Context, options ...controlplane.Option) {
	GinkgoHelper()
	cluster = framework.Start(ctx, options...)
	cluster.Install(ctx, "default")
}

// startManager runs the manager with its webhooks, at another address each time.
func startManager(ctx context.Context, changes ...func(*manager.Options)) {
	GinkgoHelper()
	webhooks, err := controlplane.HoldOptions()
	Expect(err).NotTo(HaveOccurred())
	serve := func(options *manager.Options) { options.Hold = webhooks }
	cluster.StartManager(ctx, append([]func(*manager.Options){serve}, changes...)...)
}

// configuration returns the configuration of the webhooks.
func configuration(g Gomega, ctx context.Context) *admissionv1.MutatingWebhookConfiguration {
	found := &admissionv1.MutatingWebhookConfiguration{}
	g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: v1alpha1.InjectConfiguration}, found)).To(Succeed())
	return found
}

// webhook returns one of the webhooks.
func webhook(g Gomega, ctx context.Context, name string) admissionv1.MutatingWebhook {
	for _, webhook := range configuration(g, ctx).Webhooks {
		if webhook.Name == name+".nslifecycle.dev" {
			return webhook
		}
	}
	g.Expect(name).To(Equal("the name of a webhook"))
	return admissionv1.MutatingWebhook{}
}

// expectWebhooks waits until the webhooks select requests, or none.
func expectWebhooks(ctx context.Context, selectRequests bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, webhook := range configuration(g, ctx).Webhooks {
			if selectRequests {
				g.Expect(webhook.Rules).NotTo(BeEmpty(), webhook.Name)
			} else {
				g.Expect(webhook.Rules).To(BeEmpty(), webhook.Name)
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// expectReason waits until the condition Active has the reason.
func expectReason(ctx context.Context, configuration *v1alpha1.NamespaceInitializerConfiguration, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
		active := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionActive)
		g.Expect(active).To(HaveField("Reason", reason))
	}).WithContext(ctx).Should(Succeed())
}

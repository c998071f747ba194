// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("A cluster in which the CustomResourceDefinitions are deleted and applied again", Ordered, func() {
	BeforeAll(func(ctx context.Context) { startCluster(ctx) }, NodeTimeout(5*time.Minute))

	// Without the CRDs, no initializer is registered and the inject policy does nothing: see
	// config/default/kustomization.yaml. While the configuration is active, every new namespace
	// must get the pending list.
	It("injects the pending list into every new namespace while the configuration is active", func(ctx context.Context) {
		configuration := wrappers.MakeConfiguration("crds").Initializers("absent.test.example.com").Obj()
		cluster.Admin.Creates(ctx, configuration)
		cluster.ExpectActive(ctx, "crds")
		expectFail(ctx)

		type outcome struct {
			sent, received time.Time
			what           string
		}
		var outcomes []outcome
		stop := make(chan struct{})
		var group sync.WaitGroup
		clientset := cluster.Ordinary.Clientset()
		group.Go(func() {
			defer GinkgoRecover()
			repeatUntil(stop, func() {
				sent := time.Now()
				created, err := clientset.CoreV1().Namespaces().Create(ctx,
					&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "crds-"}}, metav1.CreateOptions{})
				what := "with the pending list"
				switch {
				case err != nil:
					what = "rejected: " + err.Error()
				case created.Labels[v1alpha1.LabelInitializing] == "":
					what = "without the pending list"
				}
				outcomes = append(outcomes, outcome{sent, time.Now(), what})
				time.Sleep(20 * time.Millisecond)
			})
		})
		begin := time.Now()
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", "crd",
			"namespaceinitializersets.internal.nslifecycle.dev", "namespaceinitializerconfigurations.nslifecycle.dev")
		Expect(err).NotTo(HaveOccurred())
		deleted := time.Since(begin)
		_, err = cluster.Kubectl(ctx, cluster.Admin.Config, "apply", "-k", filepath.Join(controlplane.Root(), "config", "crd"))
		Expect(err).NotTo(HaveOccurred())
		applied := time.Since(begin)
		Eventually(func() error {
			return cluster.Admin.Create(ctx, wrappers.MakeConfiguration("crds").Initializers("absent.test.example.com").Obj())
		}).WithContext(ctx).Should(Succeed())
		registered := time.Since(begin)
		cluster.ExpectActive(ctx, "crds")
		active := time.Since(begin)
		time.Sleep(time.Second) // Create more namespaces while the configuration is active.
		close(stop)
		group.Wait()
		AddReportEntry("times", fmt.Sprintf("deleted %s, applied %s, registered %s, active %s", deleted, applied, registered, active))
		for _, one := range outcomes {
			if one.received.Before(begin) || one.sent.Sub(begin) > active {
				Expect(one.what).To(Equal("with the pending list"), "sent %s after the deletion", one.sent.Sub(begin))
			}
		}
		last, text, count := "", "", 0
		for _, one := range outcomes {
			if one.what != last {
				text += fmt.Sprintf(" (%d)\n%s %s", count, one.received.Sub(begin).Round(time.Millisecond), one.what)
				last, count = one.what, 0
			}
			count++
		}
		AddReportEntry("outcomes", text+fmt.Sprintf(" (%d)", count))
	}, SpecTimeout(5*time.Minute))
})

// expectFail makes the API server reject namespaces if inject fails.
func expectFail(ctx context.Context) {
	GinkgoHelper()
	if !framework.ServesPolicies(ctx, cluster.Admin.Config) {
		webhooks := &admissionregistrationv1.MutatingWebhookConfiguration{}
		Eventually(func(g Gomega) {
			g.Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: internalv1alpha1.InjectConfiguration}, webhooks)).To(Succeed())
			g.Expect(webhooks.Webhooks[0].FailurePolicy).To(HaveValue(Equal(admissionregistrationv1.Fail)))
		}).WithContext(ctx).Should(Succeed())
		return
	}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{}
	policy.Name = "nslifecycle-inject"
	cluster.Admin.Patches(ctx, policy, `{"spec":{"failurePolicy":"Fail"}}`)
	Eventually(func(g Gomega) { // API servers refresh policies once a second.
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
		g.Expect(policy.Spec.FailurePolicy).To(HaveValue(Equal(admissionregistrationv1.Fail)))
	}).WithContext(ctx).Should(Succeed())
}

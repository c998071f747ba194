// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("An object of another owner that prevents an object of a template", func() {
	AfterEach(restoreManager)

	// The delays add up to more than five seconds before they reach their limit.
	It("delays the object by at most five seconds after its deletion", func(ctx context.Context) {
		intercepted := restartManager(ctx, nil)
		template := newTemplate(framework.Unique("blocked"), only("config", configMap("config", "ours")),
			func(spec *v1alpha1.NamespaceTemplateSpec) { spec.ExistingNamespaces = true })
		namespace := selectedBy(template.Name)
		Expect(cluster.Admin.Create(ctx, namespace)).To(Succeed())
		blocking := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "config"}, Data: map[string]string{"key": "theirs"},
		}
		Expect(cluster.Admin.Create(ctx, blocking)).To(Succeed())
		create(ctx, template)
		attempts := 0
		Eventually(func() int {
			attempts += countContaining(intercepted.sent(), "/namespaces/"+namespace.Name+"/configmaps/config")
			return attempts
		}).WithContext(ctx).Should(BeNumerically(">=", 9))
		Expect(cluster.Admin.Delete(ctx, blocking)).To(Succeed())
		deleted := time.Now()
		expectValue(ctx, namespace, "config", "ours")
		Expect(time.Since(deleted)).To(BeNumerically("<", 8*time.Second))
	})
})

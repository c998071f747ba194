// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templateobjects

import (
	"context"
	"fmt"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("A template for new namespaces", func() {
	It("creates its objects before the creator can write, and the quota is enforced from the first write", func(ctx context.Context) {
		template := newTemplate(framework.Unique("team"))
		create(ctx, template)
		for range 5 {
			namespace := selectedBy(template.Name)
			Expect(creator.Create(ctx, namespace)).To(Succeed())
			// Eight clients of the creator write without pause.
			created := make([]int, 8)
			var writers sync.WaitGroup
			for writer := range created {
				writers.Go(func() {
					defer GinkgoRecover()
					for i := 0; created[writer] < 10 && ctx.Err() == nil; i++ {
						object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
							Namespace: namespace.Name, Name: fmt.Sprintf("cm-%d-%d", writer, i),
						}}
						err := creator.Create(ctx, object)
						if err == nil {
							created[writer]++
						}
						if isOverQuota(err) {
							return
						}
						Expect(ignoreForbidden(err)).To(Succeed())
					}
				})
			}
			writers.Wait()
			total := 0
			for _, n := range created {
				total += n
			}
			Expect(total).To(Equal(4), "the quota permits 4 ConfigMaps")
			expectOpen(ctx, namespace)
			get(ctx, namespace, "team", &corev1.LimitRange{})
			get(ctx, namespace, "default-deny", &networkingv1.NetworkPolicy{})
			Expect(get(ctx, namespace, "owner", &rbacv1.RoleBinding{}).Subjects[0].Name).To(Equal(alice))
		}
		expectCondition(ctx, template.Name, "Valid", metav1.ConditionTrue)
		expectCondition(ctx, template.Name, "Authorized", metav1.ConditionTrue)
		expectCondition(ctx, template.Name, "Progressing", metav1.ConditionFalse, "All 5")
	})
})

func isOverQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

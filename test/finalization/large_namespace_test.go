// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// This spec takes a long time because it creates thousands of objects.
var _ = Describe("A large namespace", Label("long"), func() {
	It("is finalized, and its conditions report the progress", NodeTimeout(5*time.Minute), func(ctx context.Context) {
		const (
			settings, widgets = 5000, 1000
			// removalTime is how long the simulated controller takes to remove all finalizers.
			removalTime = 20 * time.Second
		)
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "volume")
		dynamicClient := newDynamic()
		resource := dynamicClient.Resource(custom.resource()).Namespace(namespace.Name)
		Expect(parallel(settings+widgets, func(i int) error {
			if i < settings {
				return admin.Create(ctx, wrappers.MakeConfigMap(namespace.Name, fmt.Sprint("settings-", i)))
			}
			held := withFinalizer(custom.object(namespace.Name, fmt.Sprint("widget-", i-settings)))
			_, err := resource.Create(ctx, held, metav1.CreateOptions{})
			return err
		})).To(Succeed())

		deleteObject(ctx, namespace)
		eventuallyNamespace(ctx, namespace.Name, HaveRemaining("configmaps. has 5000 resource instances", custom.remaining(widgets)))

		done := make(chan error, 1)
		go func() { // This goroutine simulates the controller that removes the finalizers.
			ticker := time.NewTicker(removalTime / widgets)
			defer ticker.Stop()
			for i := range widgets {
				select {
				case <-ticker.C:
				case <-ctx.Done():
					done <- ctx.Err()
					return
				}
				_, err := resource.Patch(ctx, fmt.Sprint("widget-", i), types.MergePatchType,
					[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		counts := collectCounts(ctx, namespace, custom)
		Expect(done).To(Receive(BeNil()))
		GinkgoWriter.Println("counts of the custom resources:", counts)
		Expect(len(counts)).To(BeNumerically(">=", 5), "%v", counts)
		for i := 1; i < len(counts); i++ {
			Expect(counts[i]).To(BeNumerically("<", counts[i-1]), "%v", counts)
		}
		expectNoObjects(ctx, namespace.Name)
	})
})

// collectCounts watches the namespace until it no longer exists, and returns the successive numbers
// of remaining custom resources that the conditions report.
func collectCounts(ctx context.Context, namespace *corev1.Namespace, custom customType) []int {
	GinkgoHelper()
	var counts []int
	pattern := regexp.MustCompile(regexp.QuoteMeta(custom.plural+"."+custom.group) + ` has (\d+) resource instances`)
	Eventually(func() error {
		now := &corev1.Namespace{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(namespace), now); err != nil {
			return err
		}
		found := pattern.FindStringSubmatch(framework.ConditionMessage(now, corev1.NamespaceContentRemaining))
		if len(found) == 2 {
			count, err := strconv.Atoi(found[1])
			if err != nil {
				return err
			}
			if len(counts) == 0 || counts[len(counts)-1] != count {
				counts = append(counts, count)
			}
		}
		return nil
	}).WithContext(ctx).WithTimeout(3 * time.Minute).Should(Satisfy(apierrors.IsNotFound))
	return counts
}

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

	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// Long: thousands of objects.
var _ = Describe("Very much in a namespace", Label("long"), func() {
	It("goes, and the conditions tell how far it is", NodeTimeout(5*time.Minute), func(ctx context.Context) {
		const (
			settings, widgets = 5000, 1000
			// releaseTime is how long the widgets' controller takes for all of them.
			releaseTime = 20 * time.Second
		)
		custom := createCustomType(ctx)
		namespace := createNamespace(ctx, "volume")
		dynamicClient := newDynamic()
		resource := dynamicClient.Resource(custom.resource()).Namespace(namespace.Name)
		begin := time.Now()
		Expect(parallel(settings+widgets, func(i int) error {
			if i < settings {
				return admin.Create(ctx, wrappers.MakeConfigMap(namespace.Name, fmt.Sprint("settings-", i)))
			}
			held := hold(custom.object(namespace.Name, fmt.Sprint("widget-", i-settings)))
			_, err := resource.Create(ctx, held, metav1.CreateOptions{})
			return err
		})).To(Succeed())
		measured("creating 5000 ConfigMaps and 1000 custom resources", time.Since(begin))

		begin = time.Now()
		deleteObject(ctx, namespace)
		expectSays(ctx, namespace, HaveRemaining("configmaps. has 5000 resource instances", custom.inMessage(widgets)))
		measured("the first condition", time.Since(begin))

		released := make(chan error, 1)
		go func() { // the controller of the widgets
			ticker := time.NewTicker(releaseTime / widgets)
			defer ticker.Stop()
			for i := range widgets {
				select {
				case <-ticker.C:
				case <-ctx.Done():
					released <- ctx.Err()
					return
				}
				_, err := resource.Patch(ctx, fmt.Sprint("widget-", i), types.MergePatchType,
					[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				if err != nil {
					released <- err
					return
				}
			}
			released <- nil
		}()
		counts := observeCounts(ctx, namespace, custom)
		Expect(released).To(Receive(BeNil()))
		measured("5000 ConfigMaps and 1000 custom resources, released in 20s, are gone", time.Since(begin))
		GinkgoWriter.Println("counts of the custom resources:", counts)
		Expect(len(counts)).To(BeNumerically(">=", 5), "%v", counts)
		for i := 1; i < len(counts); i++ {
			Expect(counts[i]).To(BeNumerically("<", counts[i-1]), "%v", counts)
		}
		expectNothingLeft(ctx, namespace.Name)
	})
})

// observeCounts reads in the conditions how many custom resources remain, until the
// namespace has gone, and returns the different numbers in their order.
func observeCounts(ctx context.Context, namespace *corev1.Namespace, custom customType) []int {
	GinkgoHelper()
	var counts []int
	pattern := regexp.MustCompile(regexp.QuoteMeta(custom.plural+"."+custom.group) + ` has (\d+) resource instances`)
	Eventually(func() error {
		now := &corev1.Namespace{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(namespace), now); err != nil {
			return err
		}
		found := pattern.FindStringSubmatch(messageOf(now, corev1.NamespaceContentRemaining))
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

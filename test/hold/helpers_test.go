// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// otherUser is a user without the verb, like framework.OrdinaryUser.
const otherUser = "bob@corp.example.com"

// result is the response to a request.
type result struct {
	Err      error
	Duration time.Duration
}

// createOnce creates a ConfigMap without the retries of client-go.
func createOnce(ctx context.Context, user *framework.User, namespace, name string) result {
	start := time.Now()
	err := user.Clientset().CoreV1().RESTClient().Post().MaxRetries(0).
		Namespace(namespace).Resource("configmaps").Body(wrappers.MakeConfigMap(namespace, name)).Do(ctx).Error()
	return result{Err: err, Duration: time.Since(start)}
}

// startCreate is createOnce in the background. It returns when the write is held.
func startCreate(ctx context.Context, user *framework.User, namespace, name string) <-chan result {
	GinkgoHelper()
	done := make(chan result, 1)
	before := receivedWrites()
	go func() { done <- createOnce(ctx, user, namespace, name) }()
	Eventually(receivedWrites).WithContext(ctx).Should(BeNumerically(">", before))
	Consistently(done).WithContext(ctx).WithTimeout(100 * time.Millisecond).ShouldNot(Receive())
	return done
}

// expectEnded expects that a held write ends before its time limit, and returns its error.
func expectEnded(ctx context.Context, held <-chan result) error {
	GinkgoHelper()
	var got result
	Eventually(held).WithContext(ctx).Should(Receive(&got))
	Expect(got.Duration).To(BeNumerically("<", options.Duration))
	return got.Err
}

// receivedWrites returns the number of writes that the hold webhooks have received. The manager runs in this process.
func receivedWrites() float64 {
	GinkgoHelper()
	metrics := framework.Metrics()
	received := metrics["nslifecycle_held_writes"][0].GetGauge().GetValue()
	for _, ended := range metrics["nslifecycle_held_writes_total"] {
		received += ended.GetCounter().GetValue()
	}
	return received
}

func heldWrites() float64 {
	GinkgoHelper()
	return framework.Metrics()["nslifecycle_held_writes"][0].GetGauge().GetValue()
}

// annotate sets annotations of a namespace as the initializer.
func annotate(ctx context.Context, name string, annotations map[string]string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(cluster.Initializer.Patch(ctx, namespace, mergePatch(annotations))).To(Succeed())
}

// mergePatch returns a patch that sets annotations.
func mergePatch(annotations map[string]string) client.Patch {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	Expect(err).NotTo(HaveOccurred())
	return client.RawPatch(types.MergePatchType, patch)
}

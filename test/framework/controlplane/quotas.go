// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const quotaInterval = 200 * time.Millisecond

// StartQuotas makes ResourceQuotas effective until the context is canceled. Without kube-controller-manager, their
// status is empty, and the API server ignores them. StartQuotas starts to count at zero; the API server adds what users
// create, and nothing subtracts what they delete.
func (c *ControlPlane) StartQuotas(ctx context.Context) error {
	clientset, err := kubernetes.NewForConfig(Unlimited(c.Admin))
	if err != nil {
		return fmt.Errorf("failed to create a client: %w", err)
	}
	go func() {
		// The function never ends the poll, which ends with the context.
		_ = wait.PollUntilContextCancel(ctx, quotaInterval, true, func(ctx context.Context) (bool, error) {
			initializeQuotas(ctx, clientset)
			return false, nil
		})
	}()
	return nil
}

// initializeQuotas sets the status of new and of changed ResourceQuotas. The next call repeats what fails.
func initializeQuotas(ctx context.Context, clientset kubernetes.Interface) {
	list, err := clientset.CoreV1().ResourceQuotas(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range list.Items {
		quota := &list.Items[i]
		if equality.Semantic.DeepEqual(quota.Status.Hard, quota.Spec.Hard) {
			continue
		}
		used := corev1.ResourceList{}
		for name := range quota.Spec.Hard {
			used[name] = quota.Status.Used[name]
		}
		quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: used}
		_, _ = clientset.CoreV1().ResourceQuotas(quota.Namespace).UpdateStatus(ctx, quota, metav1.UpdateOptions{})
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializers

import (
	"context"
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// What the initializer Policy puts into a namespace.
const (
	// QuotaName is the name of the ResourceQuota.
	QuotaName = "default"
	// NetworkPolicyName is the name of the NetworkPolicy.
	NetworkPolicyName = "default-deny-ingress"
)

// PolicyAccount is the name of the ServiceAccount of PolicyManifest, and of the
// namespace that it is in.
const PolicyAccount = "policy-initializer"

// PolicyManifest holds that ServiceAccount, its namespace and the rights that Policy
// needs. Apply it before any configuration exists.
//
//go:embed manifests/policy.yaml
var PolicyManifest string

// Policy gives a namespace a ResourceQuota and a NetworkPolicy that lets nothing in.
func Policy(ctx context.Context, client kubernetes.Interface, namespace *corev1.Namespace) error {
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: QuotaName},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			corev1.ResourcePods:           resource.MustParse("20"),
			corev1.ResourceRequestsCPU:    resource.MustParse("4"),
			corev1.ResourceRequestsMemory: resource.MustParse("8Gi"),
		}},
	}
	_, err := client.CoreV1().ResourceQuotas(namespace.Name).Create(ctx, quota, metav1.CreateOptions{})
	if err := ignoreExists(err); err != nil {
		return fmt.Errorf("creating ResourceQuota %q in namespace %q: %w", QuotaName, namespace.Name, err)
	}
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: NetworkPolicyName},
		// No selector means all pods, and no rule means that nothing is let in.
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	_, err = client.NetworkingV1().NetworkPolicies(namespace.Name).Create(ctx, policy, metav1.CreateOptions{})
	if err := ignoreExists(err); err != nil {
		return fmt.Errorf("creating NetworkPolicy %q in namespace %q: %w", NetworkPolicyName, namespace.Name, err)
	}
	return nil
}

// ignoreExists makes creation idempotent: an earlier attempt may have come this far, and
// nobody but initializers can have created anything in the namespace.
func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

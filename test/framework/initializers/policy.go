// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializers

import (
	"context"
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	applynetworkingv1 "k8s.io/client-go/applyconfigurations/networking/v1"
	"k8s.io/client-go/kubernetes"
)

// Names of the objects that Policy creates.
const (
	QuotaName         = "default"
	NetworkPolicyName = "default-deny-ingress"
)

// PolicyAccount is the name of both the ServiceAccount in PolicyManifest and its namespace.
const PolicyAccount = "policy-initializer"

// PolicyManifest contains the ServiceAccount, its namespace and the permissions that Policy
// requires. Apply it before you create a NamespaceInitializerConfiguration.
//
//go:embed manifests/policy.yaml
var PolicyManifest string

// Policy creates a ResourceQuota and a NetworkPolicy that allows no ingress.
func Policy(ctx context.Context, client kubernetes.Interface, namespace *corev1.Namespace) error {
	hard := corev1.ResourceList{
		corev1.ResourcePods:           resource.MustParse("20"),
		corev1.ResourceRequestsCPU:    resource.MustParse("4"),
		corev1.ResourceRequestsMemory: resource.MustParse("8Gi"),
	}
	quota, err := client.CoreV1().ResourceQuotas(namespace.Name).Apply(ctx,
		applycorev1.ResourceQuota(QuotaName, namespace.Name).WithSpec(applycorev1.ResourceQuotaSpec().WithHard(hard)),
		applyOptions(PolicyAccount))
	if err != nil {
		return fmt.Errorf("failed to apply ResourceQuota %q in namespace %q: %w", QuotaName, namespace.Name, err)
	}
	policy, err := client.NetworkingV1().NetworkPolicies(namespace.Name).Apply(ctx,
		applynetworkingv1.NetworkPolicy(NetworkPolicyName, namespace.Name).WithSpec(
			// An empty podSelector selects all Pods. A policy without rules allows no ingress.
			applynetworkingv1.NetworkPolicySpec().WithPodSelector(applymetav1.LabelSelector()).
				WithPolicyTypes(networkingv1.PolicyTypeIngress)),
		applyOptions(PolicyAccount))
	if err != nil {
		return fmt.Errorf("failed to apply NetworkPolicy %q in namespace %q: %w", NetworkPolicyName, namespace.Name, err)
	}
	// Server-side apply keeps fields that it does not set, such as the scopes of a ResourceQuota or
	// the rules of a NetworkPolicy. If another user created the object, these fields can disable
	// it.
	if !equality.Semantic.DeepEqual(quota.Spec, corev1.ResourceQuotaSpec{Hard: hard}) {
		return fmt.Errorf("another client set fields of ResourceQuota %q in namespace %q", QuotaName, namespace.Name)
	}
	if !equality.Semantic.DeepEqual(policy.Spec, networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
	}) {
		return fmt.Errorf("another client set fields of NetworkPolicy %q in namespace %q",
			NetworkPolicyName, namespace.Name)
	}
	return nil
}

// applyOptions returns options that take over fields from other field managers.
func applyOptions(fieldManager string) metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
}

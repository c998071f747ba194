// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds that are treated in a way of their own.
var (
	kindNamespace      = schema.GroupKind{Kind: "Namespace"}
	kindServiceAccount = schema.GroupKind{Kind: "ServiceAccount"}
	kindConfigMap      = schema.GroupKind{Kind: "ConfigMap"}
	kindSecret         = schema.GroupKind{Kind: "Secret"}
	kindClaim          = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	kindService        = schema.GroupKind{Kind: "Service"}
	kindEndpoints      = schema.GroupKind{Kind: "Endpoints"}
	kindPod            = schema.GroupKind{Kind: "Pod"}
	kindJob            = schema.GroupKind{Group: "batch", Kind: "Job"}
	kindDeployment     = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	kindQuota          = schema.GroupKind{Kind: "ResourceQuota"}
)

// order says what is created when: what others refer to, and what decides about others,
// before them.
var order = []schema.GroupKind{
	kindNamespace,
	// A Pod that comes before them would be made without their defaults, or run without
	// their protection.
	{Kind: "LimitRange"},
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"},
	kindServiceAccount,
	{Group: "rbac.authorization.k8s.io", Kind: "Role"},
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"},
	kindConfigMap,
	kindSecret,
	kindClaim,
	kindService,
	kindEndpoints,
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"},
	{Group: "policy", Kind: "PodDisruptionBudget"},
	// What is controlled comes before its controller, which adopts it, and makes no second
	// one.
	{Group: "apps", Kind: "ControllerRevision"},
	kindPod,
	{Group: "apps", Kind: "ReplicaSet"},
	{Kind: "ReplicationController"},
	kindJob,
	kindDeployment,
	{Group: "apps", Kind: "StatefulSet"},
	{Group: "apps", Kind: "DaemonSet"},
	{Group: "batch", Kind: "CronJob"},
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"},
	{Group: "networking.k8s.io", Kind: "Ingress"},
}

// Ranks of what is not in the order.
var (
	rankBuiltIn = len(order)
	rankCustom  = len(order) + 1
	// A quota refuses everything until its controller has counted for the first time.
	rankQuota = len(order) + 2
)

func rankOf(kind schema.GroupKind) int {
	if rank := slices.Index(order, kind); rank >= 0 {
		return rank
	}
	switch {
	case kind == kindQuota:
		return rankQuota
	case !strings.Contains(kind.Group, ".") || strings.HasSuffix(kind.Group, ".k8s.io"):
		return rankBuiltIn
	}
	return rankCustom
}

// sortObjects puts objects into the order in which they can be created.
func sortObjects(objects []*unstructured.Unstructured) {
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		kindA, kindB := groupKind(a), groupKind(b)
		return cmp.Or(
			cmp.Compare(rankOf(kindA), rankOf(kindB)),
			cmp.Compare(kindA.Group, kindB.Group),
			cmp.Compare(kindA.Kind, kindB.Kind),
			cmp.Compare(a.GetNamespace(), b.GetNamespace()),
			cmp.Compare(a.GetName(), b.GetName()),
		)
	})
}

func groupKind(object *unstructured.Unstructured) schema.GroupKind {
	return object.GroupVersionKind().GroupKind()
}

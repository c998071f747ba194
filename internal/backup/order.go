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

// Kinds with special handling.
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

// order is the order in which objects are created. Objects that other objects refer to and objects
// that apply to other objects come first.
var order = []schema.GroupKind{
	kindNamespace,
	// Pods that are created before LimitRanges and NetworkPolicies lack their defaults and protection.
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
	// Controlled objects come before their controllers, which adopt them instead of creating new ones.
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

// Ranks of kinds that are not in the order.
var (
	rankBuiltIn = len(order)
	rankCustom  = len(order) + 1
	// A ResourceQuota rejects new objects until its controller has counted the existing ones.
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

// sortObjects sorts objects in the order in which they can be created.
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

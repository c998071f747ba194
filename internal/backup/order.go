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

// order is the order in which objects are created. Objects that other objects refer to and objects
// that apply to other objects come first. The elements have the format of schema.GroupKind.String.
var order = []string{
	"Namespace",
	// LimitRanges and NetworkPolicies come before the Pods to which they apply.
	"LimitRange",
	"NetworkPolicy.networking.k8s.io",
	"ServiceAccount",
	"Role.rbac.authorization.k8s.io",
	"RoleBinding.rbac.authorization.k8s.io",
	"ConfigMap",
	"Secret",
	"PersistentVolumeClaim",
	"Service",
	"Endpoints",
	"EndpointSlice.discovery.k8s.io",
	"PodDisruptionBudget.policy",
	// Controlled objects come before their controllers, which adopt them instead of creating new ones.
	"ControllerRevision.apps",
	"Pod",
	"ReplicaSet.apps",
	"ReplicationController",
	"Job.batch",
	"Deployment.apps",
	"StatefulSet.apps",
	"DaemonSet.apps",
	"CronJob.batch",
	"HorizontalPodAutoscaler.autoscaling",
	"Ingress.networking.k8s.io",
}

// Ranks of kinds that are not in the order.
var (
	rankBuiltIn = len(order)
	rankCustom  = len(order) + 1
	// A ResourceQuota rejects new objects until its controller has counted the existing ones.
	rankQuota = len(order) + 2
)

func rankOf(kind schema.GroupKind) int {
	if rank := slices.Index(order, kind.String()); rank >= 0 {
		return rank
	}
	switch {
	case kind.String() == "ResourceQuota":
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

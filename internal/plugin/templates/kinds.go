// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// namespacedKinds are the namespaced kinds of Kubernetes that templates can contain, by API group.
var namespacedKinds = map[string]string{
	"": "ConfigMap Endpoints LimitRange PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota " +
		"Secret Service ServiceAccount",
	"apps":                      "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
	"autoscaling":               "HorizontalPodAutoscaler",
	"batch":                     "CronJob Job",
	"coordination.k8s.io":       "Lease",
	"discovery.k8s.io":          "EndpointSlice",
	"networking.k8s.io":         "Ingress NetworkPolicy",
	"policy":                    "PodDisruptionBudget",
	"rbac.authorization.k8s.io": "Role RoleBinding",
}

// BuiltInResource returns the resource of a namespaced kind of Kubernetes, and false for other kinds.
func BuiltInResource(kind schema.GroupVersionKind) (schema.GroupVersionResource, bool) {
	if !slices.Contains(strings.Fields(namespacedKinds[kind.Group]), kind.Kind) {
		return schema.GroupVersionResource{}, false
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource, true
}

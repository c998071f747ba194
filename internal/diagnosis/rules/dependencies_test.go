// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
)

func TestFindDependencies(t *testing.T) {
	claim := withContent(contentOf(claims, makeDeleted("data", owners.FinalizerPVC)))
	owned := func(object metav1.PartialObjectMetadata) metav1.PartialObjectMetadata {
		object.OwnerReferences = []metav1.OwnerReference{{UID: "uid-of-web", BlockOwnerDeletion: new(true)}}
		return object
	}
	foreground := contentOf(deployments, makeDeleted("web", owners.FinalizerForeground))
	balancer := withContent(contentOf(services, makeDeleted("web", owners.FinalizerLoadBalancer)))
	runCases(t, map[string]diagnoseCase{
		"a PersistentVolumeClaim in use by a pod that is not being deleted": {
			facts: makeTerminating(claim, withPod("web", func(pod *corev1.Pod) { pod.DeletionTimestamp = nil })),
			want:  []want{{diagnosis.CauseVolumeInUse, diagnosis.RankProven, `in use by pod "web"`, `is Running on node "worker-1"`, []string{"persistentvolumeclaims/data"}}},
		},
		"a PersistentVolumeClaim in use by a pod that was never scheduled": {
			facts: makeTerminating(claim, withPod("web", func(pod *corev1.Pod) { pod.DeletionTimestamp, pod.Spec.NodeName = nil, "" })),
			want:  []want{{diagnosis.CauseFinalizerPending, diagnosis.RankInferred, "pvc-protection controller", "", nil}},
		},
		"a Service with a load balancer": {
			facts: makeTerminating(balancer),
			want:  []want{{diagnosis.CauseCloudResource, diagnosis.RankInferred, literal(messageCloud), "", []string{"services/web"}}},
		},
		"a Service whose load balancer cannot be deleted": {
			facts: makeTerminating(balancer, func(facts *diagnosis.Facts) {
				object := makeDeleted("web")
				facts.Reports = []diagnosis.Report{diagnosis.MakeEventReport(diagnosis.RemainingObject{Type: services, PartialObjectMetadata: &object},
					"SyncLoadBalancerFailed", "Error syncing load balancer: failed to delete load balancer: quota", now)}
			}),
			want: []want{{diagnosis.CauseCloudResource, diagnosis.RankPublished, "the service controller", "failed to delete load balancer: quota", nil}},
		},
		"foreground deletion with a dependent that is not being deleted": {
			facts: makeTerminating(withContent(foreground, contentOf(replicaSets, owned(makeObject("web-1"))))),
			want:  []want{{diagnosis.CauseForegroundDeletion, diagnosis.RankProven, literal(messageForeground), `replicasets.apps "web-1"`, []string{"deployments.apps/web"}}},
		},
		"foreground deletion with a dependent that has a finalizer": {
			facts: makeTerminating(withContent(foreground, contentOf(replicaSets, owned(makeDeleted("web-1", held))))),
			want:  []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, held, "", []string{"replicasets.apps/web-1"}}},
		},
		"foreground deletion without dependents": {
			facts: makeTerminating(withContent(foreground)),
			want:  []want{{diagnosis.CauseForegroundDeletion, diagnosis.RankInferred, "the garbage collector", evidenceNoDependent, nil}},
		},
	})
}

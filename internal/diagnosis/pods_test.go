// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// makePod returns a pod as a whole and the same as it is listed.
func withPod(name string, change func(*corev1.Pod)) func(*Facts) {
	pod := corev1.Pod{}
	pod.ObjectMeta = makeDeleted(name).ObjectMeta
	pod.Spec.NodeName, pod.Status.Phase = "worker-1", corev1.PodRunning
	pod.DeletionGracePeriodSeconds = new(int64(30))
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	if change != nil {
		change(&pod)
	}
	return func(facts *Facts) {
		facts.Pods = append(facts.Pods, pod)
		withContent(contentOf(pods, metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta}))(facts)
	}
}

func withNode(ready corev1.ConditionStatus) func(*Facts) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: ready, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.",
		LastTransitionTime: metav1.Time{Time: deleted},
	}}
	return func(facts *Facts) { facts.Nodes = append(facts.Nodes, node) }
}

func TestFindPods(t *testing.T) {
	claim := withContent(contentOf(claims, makeDeleted("data", finalizerClaim)))
	withFinalizer := func(finalizer string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Finalizers, pod.Status.Phase = []string{finalizer}, corev1.PodSucceeded }
	}
	object := []string{"pods/web"}
	runCases(t, map[string]diagnoseCase{
		"a pod on a node that is not there": {
			facts: makeDeath(withPod("web", nil), claim),
			want:  []want{{CausePodOnUnreachableNode, Proven, `node "worker-1" does not exist`, `persistentvolumeclaims "data" waits for pod "web"`, object}},
		},
		"a pod on a node that does not report": {
			facts: makeDeath(withPod("web", nil), withNode(corev1.ConditionUnknown)),
			want:  []want{{CausePodOnUnreachableNode, Proven, "Ready=Unknown", "Kubelet stopped posting", object}},
		},
		"a pod on a node that is not ready": {
			facts: makeDeath(withPod("web", nil), withNode(corev1.ConditionFalse)),
			want:  []want{{CausePodOnUnreachableNode, Likely, "Ready=False", "", object}},
		},
		"a pod on a node that is fine": {
			facts: makeDeath(withPod("web", nil), withNode(corev1.ConditionTrue), claim),
			want:  []want{{CausePodNotTerminating, Proven, `node "worker-1" is alive`, "its grace period of 30s included", object}},
		},
		"a pod on a node that may not be read": {
			facts: makeDeath(withPod("web", nil), withUnread(SourceNodes)),
			want:  []want{{CausePodNotTerminating, Likely, "when the grace period was over", "", object}},
		},
		"a pod within its grace period, and the claim behind it": {
			facts: makeDeath(claim, withPod("web", func(pod *corev1.Pod) { pod.DeletionTimestamp.Time = now.Add(time.Hour) })),
		},
		"a pod that should have ended a moment ago": {
			facts: makeDeath(withPod("web", func(pod *corev1.Pod) { pod.DeletionTimestamp.Time = now.Add(-29 * time.Second) })),
		},
		"pods that end one by one": {facts: makeDeath(withPod("web", nil), func(facts *Facts) { facts.Movement.Gone = map[schema.GroupResource]int{podResource: 1} })},
		"a Job's pod": {
			facts: makeDeath(withPod("web", withFinalizer(finalizerJob)), withNode(corev1.ConditionTrue)),
			want:  []want{{CausePodFinalizer, Likely, "the job controller", "renewed 1s ago", object}},
		},
		"a pod with a finalizer of somebody who lives": {
			facts: makeDeath(withPod("web", withFinalizer(held)), withWorkloads(makeOperator(1))),
			want:  []want{{CausePodFinalizer, Likely, "seems to be alive", "", object}},
		},
		"a pod with a finalizer of somebody who does not": {
			facts: makeDeath(withPod("web", withFinalizer(held)), withWorkloads(makeOperator(0))),
			want:  []want{{CauseFinalizerOwnerGone, Proven, "", "", object}},
		},
		"a pod with a finalizer that still runs, on a dead node": {
			facts: makeDeath(withPod("web", func(pod *corev1.Pod) { pod.Finalizers = []string{held} })),
			want:  []want{{CausePodOnUnreachableNode, Proven, "", "", object}},
		},
		"pods that may not be read": {
			facts: makeDeath(withContent(contentOf(pods, makeDeleted("web"))), withUnread(SourcePods, SourceNodes)),
			want:  []want{{CausePodNotTerminating, Likely, "", "", object}},
		},
	})
}

func TestFindDependencies(t *testing.T) {
	claim := withContent(contentOf(claims, makeDeleted("data", finalizerClaim)))
	owned := func(object metav1.PartialObjectMetadata) metav1.PartialObjectMetadata {
		object.OwnerReferences = []metav1.OwnerReference{{UID: "uid-of-web", BlockOwnerDeletion: new(true)}}
		return object
	}
	foreground := contentOf(deployments, makeDeleted("web", finalizerForeground))
	balancer := withContent(contentOf(services, makeDeleted("web", finalizerLoadBalancer)))
	runCases(t, map[string]diagnoseCase{
		"a claim in use by a pod that is not being deleted": {
			facts: makeDeath(claim, withPod("web", func(pod *corev1.Pod) { pod.DeletionTimestamp = nil })),
			want:  []want{{CauseVolumeInUse, Proven, `in use by pod "web"`, `is Running on node "worker-1"`, []string{"persistentvolumeclaims/data"}}},
		},
		"a claim in use by a pod that was never scheduled": {
			facts: makeDeath(claim, withPod("web", func(pod *corev1.Pod) { pod.DeletionTimestamp, pod.Spec.NodeName = nil, "" })),
			want:  []want{{CauseFinalizerPending, Likely, "pvc-protection controller", "", nil}},
		},
		"a load balancer": {
			facts: makeDeath(balancer),
			want:  []want{{CauseCloudResource, Likely, "outside of the cluster", "", []string{"services/web"}}},
		},
		"a load balancer that cannot be deleted": {
			facts: makeDeath(balancer, func(facts *Facts) {
				facts.Complaints = []Complaint{{services, "web", "Event SyncLoadBalancerFailed", "Error syncing load balancer: failed to delete load balancer: quota", now}}
			}),
			want: []want{{CauseCloudResource, Proven, "the service controller", "failed to delete load balancer: quota", nil}},
		},
		"foreground deletion, and nobody deletes the dependents": {
			facts: makeDeath(withContent(foreground, contentOf(replicaSets, owned(makeObject("web-1"))))),
			want:  []want{{CauseForegroundDeletion, Proven, "waits for its dependents", `replicasets.apps "web-1"`, []string{"deployments.apps/web"}}},
		},
		"foreground deletion behind a finalizer": {
			facts: makeDeath(withContent(foreground, contentOf(replicaSets, owned(makeDeleted("web-1", held))))),
			want:  []want{{CauseFinalizerOwnerGone, Likely, held, "", []string{"replicasets.apps/web-1"}}},
		},
		"foreground deletion without dependents": {
			facts: makeDeath(withContent(foreground)),
			want:  []want{{CauseForegroundDeletion, Likely, "the garbage collector", "no dependent", nil}},
		},
	})
}

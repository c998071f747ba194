// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
)

// withPod adds a pod, and its metadata as the API server lists it.
func withPod(name string, change func(*corev1.Pod)) func(*diagnosis.Facts) {
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
	return func(facts *diagnosis.Facts) {
		facts.Pods = append(facts.Pods, pod)
		withContent(contentOf(pods, metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta}))(facts)
	}
}

func withNode(ready corev1.ConditionStatus) func(*diagnosis.Facts) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: ready, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.",
		LastTransitionTime: metav1.Time{Time: deleted},
	}}
	return func(facts *diagnosis.Facts) { facts.Nodes = append(facts.Nodes, node) }
}

func TestFindPods(t *testing.T) {
	claim := withContent(contentOf(claims, makeDeleted("data", owners.FinalizerPVC)))
	withFinalizer := func(finalizer string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Finalizers, pod.Status.Phase = []string{finalizer}, corev1.PodSucceeded }
	}
	denied := withDryRuns(makeDryRun(diagnosis.VerbDelete, pods, "web", "", answer(422, metav1.StatusReasonInvalid, policyText)))
	object := []string{"pods/web"}
	runCases(t, map[string]diagnoseCase{
		"a pod on a node that does not exist": {
			facts: makeTerminating(withPod("web", nil), claim),
			want:  []want{{diagnosis.CausePodOnUnreachableNode, diagnosis.RankProven, `node "worker-1" does not exist`, `persistentvolumeclaims "data" is waiting for pod "web"`, object}},
		},
		"a pod on a node that does not report its status": {
			facts: makeTerminating(withPod("web", nil), withNode(corev1.ConditionUnknown)),
			want:  []want{{diagnosis.CausePodOnUnreachableNode, diagnosis.RankProven, "Ready=Unknown", "Kubelet stopped posting", object}},
		},
		"a pod on a node that is not ready": {
			facts: makeTerminating(withPod("web", nil), withNode(corev1.ConditionFalse)),
			want:  []want{{diagnosis.CausePodOnUnreachableNode, diagnosis.RankInferred, "Ready=False", "", object}},
		},
		"a pod on a ready node": {
			facts: makeTerminating(withPod("web", nil), withNode(corev1.ConditionTrue), claim),
			want:  []want{{diagnosis.CausePodNotTerminating, diagnosis.RankProven, fmt.Sprintf(messagePodKubeletNode, "worker-1"), "grace period of 30s", object}},
		},
		"a pod on a ready node that the kubelet cannot delete": {
			facts: makeTerminating(withPod("web", nil), withNode(corev1.ConditionTrue), denied, withPolicy(false, false)),
			want:  []want{{diagnosis.CauseAdmissionRejected, diagnosis.RankProven, `pods "web" cannot be deleted`, "", object}},
		},
		"a pod on a ready node that the diagnosis cannot delete": {
			facts: makeTerminating(withPod("web", nil), withNode(corev1.ConditionTrue), denied, withPolicy(true, false)),
			want: []want{
				{diagnosis.CausePodNotTerminating, diagnosis.RankProven, "", "", object},
				{diagnosis.CauseAdmissionRejected, diagnosis.RankInferred, "", "", object},
			},
		},
		"a pod on a node that cannot be read": {
			facts: makeTerminating(withPod("web", nil), withUnread(diagnosis.SourceNodes)),
			want:  []want{{diagnosis.CausePodNotTerminating, diagnosis.RankInferred, literal(messagePodKubelet), "", object}},
		},
		"a pod within its grace period that uses a PersistentVolumeClaim": {
			facts: makeTerminating(claim, withPod("web", func(pod *corev1.Pod) { pod.DeletionTimestamp.Time = now.Add(time.Hour) })),
		},
		"a pod that exceeds its grace period by less than the progress deadline": {
			facts: makeTerminating(withPod("web", func(pod *corev1.Pod) { pod.DeletionTimestamp.Time = now.Add(-29 * time.Second) })),
		},
		"pods that terminate one by one": {facts: makeTerminating(withPod("web", nil), func(facts *diagnosis.Facts) {
			facts.Progress.Deleted = map[schema.GroupResource]int{diagnosis.PodResource: 1}
		})},
		"a pod with the finalizer of the job controller": {
			facts: makeTerminating(withPod("web", withFinalizer(owners.FinalizerJob)), withNode(corev1.ConditionTrue)),
			want:  []want{{diagnosis.CausePodFinalizer, diagnosis.RankInferred, "the job controller", "renewed 1s ago", object}},
		},
		"a pod with a finalizer of a running owner": {
			facts: makeTerminating(withPod("web", withFinalizer("resource.corp.example.com/x")), func(facts *diagnosis.Facts) {
				facts.Content[0].Objects[0].ManagedFields = []metav1.ManagedFieldsEntry{{
					Manager: "corp-operator", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"resource.corp.example.com/x\"":{}}}}`),
				}}
				withWorkloads(diagnosis.Workload{Source: diagnosis.SourceDeployments, Namespace: "operators", Name: "corp-operator", Desired: 1, Ready: 1})(facts)
			}),
			want: []want{{diagnosis.CausePodFinalizer, diagnosis.RankInferred, literal(messageOwnerRunning), "", object}},
		},
		"a pod with a finalizer of an unknown owner": {
			facts: makeTerminating(withPod("web", withFinalizer(held)), withWorkloads(makeDecoy(0))),
			want:  []want{{diagnosis.CauseFinalizerOwnerNotFound, diagnosis.RankInferred, "", "", object}},
		},
		"a running pod with a finalizer on an unreachable node": {
			facts: makeTerminating(withPod("web", func(pod *corev1.Pod) { pod.Finalizers = []string{held} })),
			want:  []want{{diagnosis.CausePodOnUnreachableNode, diagnosis.RankProven, "", "", object}},
		},
		"pods that cannot be read": {
			facts: makeTerminating(withContent(contentOf(pods, makeDeleted("web"))), withUnread(diagnosis.SourcePods, diagnosis.SourceNodes)),
			want:  []want{{diagnosis.CausePodNotTerminating, diagnosis.RankInferred, "", "", object}},
		},
	})
}

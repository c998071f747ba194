// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis/owners"
)

// findPods finds pods that exceed their grace period because of their node, its kubelet, or a
// finalizer. The API server adds the grace period to deletionTimestamp.
func (f view) findPods() []diagnosis.Finding {
	overdue := slices.DeleteFunc(f.RemainingObjects(), func(object diagnosis.RemainingObject) bool {
		return object.GroupResource() != diagnosis.PodResource || !f.IsObjectOverdue(object)
	})
	if len(overdue) == 0 || f.IsTypeProgressing(diagnosis.PodResource) {
		return nil
	}
	groups := f.groupPods(overdue)
	var findings []diagnosis.Finding
	for node, pods := range diagnosis.Sorted(groups.byNode) {
		findings = append(findings, f.nodeFinding(node, pods))
	}
	groups.others = slices.DeleteFunc(groups.others, func(pod diagnosis.RemainingObject) bool {
		return f.isDeletionDeniedToAll(pod) // The kubelet cannot delete it.
	})
	if len(groups.others) > 0 {
		findings = append(findings, f.kubeletFinding(groups.others))
	}
	for finalizer, pods := range diagnosis.Sorted(groups.byFinalizer) {
		if !f.isRemovalRejected(pods[0].GroupResource(), finalizer) && !f.IsFinalizerProgressing(finalizer) {
			findings = append(findings, f.podFinalizerFinding(finalizer, pods))
		}
	}
	return findings
}

// podGroups groups pods by what blocks them. A pod with several finalizers is in several groups.
type podGroups struct {
	byNode, byFinalizer map[string][]diagnosis.RemainingObject
	others              []diagnosis.RemainingObject
}

func (f view) groupPods(pods []diagnosis.RemainingObject) podGroups {
	groups := podGroups{
		byNode: map[string][]diagnosis.RemainingObject{}, byFinalizer: map[string][]diagnosis.RemainingObject{},
	}
	for _, object := range pods {
		pod := f.podFor(object.UID)
		switch {
		case len(object.Finalizers) > 0 && (pod == nil || hasTerminated(pod)):
			for _, finalizer := range object.Finalizers {
				groups.byFinalizer[finalizer] = append(groups.byFinalizer[finalizer], object)
			}
		case pod != nil && f.nodeProblem(pod.Spec.NodeName) != "":
			groups.byNode[pod.Spec.NodeName] = append(groups.byNode[pod.Spec.NodeName], object)
		default:
			groups.others = append(groups.others, object)
		}
	}
	return groups
}

func (f view) podFor(uid types.UID) *corev1.Pod {
	for i := range f.Pods {
		if f.Pods[i].UID == uid {
			return &f.Pods[i]
		}
	}
	return nil
}

// hasTerminated reports whether a pod requires no further action by the kubelet.
func hasTerminated(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0
}

// nodeReady returns the Ready condition of a node, or nil; ok reports whether the node exists.
func (f view) nodeReady(name string) (condition *corev1.NodeCondition, ok bool) {
	at := slices.IndexFunc(f.Nodes, func(node corev1.Node) bool { return node.Name == name })
	if at < 0 {
		return nil, false
	}
	conditions := f.Nodes[at].Status.Conditions
	for i := range conditions {
		if conditions[i].Type == corev1.NodeReady {
			return &conditions[i], true
		}
	}
	return nil, true
}

func (f view) isNodeMissing(name string) bool {
	_, ok := f.nodeReady(name)
	return !ok && name != "" && f.IsRead(diagnosis.SourceNodes)
}

// nodeProblem returns what is wrong with a node, or "" if it is ready or could not be read.
func (f view) nodeProblem(name string) string {
	ready, _ := f.nodeReady(name)
	switch {
	case f.isNodeMissing(name):
		return fmt.Sprintf("node %q does not exist", name)
	case ready == nil || ready.Status == corev1.ConditionTrue:
		return ""
	}
	return fmt.Sprintf("node %q is Ready=%s since %s: %s", name, ready.Status,
		diagnosis.FormatTime(ready.LastTransitionTime.Time), ready.Reason) + f.Detail(ready.Message)
}

// isNodeUnreachable reports whether a node does not exist or does not report its status. A node that
// reports that it is not ready can still terminate its pods.
func (f view) isNodeUnreachable(name string) bool {
	ready, _ := f.nodeReady(name)
	return ready == nil || ready.Status == corev1.ConditionUnknown
}

func (f view) nodeFinding(node string, pods []diagnosis.RemainingObject) diagnosis.Finding {
	problem := f.nodeProblem(node)
	values := params{"pod": {pods[0].Name}, "node": nil}
	if !f.isNodeMissing(node) {
		values["node"] = []string{node}
	}
	finding := f.newFinding(diagnosis.CausePodOnUnreachableNode, diagnosis.RankInferred,
		fmt.Sprintf("%s should have terminated %s ago, but %s", describe(pods), f.Ago(firstDeletedAt(pods)), problem), values)
	finding.Evidence = append(diagnosis.Proven(problem, podEvidence(pods)), f.waitingPVCs(pods)...)
	if f.isNodeUnreachable(node) {
		finding.Rank = diagnosis.RankProven
	}
	return finding.WithRemaining(pods)
}

func (f view) kubeletFinding(pods []diagnosis.RemainingObject) diagnosis.Finding {
	finding := f.newFinding(diagnosis.CausePodNotTerminating, diagnosis.RankInferred,
		fmt.Sprintf(messagePodKubelet, describe(pods), f.Ago(firstDeletedAt(pods))), params{"pod": {pods[0].Name}})
	finding.Evidence = append(diagnosis.Proven(podEvidence(pods)), f.waitingPVCs(pods)...)
	if pod := f.podFor(pods[0].UID); pod != nil {
		if ready, _ := f.nodeReady(pod.Spec.NodeName); ready != nil && ready.Status == corev1.ConditionTrue {
			finding.Rank = diagnosis.RankProven
			finding.Message += fmt.Sprintf(messagePodKubeletNode, pod.Spec.NodeName)
		}
	}
	return finding.WithRemaining(pods)
}

func (f view) podFinalizerFinding(finalizer string, pods []diagnosis.RemainingObject) diagnosis.Finding {
	var finding diagnosis.Finding
	if known, ok := owners.Known(finalizer, pods); ok && known.Manager != "" {
		finding = f.builtInFinding(finalizer, known, pods)
		if finding.Cause == diagnosis.CauseFinalizerPending {
			finding.Cause = diagnosis.CausePodFinalizer
		}
	} else {
		finding = f.ownerFinding(finalizer, pods, diagnosis.CausePodFinalizer)
	}
	finding.Evidence = append(finding.Evidence, f.waitingPVCs(pods)...)
	return finding
}

func podEvidence(pods []diagnosis.RemainingObject) string {
	first := oldest(pods)
	return fmt.Sprintf("pods %q has deletionTimestamp %s, which includes its grace period of %ds",
		first.Name, diagnosis.FormatTime(first.DeletedAt()),
		ptr.Deref(first.DeletionGracePeriodSeconds, 0))
}

// waitingPVCs describes the PersistentVolumeClaims that wait for the given pods.
func (f view) waitingPVCs(pods []diagnosis.RemainingObject) []diagnosis.Evidence {
	var texts []string
	for _, object := range f.RemainingObjects() {
		if object.GroupResource() != diagnosis.PVCResource || object.DeletionTimestamp == nil {
			continue
		}
		for _, user := range f.podsUsing(object.Name) {
			isOne := slices.ContainsFunc(pods, func(pod diagnosis.RemainingObject) bool { return pod.Name == user.Name })
			if isOne && len(texts) < diagnosis.MaxObjects {
				texts = append(texts, fmt.Sprintf("persistentvolumeclaims %q is waiting for pod %q, which mounts it",
					object.Name, user.Name))
			}
		}
	}
	return diagnosis.Proven(texts...)
}

// podsUsing returns the pods that mount a PersistentVolumeClaim. Like the pvc-protection controller, it
// ignores pods that were never scheduled.
func (f view) podsUsing(claim string) []*corev1.Pod {
	var users []*corev1.Pod
	for i := range f.Pods {
		pod := &f.Pods[i]
		if pod.Spec.NodeName == "" {
			continue
		}
		if slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
			isEphemeral := volume.Ephemeral != nil && pod.Name+"-"+volume.Name == claim && !hasTerminated(pod)
			return volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == claim || isEphemeral
		}) {
			users = append(users, pod)
		}
	}
	return users
}

// gracePeriodsEnd returns when the grace periods of all pods have ended, or the zero time if there
// are no terminating pods.
func (f view) gracePeriodsEnd() time.Time {
	var last time.Time
	for _, object := range f.RemainingObjects() {
		if object.GroupResource() == diagnosis.PodResource && object.DeletedAt().After(last) {
			last = object.DeletedAt()
		}
	}
	return last
}

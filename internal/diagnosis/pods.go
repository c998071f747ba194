// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nslifecycle/nslifecycle/internal/shell"
)

const lossPod = "its containers may go on running on the node, with what they have mounted"

// findPods blames pods that have outlived their grace period, by why that is: the node, the
// kubelet on it, or a finalizer. The API server adds the grace period to deletionTimestamp.
func findPods(f *Facts) []Finding {
	overdue := slices.DeleteFunc(f.items(), func(i item) bool {
		return i.GroupResource() != podResource || !f.isOverdueItem(i)
	})
	if len(overdue) == 0 || f.isMoving(podResource) {
		return nil
	}
	byNode, byFinalizer, notEnding := f.sortPods(overdue)
	var findings []Finding
	for node, pods := range sorted(byNode) {
		findings = append(findings, f.blameNode(node, pods))
	}
	if len(notEnding) > 0 {
		findings = append(findings, f.blameKubelet(notEnding))
	}
	for finalizer, pods := range sorted(byFinalizer) {
		if !f.isReleaseRefused(pods[0], finalizer) && !f.isBeingReleased(finalizer) {
			findings = append(findings, f.blamePodFinalizer(finalizer, pods))
		}
	}
	return findings
}

// sortPods sorts pods by what holds them: a node, a finalizer, or neither of the two. A pod
// counts under each of its finalizers.
func (f *Facts) sortPods(pods []item) (byNode, byFinalizer map[string][]item, others []item) {
	byNode, byFinalizer = map[string][]item{}, map[string][]item{}
	for _, i := range pods {
		pod := f.podFor(i.UID)
		switch {
		case len(i.Finalizers) > 0 && (pod == nil || hasEnded(pod)):
			for _, finalizer := range i.Finalizers {
				byFinalizer[finalizer] = append(byFinalizer[finalizer], i)
			}
		case pod != nil && f.whatOfNode(pod.Spec.NodeName) != "":
			byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], i)
		default:
			others = append(others, i)
		}
	}
	return byNode, byFinalizer, others
}

func (f *Facts) podFor(uid types.UID) *corev1.Pod {
	for i := range f.Pods {
		if f.Pods[i].UID == uid {
			return &f.Pods[i]
		}
	}
	return nil
}

// hasEnded tells whether no kubelet has anything to do with a pod any more.
func hasEnded(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0
}

// readiness returns what a node says of itself, nil if it says nothing, and whether it is
// there.
func (f *Facts) readiness(name string) (condition *corev1.NodeCondition, isThere bool) {
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

// whatOfNode says what is wrong with a node; nothing if it is fine, or if that could not
// be read.
func (f *Facts) whatOfNode(name string) string {
	ready, isThere := f.readiness(name)
	switch {
	case !isThere && (name == "" || !f.isRead(SourceNodes)):
		return ""
	case !isThere:
		return fmt.Sprintf("node %q does not exist", name)
	case ready == nil || ready.Status == corev1.ConditionTrue:
		return ""
	}
	return fmt.Sprintf("node %q is Ready=%s since %s: %s", name, ready.Status,
		stamp(ready.LastTransitionTime.Time), ready.Reason) + f.detail(ready.Message)
}

// isSilent tells whether a node is gone or does not report any more. One that reports that
// it is not ready may still end its pods.
func (f *Facts) isSilent(name string) bool {
	ready, _ := f.readiness(name)
	return ready == nil || ready.Status == corev1.ConditionUnknown
}

func (f *Facts) blameNode(node string, pods []item) Finding {
	finding := Finding{
		Cause: CausePodOnUnreachableNode, Certainty: Likely,
		Message: fmt.Sprintf("%s should have ended %s ago on node %q, which is not there to end it: %s", describe(pods),
			f.ago(oldest(pods)), node, f.whatOfNode(node)),
		Evidence: append([]string{f.whatOfNode(node), f.notePod(pods)}, f.noteClaims(pods)...),
		Remedies: []string{
			shell.Command("kubectl get node %s --output=wide", node),
			"Restore the node; if it is lost for good, delete its Node object, which deletes the pods: " +
				shell.Command("kubectl delete node %s", node),
			shell.Command("kubectl taint node %s node.kubernetes.io/out-of-service=nodeshutdown:NoExecute", node),
			shell.Command("kubectl delete pod %s --namespace=%s --grace-period=0 --force", pods[0].Name, f.Namespace.Name),
		},
		Loss: lossPod,
	}
	if f.isSilent(node) {
		finding.Certainty = Proven
	}
	if strings.HasSuffix(f.whatOfNode(node), "does not exist") {
		finding.Remedies = finding.Remedies[3:]
	}
	return finding.some(pods)
}

func (f *Facts) blameKubelet(pods []item) Finding {
	finding := Finding{
		Cause: CausePodNotTerminating, Certainty: Likely,
		Message: fmt.Sprintf("%s should have ended %s ago, when the grace period was over", describe(pods),
			f.ago(oldest(pods))),
		Evidence: append([]string{f.notePod(pods)}, f.noteClaims(pods)...),
		Remedies: []string{
			shell.Command("kubectl describe pod %s --namespace=%s", pods[0].Name, f.Namespace.Name),
			"See the log of the kubelet on its node: a volume that cannot be unmounted, or a container that cannot be killed",
			shell.Command("kubectl delete pod %s --namespace=%s --grace-period=0 --force", pods[0].Name, f.Namespace.Name),
		},
		Loss: lossPod,
	}
	if pod := f.podFor(pods[0].UID); pod != nil && f.isRead(SourceNodes) {
		finding.Certainty = Proven
		finding.Message += fmt.Sprintf("; node %q is alive and has not reported its end", pod.Spec.NodeName)
	}
	return finding.some(pods)
}

func (f *Facts) blamePodFinalizer(finalizer string, pods []item) Finding {
	var finding Finding
	known, isKnown := lookUp(finalizer)
	if isKnown && known.manager != "" {
		finding = f.blameBuiltIn(finalizer, known, pods)
		if finding.Cause == CauseFinalizerPending {
			finding.Cause = CausePodFinalizer
		}
	} else {
		finding = f.blameOwner(finalizer, pods, CausePodFinalizer)
	}
	finding.Evidence = append(finding.Evidence, f.noteClaims(pods)...)
	return finding
}

func (f *Facts) notePod(pods []item) string {
	first := longestWaiting(pods)
	return fmt.Sprintf("pods %q has deletionTimestamp %s, its grace period of %ds included", first.Name,
		stamp(first.deletedAt()), ptr.Deref(first.DeletionGracePeriodSeconds, 0))
}

// noteClaims says which claims wait for some pods: these follow, and are no cause.
func (f *Facts) noteClaims(pods []item) []string {
	var texts []string
	for _, i := range f.items() {
		if i.GroupResource() != claimResource || i.DeletionTimestamp == nil {
			continue
		}
		for _, user := range f.usersOf(i.Name) {
			isOne := slices.ContainsFunc(pods, func(pod item) bool { return pod.Name == user.Name })
			if isOne && len(texts) < mostObjects {
				texts = append(texts, fmt.Sprintf("persistentvolumeclaims %q waits for pod %q, which mounts it", i.Name, user.Name))
			}
		}
	}
	return texts
}

// usersOf returns the pods that mount a claim, as the pvc-protection controller sees it:
// what was never scheduled does not count.
func (f *Facts) usersOf(claim string) []*corev1.Pod {
	var users []*corev1.Pod
	for i := range f.Pods {
		pod := &f.Pods[i]
		if pod.Spec.NodeName == "" {
			continue
		}
		if slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
			isOwn := volume.Ephemeral != nil && pod.Name+"-"+volume.Name == claim && !hasEnded(pod)
			return volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == claim || isOwn
		}) {
			users = append(users, pod)
		}
	}
	return users
}

// podsUntil returns when the grace period of the last pod is over; zero if there is none.
func (f *Facts) podsUntil() time.Time {
	var last time.Time
	for _, i := range f.items() {
		if i.GroupResource() == podResource && i.deletedAt().After(last) {
			last = i.deletedAt()
		}
	}
	return last
}

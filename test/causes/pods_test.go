// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// pod is a Pod of the scene on a node; only a kubelet would end it.
const pod = `
apiVersion: v1
kind: Pod
metadata: {namespace: $ns, name: web}
spec:
  nodeName: $id-node
  terminationGracePeriodSeconds: 1
  containers: [{name: web, image: registry.example.com/web}]
status: {phase: Running}
`

// node is a Node with the Lease of its kubelet.
const node = `
apiVersion: v1
kind: Node
metadata: {name: $id-node}
status:
  conditions:
  - {type: Ready, status: "$ready", reason: $reason, message: "$message", lastHeartbeatTime: $then, lastTransitionTime: $then}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: kube-node-lease, name: $id-node}
spec: {holderIdentity: $id-node, leaseDurationSeconds: 40, renewTime: "$renewed"}
`

func deadNode() string {
	return strings.NewReplacer("$ready", "Unknown", "$reason", "NodeStatusUnknown",
		"$message", "Kubelet stopped posting node status.", "$then", "2026-01-01T00:00:00Z",
		"$renewed", "2026-01-01T00:00:00.000000Z").Replace(node)
}

func liveNode() string {
	now := time.Now().UTC()
	return strings.NewReplacer("$ready", "True", "$reason", "KubeletReady",
		"$message", "kubelet is posting ready status", "$then", now.Format(time.RFC3339),
		"$renewed", now.Format("2006-01-02T15:04:05.000000Z")).Replace(node)
}

// endPod does what a kubelet does when a Pod has come to its end.
func (s *scene) endPod(ctx context.Context) {
	GinkgoHelper()
	object := s.objects(`{apiVersion: v1, kind: Pod, metadata: {namespace: $ns, name: web}}`)[0]
	Expect(admin.Delete(ctx, object, client.GracePeriodSeconds(0))).To(Succeed())
}

var _ = Describe("A pod", func() {
	It("on a node that is dead is never ended", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, deadNode())
		s.create(ctx, pod)
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CausePodOnUnreachableNode, "pods/web").
			saying(s.text("$id-node")).since("Kubelet stopped posting node status."))
		s.endPod(ctx)
		s.expectGone(ctx)
	})

	It("on a node that does not exist is never ended", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, pod)
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CausePodOnUnreachableNode, "pods/web").saying(s.text("$id-node")))
		s.endPod(ctx)
		s.expectGone(ctx)
	})

	It("on a node that is alive does not end", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, liveNode())
		s.create(ctx, pod)
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CausePodNotTerminating, "pods/web").saying(s.text("$id-node")))
		s.endPod(ctx)
		s.expectGone(ctx)
	})

	It("that has ended is held by a finalizer", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, strings.Replace(pod, "name: web}", "name: web, finalizers: [batch.kubernetes.io/job-tracking]}", 1))
		s.end(ctx)
		s.expectThere(ctx, pod, true)
		s.endPod(ctx)
		s.expectBlamed(ctx, likely(diagnosis.CausePodFinalizer, "pods/web").saying("batch.kubernetes.io/job-tracking"))
		release(ctx, s.objects(pod)[0])
		s.expectGone(ctx)
	})

	It("keeps a volume that it has mounted", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: $ns, name: data, finalizers: [kubernetes.io/pvc-protection]}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
		s.create(ctx, liveNode())
		s.create(ctx, strings.Replace(pod, "containers:",
			"volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n  containers:", 1))
		claim := s.objects(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {namespace: $ns, name: data}}`)[0]
		Expect(admin.Delete(ctx, claim)).To(Succeed())
		s.end(ctx)
		// The claim only follows.
		s.expectBlamed(ctx, confirmed(diagnosis.CausePodNotTerminating, "pods/web").
			since(`persistentvolumeclaims "data" waits for pod "web"`))
		s.endPod(ctx)
		release(ctx, claim)
		s.expectGone(ctx)
	})

	It("is not blamed while its grace period runs", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, deadNode())
		s.create(ctx, strings.Replace(pod, "GracePeriodSeconds: 1", "GracePeriodSeconds: 600", 1))
		s.create(ctx, settings)
		s.end(ctx)
		s.expectThere(ctx, pod, true)
		s.expectUnblamed(ctx, gatherer, 4*time.Second)
		s.endPod(ctx)
		s.expectGone(ctx)
	})
})

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

// pod runs on the fixture's node. It does not terminate, because no kubelet is running.
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

// node contains a Node and the Lease of its kubelet.
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

func unreachableNode() string {
	return strings.NewReplacer("$ready", "Unknown", "$reason", "NodeStatusUnknown",
		"$message", "Kubelet stopped posting node status.", "$then", "2026-01-01T00:00:00Z",
		"$renewed", "2026-01-01T00:00:00.000000Z").Replace(node)
}

func readyNode() string {
	now := time.Now().UTC()
	return strings.NewReplacer("$ready", "True", "$reason", "KubeletReady",
		"$message", "kubelet is posting ready status", "$then", now.Format(time.RFC3339),
		"$renewed", now.Format("2006-01-02T15:04:05.000000Z")).Replace(node)
}

// forceDeletePod deletes the pod as a kubelet does after the containers have stopped.
func (f *fixture) forceDeletePod(ctx context.Context) {
	GinkgoHelper()
	object := f.objects(`{apiVersion: v1, kind: Pod, metadata: {namespace: $ns, name: web}}`)[0]
	Expect(admin.Delete(ctx, object, client.GracePeriodSeconds(0))).To(Succeed())
}

var _ = Describe("A pod", func() {
	It("is reported on an unreachable node", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, unreachableNode())
		f.create(ctx, pod)
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CausePodOnUnreachableNode, "pods/web").
			withMessage(f.text("$id-node")).withEvidence("Kubelet stopped posting node status."))
		f.forceDeletePod(ctx)
		f.expectDeleted(ctx)
	})

	It("is reported on a node that does not exist", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, pod)
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CausePodOnUnreachableNode, "pods/web").withMessage(f.text("$id-node")))
		f.forceDeletePod(ctx)
		f.expectDeleted(ctx)
	})

	It("is reported if it does not terminate on a ready node", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, readyNode())
		f.create(ctx, pod)
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CausePodNotTerminating, "pods/web").withMessage(f.text("$id-node")))
		f.forceDeletePod(ctx)
		f.expectDeleted(ctx)
	})

	It("is not reported if a policy prevents the kubelet from deleting it", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, readyNode())
		f.create(ctx, pod)
		f.deleteNamespace(ctx)
		f.expectTerminating(ctx, pod)
		guard := strings.NewReplacer("$expression", "request.operation != 'DELETE'", "[configmaps]", "[pods]").Replace(policy)
		f.create(ctx, guard)
		f.expectDenied(ctx, pod, func(object client.Object) error {
			return admin.Delete(ctx, object, client.DryRunAll, client.GracePeriodSeconds(0))
		})
		f.expectFindings(ctx, proven(diagnosis.CauseAdmissionRefused, "pods/web").withMessage(f.text("$id-guard")))
		f.delete(ctx, guard)
		Eventually(func() error {
			return admin.Delete(ctx, f.objects(pod)[0], client.GracePeriodSeconds(0))
		}).WithContext(ctx).Should(Succeed())
		f.expectDeleted(ctx)
	})

	It("is reported if a finalizer remains after it has terminated", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, strings.Replace(pod, "name: web}", "name: web, finalizers: [batch.kubernetes.io/job-tracking]}", 1))
		f.deleteNamespace(ctx)
		f.expectTerminating(ctx, pod)
		f.forceDeletePod(ctx)
		f.expectFindings(ctx, inferred(diagnosis.CausePodFinalizer, "pods/web").withMessage("batch.kubernetes.io/job-tracking"))
		removeFinalizers(ctx, f.objects(pod)[0])
		f.expectDeleted(ctx)
	})

	It("is reported instead of a PersistentVolumeClaim that waits for it", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: $ns, name: data, finalizers: [kubernetes.io/pvc-protection]}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
		f.create(ctx, readyNode())
		f.create(ctx, strings.Replace(pod, "containers:",
			"volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n  containers:", 1))
		claim := f.objects(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {namespace: $ns, name: data}}`)[0]
		Expect(admin.Delete(ctx, claim)).To(Succeed())
		f.deleteNamespace(ctx)
		// The PersistentVolumeClaim is evidence and not a finding.
		f.expectFindings(ctx, proven(diagnosis.CausePodNotTerminating, "pods/web").
			withEvidence(`persistentvolumeclaims "data" is waiting for pod "web"`))
		f.forceDeletePod(ctx)
		removeFinalizers(ctx, claim)
		f.expectDeleted(ctx)
	})

	It("is not reported during its grace period", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, unreachableNode())
		f.create(ctx, strings.Replace(pod, "GracePeriodSeconds: 1", "GracePeriodSeconds: 600", 1))
		f.create(ctx, twoConfigMaps)
		f.deleteNamespace(ctx)
		f.expectTerminating(ctx, pod)
		f.expectNoFindings(ctx, collector, 4*time.Second)
		f.forceDeletePod(ctx)
		f.expectDeleted(ctx)
	})
})

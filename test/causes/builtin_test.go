// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

var _ = Describe("A finalizer of Kubernetes itself", func() {
	It("waits for a load balancer to be removed", func(ctx context.Context) {
		s := newScene(ctx)
		const service = `
apiVersion: v1
kind: Service
metadata: {namespace: $ns, name: web, finalizers: [service.kubernetes.io/load-balancer-cleanup]}
spec: {type: LoadBalancer, ports: [{port: 80}]}
`
		s.create(ctx, service)
		s.end(ctx)
		s.expectBlamed(ctx, likely(diagnosis.CauseCloudResource, "services/web").
			since("service.kubernetes.io/load-balancer-cleanup"))
		release(ctx, s.objects(service)[0])
		s.expectGone(ctx)
	})

	It("is left of a deletion in the foreground", func(ctx context.Context) {
		s := newScene(ctx)
		const owner = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: owner}}`
		s.create(ctx, owner)
		// As long as there is a pod, nothing else is deleted in the background, which would
		// call the deletion in the foreground off.
		s.create(ctx, liveNode())
		s.create(ctx, strings.Replace(pod, "GracePeriodSeconds: 1", "GracePeriodSeconds: 600", 1))
		Expect(admin.Delete(ctx, s.objects(owner)[0], client.PropagationPolicy("Foreground"))).To(Succeed())
		s.end(ctx)
		s.expectBlamed(ctx, likely(diagnosis.CauseForegroundDeletion, "configmaps/owner").saying("garbage collector"))
		s.endPod(ctx)
		s.expectGone(ctx)
	})

	It("is left of a deletion in the foreground, for a dependent that nobody deletes", func(ctx context.Context) {
		s := newScene(ctx)
		const owner = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: owner}}`
		uid := s.create(ctx, owner)[0].GetUID()
		s.create(ctx, strings.ReplaceAll(`
apiVersion: v1
kind: ConfigMap
metadata:
  namespace: $ns
  name: dependent
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: $uid, blockOwnerDeletion: true}]
`, "$uid", string(uid)))
		s.create(ctx, liveNode())
		s.create(ctx, strings.Replace(pod, "GracePeriodSeconds: 1", "GracePeriodSeconds: 600", 1))
		Expect(admin.Delete(ctx, s.objects(owner)[0], client.PropagationPolicy("Foreground"))).To(Succeed())
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CauseForegroundDeletion, "configmaps/owner").since(`configmaps "dependent"`))
		s.endPod(ctx)
		s.expectGone(ctx)
	})

	It("waits for kube-controller-manager, which does not run", func(ctx context.Context) {
		s := newScene(ctx)
		const claim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: $ns, name: data, finalizers: [kubernetes.io/pvc-protection]}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`
		s.create(ctx, claim)
		s.create(ctx, `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: kube-system, name: kube-controller-manager}
spec: {holderIdentity: control-plane_1, leaseDurationSeconds: 15, renewTime: "2026-01-01T00:00:00.000000Z"}
`)
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CauseFinalizerOwnerGone, "persistentvolumeclaims/data").
			saying("kubernetes.io/pvc-protection", "kube-controller-manager"))
		release(ctx, s.objects(claim)[0])
		s.expectGone(ctx)
	})
})

var _ = Describe("A custom resource that needs another one", func() {
	It("is told from what it says itself", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, strings.Replace(definition, "    storage: true", "    storage: true\n    subresources: {status: {}}", 1))
		s.changeDefinition(ctx, preserveStatus)
		s.createOperator(ctx)
		s.create(ctx, heldWidget+`
status:
  conditions:
  - {type: Ready, status: "False", reason: DeletionFailed, lastTransitionTime: "2026-01-01T00:00:00Z",
     message: 'cannot log in to the database: secrets "admin-password" not found'}
`)
		s.end(ctx)
		s.expectBlamed(ctx, likely(diagnosis.CauseDependencyDeleted, s.text("widgets.$id.example.com/held")).
			saying("admin-password"))
		release(ctx, s.objects(heldWidget)[0])
		s.expectGone(ctx)
	})
})

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

var _ = Describe("A built-in finalizer", func() {
	It("is reported if a load balancer is not deleted", func(ctx context.Context) {
		f := newFixture(ctx)
		const service = `
apiVersion: v1
kind: Service
metadata: {namespace: $ns, name: web, finalizers: [service.kubernetes.io/load-balancer-cleanup]}
spec: {type: LoadBalancer, ports: [{port: 80}]}
`
		f.create(ctx, service)
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, inferred(diagnosis.CauseCloudResource, "services/web").
			withEvidence("service.kubernetes.io/load-balancer-cleanup"))
		removeFinalizers(ctx, f.objects(service)[0])
		f.expectDeleted(ctx)
	})

	It("is reported after a foreground deletion", func(ctx context.Context) {
		f := newFixture(ctx)
		const owner = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: owner}}`
		f.create(ctx, owner)
		// The namespace controller does not delete the owner while pods remain. A background
		// deletion would cancel the foreground deletion.
		f.create(ctx, readyNode())
		f.create(ctx, strings.Replace(pod, "GracePeriodSeconds: 1", "GracePeriodSeconds: 600", 1))
		Expect(admin.Delete(ctx, f.objects(owner)[0], client.PropagationPolicy("Foreground"))).To(Succeed())
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, inferred(diagnosis.CauseForegroundDeletion, "configmaps/owner").withMessage("garbage collector"))
		f.forceDeletePod(ctx)
		f.expectDeleted(ctx)
	})

	It("is reported after a foreground deletion with a dependent that is not deleted", func(ctx context.Context) {
		f := newFixture(ctx)
		const owner = `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: $ns, name: owner}}`
		uid := f.create(ctx, owner)[0].GetUID()
		f.create(ctx, strings.ReplaceAll(`
apiVersion: v1
kind: ConfigMap
metadata:
  namespace: $ns
  name: dependent
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: $uid, blockOwnerDeletion: true}]
`, "$uid", string(uid)))
		f.create(ctx, readyNode())
		f.create(ctx, strings.Replace(pod, "GracePeriodSeconds: 1", "GracePeriodSeconds: 600", 1))
		Expect(admin.Delete(ctx, f.objects(owner)[0], client.PropagationPolicy("Foreground"))).To(Succeed())
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CauseForegroundDeletion, "configmaps/owner").withEvidence(`configmaps "dependent"`))
		f.forceDeletePod(ctx)
		f.expectDeleted(ctx)
	})

	It("is reported if kube-controller-manager is not running", func(ctx context.Context) {
		f := newFixture(ctx)
		const claim = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: $ns, name: data, finalizers: [kubernetes.io/pvc-protection]}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`
		f.create(ctx, claim)
		f.create(ctx, `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {namespace: kube-system, name: kube-controller-manager}
spec: {holderIdentity: control-plane_1, leaseDurationSeconds: 15, renewTime: "2026-01-01T00:00:00.000000Z"}
`)
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, inferred(diagnosis.CauseFinalizerOwnerNotRunning, "persistentvolumeclaims/data").
			withMessage("kubernetes.io/pvc-protection", "kube-controller-manager"))
		removeFinalizers(ctx, f.objects(claim)[0])
		f.expectDeleted(ctx)
	})
})

var _ = DescribeTable("A custom resource that cannot be finalized is reported with its condition",
	func(ctx context.Context, condition string, expected expectedFinding) {
		f := newFixture(ctx)
		f.create(ctx, strings.Replace(definition, "    storage: true", "    storage: true\n    subresources: {status: {}}", 1))
		f.changeDefinition(ctx, preserveStatus)
		f.createOperator(ctx)
		f.create(ctx, heldWidget+"status: {conditions: ["+condition+"]}\n")
		f.deleteNamespace(ctx)
		expected.objects = []string{f.text("widgets.$id.example.com/held")}
		f.expectFindings(ctx, expected)
		removeFinalizers(ctx, f.objects(heldWidget)[0])
		f.expectDeleted(ctx)
	},
	Entry("that names an object that does not exist", `{type: Ready, status: "False", reason: DeletionFailed,
     lastTransitionTime: "2026-01-01T00:00:00Z", message: 'cannot log in to the database: secrets "admin-password" not found'}`,
		published(diagnosis.CauseDependencyMissing).withMessage("admin-password").
			withEvidence(`secrets "admin-password" does not exist in the namespace`)),
	Entry("that reports an error of a storage provider", `{type: Synced, status: "False", reason: ReconcileError,
     lastTransitionTime: "2026-01-01T00:00:00Z", message: 'cannot delete S3 bucket: BucketNotEmpty'}`,
		published(diagnosis.CauseFinalizerOwnerFailing).
			withMessage("condition Synced=False, ReconcileError: cannot delete S3 bucket: BucketNotEmpty")),
)

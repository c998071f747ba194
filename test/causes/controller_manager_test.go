// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// workload contains a Deployment with a volume, and a Job.
const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: $ns, name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeName: $id-node
      terminationGracePeriodSeconds: 2
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
      containers: [{name: web, image: registry.example.com/web}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: $ns, name: data}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
---
apiVersion: batch/v1
kind: Job
metadata: {namespace: $ns, name: report}
spec:
  template:
    spec:
      nodeName: $id-node
      terminationGracePeriodSeconds: 2
      restartPolicy: Never
      containers: [{name: report, image: registry.example.com/report}]
`

// simulateKubelet deletes the pods in the namespace after their grace periods, until the context is
// canceled.
func (f *fixture) simulateKubelet(ctx context.Context, admin client.Client) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(f.ns)); err != nil {
			continue
		}
		for i := range list.Items {
			if at := list.Items[i].DeletionTimestamp; at != nil && time.Now().After(at.Time) {
				_ = admin.Delete(ctx, &list.Items[i], client.GracePeriodSeconds(0))
			}
		}
	}
}

// In these specs, kube-controller-manager runs without any component of this project.
var _ = Describe("With kube-controller-manager alone", Ordered, func() {
	BeforeAll(func(ctx context.Context) {
		originalPlane, originalAdmin, originalCollector := plane, admin, collector
		upstream, err := controlplane.Start(ctx)
		Expect(err).NotTo(HaveOccurred())
		plane, admin, collector = upstream, framework.NewClient(upstream.Admin, apiextensionsv1.AddToScheme), newCollector(upstream.Admin)
		DeferCleanup(func() {
			plane, admin, collector = originalPlane, originalAdmin, originalCollector
			Expect(upstream.Stop()).To(Succeed())
		})
		controllerManager, err := upstream.StartControllerManager(ctx, "--controllers=*")
		if errors.Is(err, controlplane.ErrNoControllerManager) {
			Skip(err.Error())
		}
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(controllerManager.Stop()).To(Succeed()) })
	}, NodeTimeout(10*time.Minute))

	It("a namespace with a workload has no findings while its deletion makes progress", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, readyNode())
		f.create(ctx, workload)
		pods := &corev1.PodList{}
		Eventually(func(g Gomega) {
			g.Expect(admin.List(ctx, pods, client.InNamespace(f.ns))).To(Succeed())
			g.Expect(pods.Items).To(HaveLen(4))
		}).WithContext(ctx).Should(Succeed())
		kubelet, stop := context.WithCancel(ctx)
		DeferCleanup(stop)
		go f.simulateKubelet(kubelet, admin)
		f.delete(ctx, f.manifest())
		Expect(f.expectNoFindingsUntilDeleted(ctx, newCollectorWithDeadline(diagnosis.DefaultProgressDeadline))).To(BeNumerically(">", 1))
	}, SpecTimeout(15*time.Minute))

	It("a finalizer that blocks the deletion is the only finding", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, heldConfigMap)
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, inferred(diagnosis.CauseFinalizerOwnerNotFound, "configmaps/held").withMessage(testFinalizer))
		removeFinalizers(ctx, f.objects(heldConfigMap)[0])
		f.expectDeleted(ctx)
	})
})

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

// workload is what people have in a namespace.
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

// playKubelet ends pods of the scene's namespace when their time is up, until the context
// ends.
func (s *scene) playKubelet(ctx context.Context, admin client.Client) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(s.ns)); err != nil {
			continue
		}
		for i := range list.Items {
			if at := list.Items[i].DeletionTimestamp; at != nil && time.Now().After(at.Time) {
				_ = admin.Delete(ctx, &list.Items[i], client.GracePeriodSeconds(0))
			}
		}
	}
}

// What comes from kube-controller-manager, without anything of this project in the cluster.
var _ = Describe("With kube-controller-manager alone", Ordered, func() {
	BeforeAll(func(ctx context.Context) {
		ownPlane, ownAdmin, ownGatherer := plane, admin, gatherer
		stock, err := controlplane.Start(ctx)
		Expect(err).NotTo(HaveOccurred())
		plane, admin, gatherer = stock, framework.NewClient(stock.Admin, apiextensionsv1.AddToScheme), newGatherer(stock.Admin)
		DeferCleanup(func() {
			plane, admin, gatherer = ownPlane, ownAdmin, ownGatherer
			Expect(stock.Stop()).To(Succeed())
		})
		peer, err := stock.StartControllerManager(ctx, "--controllers=*")
		if errors.Is(err, controlplane.ErrNoControllerManager) {
			Skip(err.Error())
		}
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(peer.Stop()).To(Succeed()) })
	}, NodeTimeout(2*time.Minute))

	It("a namespace with a workload is not blamed while it goes", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, liveNode())
		s.create(ctx, workload)
		pods := &corev1.PodList{}
		Eventually(func(g Gomega) {
			g.Expect(admin.List(ctx, pods, client.InNamespace(s.ns))).To(Succeed())
			g.Expect(pods.Items).To(HaveLen(4))
		}).WithContext(ctx).Should(Succeed())
		kubelet, stop := context.WithCancel(ctx)
		DeferCleanup(stop)
		go s.playKubelet(kubelet, admin)
		s.delete(ctx, s.manifest())
		Expect(s.expectUnblamedUntilGone(ctx, patient(diagnosis.DefaultProgressDeadline))).To(BeNumerically(">", 1))
	}, SpecTimeout(3*time.Minute))

	It("a finalizer is blamed, and nothing else", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, heldSettings)
		s.end(ctx)
		s.expectBlamed(ctx, likely(diagnosis.CauseFinalizerOwnerGone, "configmaps/held").saying(testFinalizer))
		release(ctx, s.objects(heldSettings)[0])
		s.expectGone(ctx)
	})
})

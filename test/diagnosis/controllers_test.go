// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	nsmanager "github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// postToEtcd sends a request to etcd, bypassing the API server.
func postToEtcd(ctx context.Context, path string, fields map[string]string) {
	GinkgoHelper()
	encoded := map[string]string{}
	for name, value := range fields {
		encoded[name] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	body, err := json.Marshal(encoded)
	Expect(err).NotTo(HaveOccurred())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, cluster.EtcdURL()+path, bytes.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	Expect(response.StatusCode).To(Equal(http.StatusOK))
}

var _ = Describe("The namespace controller", func() {
	It("is reported if it is not running", func(ctx context.Context) {
		stopManager()
		f := newFixture(ctx)
		f.create(ctx, twoConfigMaps)
		f.delete(ctx, f.manifest())
		// The cause is Inferred, because a namespace controller can run without a Lease.
		f.expectFindings(ctx, inferred(diagnosis.CauseNamespaceControllerUnresponsive, "namespaces/$ns"))

		By("starting another manager")
		startManager(ctx)
		f.expectDeleted(ctx)
	})

	It("is reported if it is not authorized to delete a resource type", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, twoConfigMaps)
		stopManager()
		f.startRestricted(ctx)
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, published(diagnosis.CauseForbidden).withMessage("configmaps").withEvidence("cannot delete resource"))

		By("granting the permission")
		role := &rbacv1.ClusterRole{}
		role.Name = f.text("$id-restricted")
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(role), role)).To(Succeed())
		role.Rules = append(role.Rules, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"delete"},
		})
		Expect(admin.Update(ctx, role)).To(Succeed())
		f.expectDeleted(ctx)
	})

	It("is reported if the API server throttles it", func(ctx context.Context) {
		f, other := newFixture(ctx), newFixture(ctx)
		f.create(ctx, twoConfigMaps)
		other.create(ctx, twoConfigMaps)
		f.create(ctx, noConcurrency)
		config, err := cluster.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		as := framework.NewClient(config)
		// The policy confine denies such a request by the manager before the webhook is called.
		occupant, err := cluster.User(f.text("$id-occupant"))
		Expect(err).NotTo(HaveOccurred())
		release := occupySeat(ctx, framework.NewUser(occupant), other)
		Eventually(func() error {
			return as.Delete(ctx, f.objects(twoConfigMaps)[0], client.DryRunAll)
		}).WithContext(ctx).Should(MatchError(ContainSubstring("too many requests")))
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, published(diagnosis.CauseThrottled))
		By("finalizing another namespace, which is not throttled")
		another := newFixture(ctx)
		another.delete(ctx, another.manifest())
		another.expectDeleted(ctx)
		f.delete(ctx, noConcurrency)
		release()
		f.expectDeleted(ctx)
	})

	It("is reported if it cannot read a corrupt object from storage", func(ctx context.Context) {
		f := newFixture(ctx)
		f.create(ctx, definition)
		f.create(ctx, heldWidget)
		key := f.text("/registry/$id.example.com/widgets/$ns/damaged")
		postToEtcd(ctx, "/v3/kv/put", map[string]string{"key": key, "value": "not an object"})
		DeferCleanup(func(ctx context.Context) { postToEtcd(ctx, "/v3/kv/deleterange", map[string]string{"key": key}) })
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, proven(diagnosis.CauseStorageUnreadable).withMessage("widgets.$id.example.com"))
		postToEtcd(ctx, "/v3/kv/deleterange", map[string]string{"key": key})
		f.expectTerminating(ctx, heldWidget)
		removeFinalizers(ctx, f.objects(heldWidget)[0])
		f.expectDeleted(ctx)
	})
})

// occupySeat occupies the seat of noConcurrency with a dry-run deletion of an object in twoConfigMaps, which a webhook
// blocks until the returned function is called.
func occupySeat(ctx context.Context, as client.Client, f *fixture) (release func()) {
	GinkgoHelper()
	received, unblock := make(chan struct{}, 1), make(chan struct{})
	f.create(ctx, makeWebhook("Validating", serveWebhook(http.StatusForbidden, func(request *admissionv1.AdmissionRequest) string {
		if request.DryRun == nil || !*request.DryRun {
			return ""
		}
		select {
		case received <- struct{}{}:
		default:
		}
		<-unblock
		return "the seat is released"
	}), 30))
	object := f.objects(twoConfigMaps)[0]
	var group sync.WaitGroup
	// When a call of the webhook times out, another request must occupy the seat before the manager does.
	for range 2 {
		group.Go(func() {
			for {
				// It also fails if the API server does not call the webhook yet, throttles the request, or times out.
				_ = as.Delete(ctx, object, client.DryRunAll)
				select {
				case <-unblock:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	release = sync.OnceFunc(func() {
		close(unblock)
		group.Wait()
	})
	DeferCleanup(release)
	Eventually(received).WithContext(ctx).Should(Receive(), "a request must occupy the seat")
	return release
}

// noConcurrency limits the deletions of ConfigMaps by the manager and a user to one seat without a queue, which is
// the lowest limit in API Priority and Fairness.
const noConcurrency = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: $id-occupant}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $id-occupant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: $id-occupant}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: $id-occupant}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: $id-nothing}
spec:
  type: Limited
  limited: {nominalConcurrencyShares: 0, lendablePercent: 0, borrowingLimitPercent: 0, limitResponse: {type: Reject}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: $id-deletions}
spec:
  priorityLevelConfiguration: {name: $id-nothing}
  matchingPrecedence: 2
  rules:
  - subjects:
    - kind: ServiceAccount
      serviceAccount: {namespace: ` + controlplane.SystemNamespace + `, name: ` + controlplane.ServiceAccount + `}
    - {kind: User, user: {name: $id-occupant}}
    resourceRules:
    - {verbs: [delete], apiGroups: [""], resources: [configmaps], namespaces: ["*"]}
`

// startRestricted runs a manager that cannot delete ConfigMaps but otherwise has the permissions of
// the shared manager.
func (f *fixture) startRestricted(ctx context.Context) {
	GinkgoHelper()
	f.create(ctx, `
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: default, name: $id-restricted}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: $id-restricted}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: [list, watch]}
- {apiGroups: [apps, batch, coordination.k8s.io, rbac.authorization.k8s.io], resources: ["*"], verbs: [delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $id-restricted}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: $id-restricted}
subjects:
- {kind: ServiceAccount, namespace: default, name: $id-restricted}
`)
	shared, own := &rbacv1.ClusterRole{}, &rbacv1.ClusterRole{}
	Expect(admin.Get(ctx, client.ObjectKey{Name: "nslifecycle-finalization-role"}, shared)).To(Succeed())
	Expect(admin.Get(ctx, client.ObjectKey{Name: f.text("$id-restricted")}, own)).To(Succeed())
	own.Rules = append(own.Rules, shared.Rules...)
	Expect(admin.Update(ctx, own)).To(Succeed())
	config, err := cluster.ServiceAccountConfig(ctx, "default", f.text("$id-restricted"))
	Expect(err).NotTo(HaveOccurred())
	restricted, err := controlplane.RunManager(ctx, config, func(options *nsmanager.Options) {
		options.Controllers = nsmanager.Controllers{nsmanager.Finalization: true}
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(restricted.Stop()).To(Succeed()) })
}

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
		originalCluster, originalAdmin, originalCollector := cluster, admin, collector
		DeferCleanup(func() { cluster, admin, collector = originalCluster, originalAdmin, originalCollector })
		startControlPlane(ctx)
		controllerManager, err := cluster.StartControllerManager(ctx, "--controllers=*")
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
		f.expectStuck(ctx, inferred(diagnosis.CauseFinalizerOwnerNotFound, "configmaps/held").withMessage(testFinalizer), removeFinalizersOf(heldConfigMap))
	})
})

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	nsmanager "github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// stopManager stops the shared manager until the spec ends.
func stopManager() {
	GinkgoHelper()
	Expect(manager.Stop()).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		restarted, err := plane.StartManager(ctx)
		Expect(err).NotTo(HaveOccurred())
		manager = restarted
	})
}

// postToEtcd sends a request to etcd, bypassing the API server.
func postToEtcd(ctx context.Context, path string, fields map[string]string) {
	GinkgoHelper()
	encoded := map[string]string{}
	for name, value := range fields {
		encoded[name] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	body, err := json.Marshal(encoded)
	Expect(err).NotTo(HaveOccurred())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, plane.EtcdURL()+path, bytes.NewReader(body))
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
		// The cause is Likely because a namespace controller can run without a Lease.
		f.expectFindings(ctx, inferred(diagnosis.CauseNamespaceControllerUnresponsive, "namespaces/"+f.ns))

		By("starting another manager")
		other, err := plane.StartManager(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(other.Stop()).To(Succeed()) })
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
		config, err := plane.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		as := framework.NewClient(config)
		// The policy confine denies such a request by the manager before the webhook is called.
		occupant, err := plane.User(f.text("$id-occupant"))
		Expect(err).NotTo(HaveOccurred())
		release := framework.OccupySeat(ctx, framework.NewUser(occupant), other.objects(twoConfigMaps)[0],
			func(denialReason func(*admissionv1.AdmissionRequest) string) {
				other.create(ctx, makeWebhook("Validating", serveWebhook(http.StatusForbidden, denialReason), 30))
			})
		Eventually(func() error {
			return as.Delete(ctx, f.objects(twoConfigMaps)[0], client.DryRunAll)
		}).WithContext(ctx).Should(MatchError(ContainSubstring("too many requests")))
		f.deleteNamespace(ctx)
		f.expectFindings(ctx, published(diagnosis.CauseThrottled))
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
		f.expectFindings(ctx, proven(diagnosis.CauseStorageUnreadable).withMessage(f.text("widgets.$id.example.com")))
		postToEtcd(ctx, "/v3/kv/deleterange", map[string]string{"key": key})
		f.expectTerminating(ctx, heldWidget)
		removeFinalizers(ctx, f.objects(heldWidget)[0])
		f.expectDeleted(ctx)
	})
})

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
	config, err := plane.ServiceAccountConfig(ctx, "default", f.text("$id-restricted"))
	Expect(err).NotTo(HaveOccurred())
	restricted, err := controlplane.RunManager(ctx, config, func(options *nsmanager.Options) {
		options.Controllers = nsmanager.Controllers{nsmanager.Finalization: true}
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(restricted.Stop()).To(Succeed()) })
}

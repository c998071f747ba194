// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	nsmanager "github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// stopManager stops the shared manager for the rest of the spec.
func stopManager() {
	GinkgoHelper()
	Expect(manager.Stop()).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		restarted, err := plane.StartManager(ctx)
		Expect(err).NotTo(HaveOccurred())
		manager = restarted
	})
}

// etcd sends a request to etcd, past the API server.
func etcd(ctx context.Context, path string, fields map[string]string) {
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
	It("that does not run leaves everything as it is", func(ctx context.Context) {
		stopManager()
		s := newScene(ctx)
		s.create(ctx, settings)
		s.delete(ctx, s.manifest())
		// It may be one that holds no Lease.
		s.expectBlamed(ctx, likely(diagnosis.CauseNamespaceControllerUnresponsive, "namespaces/"+s.ns))

		By("running it again")
		other, err := plane.StartManager(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(other.Stop()).To(Succeed()) })
		s.expectGone(ctx)
	})

	It("that may not delete a type says so", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, settings)
		stopManager()
		s.startRestricted(ctx)
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CauseForbidden).saying("configmaps").since("cannot delete resource"))

		By("giving it the right")
		role := &rbacv1.ClusterRole{}
		role.Name = s.text("$id-restricted")
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(role), role)).To(Succeed())
		role.Rules = append(role.Rules, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"delete"},
		})
		Expect(admin.Update(ctx, role)).To(Succeed())
		s.expectGone(ctx)
	})

	It("that the API server puts off says so", func(ctx context.Context) {
		s, other := newScene(ctx), newScene(ctx)
		s.create(ctx, settings)
		other.create(ctx, settings)
		s.create(ctx, noRoom)
		config, err := plane.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		stop := other.occupy(ctx, framework.NewClient(config, apiextensionsv1.AddToScheme))
		Eventually(func() error {
			return framework.NewClient(config, apiextensionsv1.AddToScheme).Delete(ctx, s.objects(settings)[0], client.DryRunAll)
		}).WithContext(ctx).Should(MatchError(ContainSubstring("too many requests")))
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CauseThrottled))
		s.delete(ctx, noRoom)
		stop()
		s.expectGone(ctx)
	})

	It("cannot read what is damaged in storage", func(ctx context.Context) {
		s := newScene(ctx)
		s.create(ctx, definition)
		s.create(ctx, heldWidget)
		key := s.text("/registry/$id.example.com/widgets/$ns/damaged")
		etcd(ctx, "/v3/kv/put", map[string]string{"key": key, "value": "this is no object"})
		DeferCleanup(func(ctx context.Context) { etcd(ctx, "/v3/kv/deleterange", map[string]string{"key": key}) })
		s.end(ctx)
		s.expectBlamed(ctx, confirmed(diagnosis.CauseStorageUnreadable).saying(s.text("widgets.$id.example.com")))
		etcd(ctx, "/v3/kv/deleterange", map[string]string{"key": key})
		s.expectThere(ctx, heldWidget, true)
		release(ctx, s.objects(heldWidget)[0])
		s.expectGone(ctx)
	})
})

// noRoom leaves the manager's deletions of ConfigMaps no more than one place in the API
// server, and none to wait in: the least that it can be given.
const noRoom = `
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
    resourceRules:
    - {verbs: [delete], apiGroups: [""], resources: [configmaps], namespaces: ["*"]}
`

// occupy keeps a deletion in the namespace of the scene going, by a webhook that does not
// answer, until the function that it returns is called.
func (s *scene) occupy(ctx context.Context, as client.Client) (stop func()) {
	GinkgoHelper()
	asked, letGo := make(chan struct{}, 1), make(chan struct{})
	config := answering(func(*admissionv1.AdmissionRequest) string {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-letGo
		return ""
	})
	s.create(ctx, strings.NewReplacer("$kind", "Validating", "$client", config, "timeoutSeconds: 2", "timeoutSeconds: 30").
		Replace(webhook))
	running, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		for running.Err() == nil {
			// It fails for want of a place, or of an answer, and is made again.
			_ = as.Delete(running, s.objects(settings)[0], client.DryRunAll)
		}
	})
	stop = sync.OnceFunc(func() {
		close(letGo)
		cancel()
		group.Wait()
	})
	DeferCleanup(stop)
	Eventually(asked).WithContext(ctx).Should(Receive())
	return stop
}

// startRestricted runs a manager that may do what the shared one may, but delete
// ConfigMaps.
func (s *scene) startRestricted(ctx context.Context) {
	GinkgoHelper()
	s.create(ctx, `
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
	Expect(admin.Get(ctx, client.ObjectKey{Name: "nslifecycle-manager-role"}, shared)).To(Succeed())
	Expect(admin.Get(ctx, client.ObjectKey{Name: s.text("$id-restricted")}, own)).To(Succeed())
	for _, rule := range shared.Rules {
		if !slices.Contains(rule.Resources, "*") {
			own.Rules = append(own.Rules, rule)
		}
	}
	Expect(admin.Update(ctx, own)).To(Succeed())
	config, err := plane.ServiceAccountConfig(ctx, "default", s.text("$id-restricted"))
	Expect(err).NotTo(HaveOccurred())
	restricted, err := controlplane.RunManager(ctx, config, func(options *nsmanager.Options) {
		options.Controllers = nsmanager.Controllers{nsmanager.Finalization: true}
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(restricted.Stop()).To(Succeed()) })
}

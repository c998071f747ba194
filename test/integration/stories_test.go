// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/initializers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

var _ = Describe("An initializer in the user stories of the KEP", func() {
	// The creator can only create and read namespaces. An initializer must grant all permissions in
	// the namespace.
	const creator = "user1@corp.example.com"

	It("creates policies before the creator gains permissions in the namespace", func(ctx context.Context) {
		policy := installInitializer(ctx, initializers.PolicyManifest, initializers.PolicyAccount)
		owner := installInitializer(ctx, initializers.OwnerManifest, initializers.OwnerAccount)
		confined := func(account string) v1alpha1.InitializerSettings {
			return v1alpha1.InitializerSettings{
				Confinement: v1alpha1.ConfinementInitializingNamespaces,
				Subjects:    []v1alpha1.Subject{{Kind: v1alpha1.SubjectServiceAccount, Namespace: account, Name: account}},
			}
		}
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("policies").
			Initializer("quota.policy.example.com", confined(initializers.PolicyAccount)).
			Initializer("owner.policy.example.com", confined(initializers.OwnerAccount)))
		Eventually(func() error {
			return framework.NewUser(owner).Patch(ctx, wrappers.MakeNamespace(preExistingName).Obj(), client.RawPatch(
				types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)), client.DryRunAll)
		}).WithContext(ctx).Should(BeForbiddenBy(v1alpha1.PolicyConfinedInitializers))
		serve(ctx, policy, "quota.policy.example.com", initializers.Policy)
		serve(ctx, owner, "owner.policy.example.com", initializers.Owner)

		for _, creator := range []string{creator, "system:serviceaccount:ci:pipeline"} {
			config := newCreator(ctx, creator)
			name := framework.Unique("population")
			_, err := cluster.Kubectl(ctx, config, "create", "namespace", name)
			Expect(err).NotTo(HaveOccurred())
			_, err = cluster.Kubectl(ctx, config, "wait", "--for=condition=Initializing=False", "namespace/"+name, "--timeout=30s")
			Expect(err).NotTo(HaveOccurred())

			var quotas corev1.ResourceQuotaList
			Expect(cluster.Admin.List(ctx, &quotas, client.InNamespace(name))).To(Succeed())
			Expect(quotas.Items).To(HaveLen(1))
			var networkPolicies networkingv1.NetworkPolicyList
			Expect(cluster.Admin.List(ctx, &networkPolicies, client.InNamespace(name))).To(Succeed())
			Expect(networkPolicies.Items).To(HaveLen(1))

			user := framework.NewUser(config)
			Eventually(user.Create).WithContext(ctx).WithArguments(wrappers.MakeConfigMap(name, "mine")).Should(Succeed())
			Expect(user.Create(ctx, wrappers.MakeConfigMap(preExistingName, "not-mine"))).To(Satisfy(apierrors.IsForbidden))
		}
	}, SpecTimeout(5*time.Minute))

	It("provisions an external service for 20 seconds, during which other users cannot write to the namespace", func(ctx context.Context) {
		indices := newIndexServer(20 * time.Second)
		DeferCleanup(indices.Close)
		cluster.Register(ctx, "external", "index.search.example.com")
		serve(ctx, cluster.Initializer.Config, "index.search.example.com", indices.provision)

		created := time.Now()
		name := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("external")).Name
		attempts := 0
		for !indices.has(name) {
			attempts++
			err := cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(name, fmt.Sprintf("early-%d", attempts)))
			if indices.has(name) {
				break // The initialization completed while the request was in progress.
			}
			Expect(err).To(BeForbiddenBy("gate", "index.search.example.com"))
			time.Sleep(200 * time.Millisecond)
		}
		Expect(time.Since(created)).To(BeNumerically(">=", 20*time.Second))
		Expect(attempts).To(BeNumerically(">", 20))
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(name).
			Should(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonCompleted))
		Eventually(cluster.Ordinary.Create).WithContext(ctx).WithArguments(wrappers.MakeConfigMap(name, "late")).Should(Succeed())
	}, SpecTimeout(5*time.Minute))
})

// installInitializer installs the ServiceAccount of an initializer with its permissions and returns
// the client configuration of the ServiceAccount.
func installInitializer(ctx context.Context, manifest, account string) *rest.Config {
	GinkgoHelper()
	_, err := cluster.KubectlWithInput(ctx, cluster.Admin.Config, manifest, "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
	config, err := cluster.ServiceAccountConfig(ctx, account, account)
	Expect(err).NotTo(HaveOccurred())
	return config
}

// indexServer is a search engine that creates indices slowly.
type indexServer struct {
	*httptest.Server
	lock    sync.Mutex
	indices map[string]bool
}

func newIndexServer(delay time.Duration) *indexServer {
	server := &indexServer{indices: map[string]bool{}}
	server.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		select {
		case <-request.Context().Done():
			return
		case <-time.After(delay):
		}
		server.lock.Lock()
		defer server.lock.Unlock()
		server.indices[request.URL.Path] = true
		w.WriteHeader(http.StatusCreated)
	}))
	return server
}

func (s *indexServer) has(name string) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.indices["/"+name]
}

// provision is a Work function that creates an index.
func (s *indexServer) provision(ctx context.Context, _ kubernetes.Interface, namespace *corev1.Namespace) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL+"/"+namespace.Name, nil)
	if err != nil {
		return err
	}
	response, err := s.Client().Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusCreated {
		return fmt.Errorf("failed to create index: %s", response.Status)
	}
	return nil
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/nslifecycle/nslifecycle/test/controlplane"
)

// access is one thing to do: a verb, a group and a resource with or without subresource.
type access struct{ verb, group, resource, name, namespace string }

func (a access) String() string {
	text := a.verb + " " + schema.GroupResource{Group: a.group, Resource: a.resource}.String()
	if a.name != "" {
		text += " " + a.name
	}
	return text
}

// mayManager reports whether the manager's ServiceAccount may do something.
func mayManager(ctx context.Context, wanted access) (bool, error) {
	resource, subresource, _ := strings.Cut(wanted.resource, "/")
	user := "system:serviceaccount:" + controlplane.SystemNamespace + ":" + controlplane.ServiceAccount
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user,
		Groups: []string{
			"system:serviceaccounts", "system:serviceaccounts:" + controlplane.SystemNamespace, "system:authenticated",
		},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: wanted.verb, Group: wanted.group, Resource: resource, Subresource: subresource,
			Name: wanted.name, Namespace: wanted.namespace,
		},
	}}
	if err := admin.Create(ctx, review); err != nil {
		return false, err
	}
	if review.Status.EvaluationError != "" {
		return false, errors.New(review.Status.EvaluationError)
	}
	return review.Status.Allowed, nil
}

// allowedOf returns what of all these the manager may do.
func allowedOf(ctx context.Context, wanted []access) []string {
	GinkgoHelper()
	var lock sync.Mutex
	allowed := []string{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(20)
	for _, one := range wanted {
		group.Go(func() error {
			may, err := mayManager(ctx, one)
			if may {
				lock.Lock()
				defer lock.Unlock()
				allowed = append(allowed, one.String())
			}
			return err
		})
	}
	Expect(group.Wait()).To(Succeed())
	slices.Sort(allowed)
	return allowed
}

var _ = Describe("The rights of the manager", func() {
	// everything is all that the API server serves, subresources included.
	everything := func(verbs []string, namespace string) []access {
		GinkgoHelper()
		client, err := discovery.NewDiscoveryClientForConfig(controlplane.Unlimited(plane.Admin))
		Expect(err).NotTo(HaveOccurred())
		var lists []*metav1.APIResourceList
		// Another spec may just have deleted a type.
		Eventually(func() error {
			_, lists, err = client.ServerGroupsAndResources()
			return err
		}).Should(Succeed())
		wanted := []access{}
		for _, list := range lists {
			version, err := schema.ParseGroupVersion(list.GroupVersion)
			Expect(err).NotTo(HaveOccurred())
			for _, resource := range list.APIResources {
				for _, verb := range verbs {
					one := access{verb: verb, group: version.Group, resource: resource.Name, namespace: namespace}
					if !slices.Contains(wanted, one) {
						wanted = append(wanted, one)
					}
				}
			}
		}
		Expect(len(wanted)).To(BeNumerically(">", 100*len(verbs)))
		return wanted
	}
	reading := []string{"list", "watch", "delete", "deletecollection"}
	others := []string{"get", "create", "update", "patch", "bind", "escalate", "impersonate", "approve", "sign", "attest", "use"}
	granted := []string{
		// To end namespaces, and to say how far that is.
		"get namespaces", "update namespaces/finalize", "patch namespaces/status", "create events.events.k8s.io",
		"patch events.events.k8s.io", "update events.events.k8s.io",
		// To initialize them: probes, repairs, the set that the policies read, and the policies.
		"create namespaces", "patch namespaces",
		"get namespaceinitializerconfigurations.nslifecycle.dev",
		"patch namespaceinitializerconfigurations/status.nslifecycle.dev",
		"get namespaceinitializersets.nslifecycle.dev", "create namespaceinitializersets.nslifecycle.dev",
		"update namespaceinitializersets.nslifecycle.dev",
		"get mutatingadmissionpolicies.admissionregistration.k8s.io",
		"get mutatingadmissionpolicybindings.admissionregistration.k8s.io",
		"get validatingadmissionpolicies.admissionregistration.k8s.io",
		"get validatingadmissionpolicybindings.admissionregistration.k8s.io",
		// For the metrics endpoint, to know who asks.
		"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io",
		// Everybody has these.
		"create selfsubjectreviews.authentication.k8s.io", "create selfsubjectaccessreviews.authorization.k8s.io",
		"create selfsubjectrulesreviews.authorization.k8s.io",
	}

	It("are to find and delete everything, and to do nothing else with it", func(ctx context.Context) {
		wanted := everything(others, "")
		Expect(allowedOf(ctx, wanted)).To(ConsistOf(granted))

		By("with a little more in its own namespace, for the election of a leader")
		inOwn := append([]string{
			"get leases.coordination.k8s.io", "create leases.coordination.k8s.io", "update leases.coordination.k8s.io",
			"create events", "patch events",
		}, granted...)
		Expect(allowedOf(ctx, everything(others, controlplane.SystemNamespace))).To(ConsistOf(inOwn))

		By("with all of what it takes to end a namespace, also for types that do not exist yet")
		content := everything(reading, "")
		for _, verb := range reading {
			content = append(content, access{verb: verb, group: "later.example.com", resource: "things"})
		}
		Expect(allowedOf(ctx, content)).To(HaveLen(len(content)))
	}, SpecTimeout(2*time.Minute))

	DescribeTable("do not include",
		func(ctx context.Context, wanted access) {
			Expect(mayManager(ctx, wanted)).To(BeFalse(), wanted.String())
		},
		Entry("to read logs", access{verb: "get", resource: "pods/log"}),
		Entry("to read what kubelets serve", access{verb: "get", resource: "nodes/proxy"}),
		Entry("to run something on kubelets", access{verb: "create", resource: "nodes/proxy"}),
		Entry("to run something in pods", access{verb: "create", resource: "pods/exec"}),
		Entry("to attach to pods", access{verb: "get", resource: "pods/attach"}),
		Entry("to create pods", access{verb: "create", resource: "pods"}),
		Entry("to create pods in its own namespace",
			access{verb: "create", resource: "pods", namespace: controlplane.SystemNamespace}),
		Entry("to take finalizers off objects", access{verb: "patch", resource: "configmaps"}),
		Entry("to read a secret by name", access{verb: "get", resource: "secrets"}),
		Entry("to change secrets", access{verb: "update", resource: "secrets"}),
		Entry("to impersonate a user", access{verb: "impersonate", resource: "users"}),
		Entry("to get tokens", access{verb: "create", resource: "serviceaccounts/token"}),
		Entry("to give itself rights",
			access{verb: "create", group: "rbac.authorization.k8s.io", resource: "clusterrolebindings"}),
		Entry("to change rights", access{verb: "patch", group: "rbac.authorization.k8s.io", resource: "clusterroles"}),
		Entry("to write other policies", access{
			verb: "patch", group: "admissionregistration.k8s.io", resource: "mutatingadmissionpolicies", name: "somebody-elses",
		}),
		Entry("to write other leader election Leases",
			access{verb: "update", group: "coordination.k8s.io", resource: "leases", namespace: "kube-system"}),
		Entry("to change a namespace's spec but by /finalize", access{verb: "update", resource: "namespaces"}),
	)
})

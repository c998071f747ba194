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
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// access is a verb on a resource or subresource, and optionally on one object or in one namespace.
type access struct{ verb, group, resource, name, namespace string }

func (a access) String() string {
	text := a.verb + " " + schema.GroupResource{Group: a.group, Resource: a.resource}.String()
	if a.name != "" {
		text += " " + a.name
	}
	return text
}

// accountCan reports whether a ServiceAccount in the system namespace is authorized.
func accountCan(ctx context.Context, account string, wanted access) (bool, error) {
	resource, subresource, _ := strings.Cut(wanted.resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + controlplane.SystemNamespace + ":" + account,
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

// filterAllowed returns the elements of wanted for which a ServiceAccount is authorized.
func filterAllowed(ctx context.Context, account string, wanted []access) []string {
	GinkgoHelper()
	var lock sync.Mutex
	allowed := []string{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(20)
	for _, one := range wanted {
		group.Go(func() error {
			allowedOne, err := accountCan(ctx, account, one)
			if allowedOne {
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

var _ = Describe("The permissions of the manager", func() {
	// everything returns the given verbs on all resources and subresources that the API server
	// serves.
	everything := func(verbs []string, namespace string) []access {
		GinkgoHelper()
		client, err := discovery.NewDiscoveryClientForConfig(controlplane.Unlimited(plane.Admin))
		Expect(err).NotTo(HaveOccurred())
		var lists []*metav1.APIResourceList
		// Another spec might have just deleted a type.
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
	otherVerbs := []string{"get", "create", "update", "patch", "bind", "escalate", "impersonate", "approve", "sign", "attest", "use"}
	granted := []string{
		// Finalize namespaces and report the progress.
		"get namespaces", "update namespaces/finalize", "patch namespaces/status", "create events.events.k8s.io",
		"patch events.events.k8s.io",
		// Initialize namespaces, and maintain the NamespaceInitializerSet.
		"patch namespaces",
		"get namespaceinitializerconfigurations.nslifecycle.dev",
		"patch namespaceinitializerconfigurations/status.nslifecycle.dev",
		"get namespaceinitializersets.nslifecycle.dev", "create namespaceinitializersets.nslifecycle.dev",
		"update namespaceinitializersets.nslifecycle.dev",
		// Add and remove the finalizer of templates, and write their status.
		"get namespacetemplates.nslifecycle.dev", "patch namespacetemplates.nslifecycle.dev",
		"patch namespacetemplates/status.nslifecycle.dev",
		// Authenticate and authorize requests for metrics.
		"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io",
	}

	// clusterScoped are the permissions to list and watch cluster-scoped types, and to delete namespaces.
	clusterScoped := []string{"delete namespaces", "list nodes", "list clusterroles.rbac.authorization.k8s.io",
		"list clusterrolebindings.rbac.authorization.k8s.io",
		"list mutatingwebhookconfigurations.admissionregistration.k8s.io",
		"list validatingwebhookconfigurations.admissionregistration.k8s.io"}
	for _, resource := range []string{"namespaces", "customresourcedefinitions.apiextensions.k8s.io",
		"apiservices.apiregistration.k8s.io", "namespaceinitializerconfigurations.nslifecycle.dev",
		"namespaceinitializersets.nslifecycle.dev", "namespacetemplates.nslifecycle.dev",
		"validatingadmissionpolicies.admissionregistration.k8s.io",
		"validatingadmissionpolicybindings.admissionregistration.k8s.io"} {
		clusterScoped = append(clusterScoped, "list "+resource, "watch "+resource)
	}

	It("allow listing and deleting all content, and no other access to it", func(ctx context.Context) {
		wanted := everything(otherVerbs, "")
		// Which permissions every ServiceAccount has depends on the version of the API server.
		granted := append(filterAllowed(ctx, "without-permissions", wanted), granted...)
		Expect(filterAllowed(ctx, controlplane.ServiceAccount, wanted)).To(ConsistOf(granted))

		By("checking the additional permissions for leader election and revisions in the system namespace")
		inSystemNamespace := append([]string{
			"create controllerrevisions.apps", "patch controllerrevisions.apps",
			"create leases.coordination.k8s.io", "create events", "patch events",
		}, granted...)
		Expect(filterAllowed(ctx, controlplane.ServiceAccount, everything(otherVerbs, controlplane.SystemNamespace))).To(ConsistOf(inSystemNamespace))

		By("checking the permissions for content, which the manager has added before it deletes any")
		expectDeletable(ctx, createNamespace(ctx, "permissions"))
		content := []string{}
		for gvr := range namespacedTypes(ctx, "delete") {
			for _, verb := range []string{"list", "watch", "delete"} {
				content = append(content, access{verb: verb, group: gvr.Group, resource: gvr.Resource}.String())
			}
		}
		wanted = everything(reading, "")
		allowed := filterAllowed(ctx, controlplane.ServiceAccount, wanted)
		Expect(allowed).To(ContainElements(content))
		other := slices.DeleteFunc(allowed, func(one string) bool { return slices.Contains(content, one) })
		Expect(other).To(ConsistOf(append(filterAllowed(ctx, "without-permissions", wanted), clusterScoped...)))

		By("checking that no rule contains a wildcard")
		Expect(accountCan(ctx, controlplane.ServiceAccount, access{verb: "list", group: "later.example.com", resource: "things"})).
			To(BeFalse())
		// Calico requires these permissions for requests for its policies.
		for _, one := range []access{
			{verb: "get", group: "projectcalico.org", resource: "tiers"},
			{verb: "list", group: "projectcalico.org", resource: "tier.networkpolicies"},
			{verb: "deletecollection", group: "projectcalico.org", resource: "tier.stagednetworkpolicies"},
		} {
			Expect(accountCan(ctx, controlplane.ServiceAccount, one)).To(BeTrue(), one.String())
		}
	}, SpecTimeout(5*time.Minute))

	// Permissions for named policies, webhook configurations and the certificate are not included.
	It("of the admission controller are only for admission, its Lease and dry runs", func(ctx context.Context) {
		wanted := everything(append(reading, otherVerbs...), controlplane.SystemNamespace)
		granted := append(filterAllowed(ctx, "without-permissions", wanted),
			"create namespaces", "patch namespaceinitializersets/status.nslifecycle.dev",
			"create leases.coordination.k8s.io", "create events", "patch events",
			"list validatingadmissionpolicies.admissionregistration.k8s.io",
			"watch validatingadmissionpolicies.admissionregistration.k8s.io",
			"list validatingadmissionpolicybindings.admissionregistration.k8s.io",
			"watch validatingadmissionpolicybindings.admissionregistration.k8s.io")
		kinds := []string{
			"mutatingwebhookconfigurations.admissionregistration.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io",
			"namespaceinitializersets.nslifecycle.dev",
		}
		if framework.ServesPolicies(ctx, plane.Admin) {
			kinds = append(kinds, "mutatingadmissionpolicies.admissionregistration.k8s.io",
				"mutatingadmissionpolicybindings.admissionregistration.k8s.io")
		}
		for _, kind := range kinds {
			granted = append(granted, "get "+kind, "list "+kind, "watch "+kind)
		}
		Expect(filterAllowed(ctx, controlplane.AdmissionAccount, wanted)).To(ConsistOf(granted))
	}, SpecTimeout(5*time.Minute))

	DescribeTable("do not allow",
		func(ctx context.Context, wanted access) {
			Expect(accountCan(ctx, controlplane.ServiceAccount, wanted)).To(BeFalse(), wanted.String())
		},
		Entry("reading logs", access{verb: "get", resource: "pods/log"}),
		Entry("reading from kubelets", access{verb: "get", resource: "nodes/proxy"}),
		Entry("executing commands through kubelets", access{verb: "create", resource: "nodes/proxy"}),
		Entry("executing commands in pods", access{verb: "create", resource: "pods/exec"}),
		Entry("attaching to pods", access{verb: "get", resource: "pods/attach"}),
		Entry("creating pods", access{verb: "create", resource: "pods"}),
		Entry("creating pods in its own namespace",
			access{verb: "create", resource: "pods", namespace: controlplane.SystemNamespace}),
		Entry("removing finalizers of objects", access{verb: "patch", resource: "configmaps"}),
		Entry("reading an object by name", access{verb: "get", group: "projectcalico.org", resource: "networkpolicies"}),
		Entry("reading a secret by name", access{verb: "get", resource: "secrets"}),
		Entry("updating secrets", access{verb: "update", resource: "secrets"}),
		Entry("impersonating a user", access{verb: "impersonate", resource: "users"}),
		Entry("requesting tokens", access{verb: "create", resource: "serviceaccounts/token"}),
		Entry("granting itself permissions",
			access{verb: "create", group: "rbac.authorization.k8s.io", resource: "clusterrolebindings"}),
		Entry("changing permissions", access{verb: "patch", group: "rbac.authorization.k8s.io", resource: "clusterroles"}),
		Entry("updating other policies", access{
			verb: "patch", group: "admissionregistration.k8s.io", resource: "mutatingadmissionpolicies", name: "other",
		}),
		Entry("updating other validating policies", access{
			verb: "patch", group: "admissionregistration.k8s.io", resource: "validatingadmissionpolicies", name: "nslifecycle-guard",
		}),
		Entry("creating namespaces", access{verb: "create", resource: "namespaces"}),
		Entry("updating the policies of the admission controller", access{
			verb: "patch", group: "admissionregistration.k8s.io", resource: "validatingadmissionpolicies", name: "nslifecycle-templates",
		}),
		Entry("updating the webhooks", access{
			verb: "update", group: "admissionregistration.k8s.io", resource: "mutatingwebhookconfigurations", name: "nslifecycle-hold",
		}),
		Entry("updating the certificate of the webhooks", access{
			verb: "update", resource: "secrets", namespace: controlplane.SystemNamespace, name: "nslifecycle-webhook-certificate",
		}),
		Entry("reporting that the set is enforced", access{
			verb: "patch", group: "nslifecycle.dev", resource: "namespaceinitializersets/status",
		}),
		Entry("updating the Lease of the admission controller", access{verb: "update", group: "coordination.k8s.io",
			resource: "leases", namespace: controlplane.SystemNamespace, name: "admission.nslifecycle.dev"}),
		Entry("updating other leader election Leases",
			access{verb: "update", group: "coordination.k8s.io", resource: "leases", namespace: "kube-system"}),
		Entry("updating a namespace other than through /finalize", access{verb: "update", resource: "namespaces"}),
	)
})

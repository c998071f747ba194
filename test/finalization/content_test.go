// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	podSpec     = `{"containers":[{"name":"c","image":"example.com/c"}]}`
	podTemplate = `{"metadata":{"labels":{"app":"a"}},"spec":` + podSpec + `}`
	jobTemplate = `{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"example.com/c"}]}}}`
	workload    = `{"spec":{"selector":{"matchLabels":{"app":"a"}},"template":` + podTemplate + `}}`
)

// minimalObjects maps resource types to minimal valid objects. The spec replaces NAMESPACE with the
// name of the namespace.
var minimalObjects = map[schema.GroupResource]string{
	{Resource: "configmaps"}:             `{}`,
	{Resource: "endpoints"}:              `{}`,
	{Resource: "events"}:                 `{"involvedObject":{"kind":"Pod","namespace":"NAMESPACE","name":"a"}}`,
	{Resource: "limitranges"}:            `{"spec":{"limits":[]}}`,
	{Resource: "persistentvolumeclaims"}: `{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
	{Resource: "pods"}:                   `{"spec":` + podSpec + `}`,
	{Resource: "podtemplates"}:           `{"template":` + podTemplate + `}`,
	{Resource: "replicationcontrollers"}: `{"spec":{"selector":{"app":"a"},"template":` + podTemplate + `}}`,
	{Resource: "resourcequotas"}:         `{}`,
	{Resource: "secrets"}:                `{}`,
	{Resource: "serviceaccounts"}:        `{}`,
	{Resource: "services"}:               `{"spec":{"ports":[{"port":80}]}}`,

	{Group: "apps", Resource: "controllerrevisions"}: `{"revision":1,"data":{"a":"b"}}`,
	{Group: "apps", Resource: "daemonsets"}:          workload,
	{Group: "apps", Resource: "deployments"}:         workload,
	{Group: "apps", Resource: "replicasets"}:         workload,
	{Group: "apps", Resource: "statefulsets"}:        workload,

	{Group: "autoscaling", Resource: "horizontalpodautoscalers"}: `{"spec":{"maxReplicas":1,` +
		`"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"a"}}}`,
	{Group: "batch", Resource: "cronjobs"}: `{"spec":{"schedule":"0 0 1 1 *","jobTemplate":{"spec":` + jobTemplate + `}}}`,
	{Group: "batch", Resource: "jobs"}:     `{"spec":` + jobTemplate + `}`,
	{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}: `{"spec":{"signerName":"example.com/a",` +
		`"podName":"a","podUID":"a","serviceAccountName":"a","serviceAccountUID":"a","nodeName":"a","nodeUID":"a",` +
		`"stubPKCS10Request":"` + wrappers.MakeCertificateRequest() + `"}}`,
	{Group: "coordination.k8s.io", Resource: "leases"}:      `{}`,
	{Group: "discovery.k8s.io", Resource: "endpointslices"}: `{"addressType":"IPv4","endpoints":[]}`,
	{Group: "events.k8s.io", Resource: "events"}: `{"eventTime":"2026-01-01T00:00:00.000000Z","type":"Normal",` +
		`"reason":"Test","action":"Test","reportingController":"test.example.com/a","reportingInstance":"a",` +
		`"regarding":{"kind":"Pod","namespace":"NAMESPACE","name":"a"}}`,
	{Group: "networking.k8s.io", Resource: "ingresses"}:       `{"spec":{"defaultBackend":{"service":{"name":"a","port":{"number":80}}}}}`,
	{Group: "networking.k8s.io", Resource: "networkpolicies"}: `{"spec":{"podSelector":{}}}`,
	{Group: "policy", Resource: "poddisruptionbudgets"}:       `{"spec":{"selector":{"matchLabels":{"app":"a"}}}}`,
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}: `{"roleRef":{` +
		`"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"a"}}`,
	{Group: "rbac.authorization.k8s.io", Resource: "roles"}:        `{"rules":[]}`,
	{Group: "resource.k8s.io", Resource: "resourceclaims"}:         `{"spec":{}}`,
	{Group: "resource.k8s.io", Resource: "resourceclaimtemplates"}: `{"spec":{"spec":{}}}`,
	{Group: "storage.k8s.io", Resource: "csistoragecapacities"}:    `{"storageClassName":"a"}`,
}

// notCreated maps each resource type for which the spec creates no object to the reason.
var notCreated = map[schema.GroupResource]string{}

var _ = Describe("The content of a namespace", func() {
	It("is deleted regardless of its type", func(ctx context.Context) {
		custom := createCustomType(ctx)
		objectsByType := minimalObjects
		namespace := createNamespace(ctx, "every-type")
		dynamicClient := newDynamic()

		types := namespacedTypes(ctx, "delete")
		Expect(types).To(HaveKey(custom.resource()))
		for gvr, resource := range types {
			if gvr.Group == custom.group {
				createCustom(ctx, custom, custom.object(namespace.Name, "minimal"))
				continue
			}
			if gvr.Resource == custom.plural {
				delete(types, gvr) // The CRD of another spec is being deleted.
				continue
			}
			text, ok := objectsByType[gvr.GroupResource()]
			if reason := notCreated[gvr.GroupResource()]; reason != "" {
				GinkgoWriter.Println("no object of", gvr, "because", reason)
				continue
			}
			Expect(ok).To(BeTrue(), "new resource type %s: add an object to minimalObjects", gvr)
			object := fromJSON(strings.ReplaceAll(text, "NAMESPACE", namespace.Name))
			object.SetAPIVersion(gvr.GroupVersion().String())
			object.SetKind(resource.Kind)
			object.SetName("minimal-" + strings.ReplaceAll(gvr.Group, ".", "-"))
			object.SetName(strings.TrimSuffix(object.GetName(), "-"))
			_, err := dynamicClient.Resource(gvr).Namespace(namespace.Name).Create(ctx, object, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred(), "failed to create a minimal object of type %s", gvr)
		}
		Expect(len(types)).To(BeNumerically(">=", len(objectsByType)), "discovery returned fewer types than expected: %v", types)
		for gvr := range types {
			if notCreated[gvr.GroupResource()] == "" {
				Expect(countOf(Default, ctx, gvr, namespace.Name)).To(BeNumerically(">", 0), "objects of %s", gvr)
			}
		}

		admin.Deletes(ctx, namespace)
		// kube-controller-manager, which does not run here, removes the finalizers of unused
		// PersistentVolumeClaims.
		claims := schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
		claim := fromJSON(`{"apiVersion":"v1","kind":"PersistentVolumeClaim"}`)
		claim.SetNamespace(namespace.Name)
		claim.SetName("minimal")
		Eventually(func(g Gomega) {
			now, err := dynamicClient.Resource(claims).Namespace(namespace.Name).Get(ctx, "minimal", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(now.GetDeletionTimestamp()).NotTo(BeNil())
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name)).To(HaveFinalizersRemaining("kubernetes.io/pvc-protection in 1 resource instances"))
		}).WithContext(ctx).Should(Succeed())
		framework.RemoveFinalizers(ctx, admin, claim)
		framework.ExpectDeleted(ctx, admin, namespace)
		expectNoObjects(ctx, namespace.Name)
		for gvr := range types {
			Expect(countOf(Default, ctx, gvr, namespace.Name)).To(BeZero(), "remaining %s", gvr)
		}
	})

	It("is deleted regardless of its storage version", func(ctx context.Context) {
		// The preferred version is v2. The storage version is initially v1.
		custom := createCustomType(ctx, "v1", "v2", "v1beta1")
		preferred := namespacedTypes(ctx, "delete")
		Expect(preferred).To(HaveKey(custom.resourceIn("v2")))
		Expect(preferred).NotTo(HaveKey(custom.resourceIn("v1")))

		namespace := createNamespace(ctx, "versions")
		for _, version := range custom.versions {
			createCustom(ctx, custom, custom.objectIn(version, namespace.Name, "of-"+version))
		}
		By("changing the storage version")
		definition := custom.definition()
		definition.Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["storage"] = false
		definition.Object["spec"].(map[string]any)["versions"].([]any)[2].(map[string]any)["storage"] = true
		updateDefinition(ctx, definition)
		for _, version := range custom.versions {
			createCustom(ctx, custom, custom.objectIn(version, namespace.Name, "later-of-"+version))
		}
		Expect(countOf(Default, ctx, custom.resource(), namespace.Name)).To(Equal(6))

		admin.Deletes(ctx, namespace)
		framework.ExpectDeleted(ctx, admin, namespace)
		expectNoObjects(ctx, namespace.Name)
		for _, version := range custom.versions {
			Expect(countOf(Default, ctx, custom.resourceIn(version), namespace.Name)).To(BeZero())
		}
	})

	// The garbage collector, which would remove these finalizers, does not run here.
	DescribeTable("is deleted even if a user has requested its deletion with another propagation policy:",
		func(ctx context.Context, policy metav1.DeletionPropagation, finalizer string) {
			namespace := createNamespace(ctx, "propagation")
			owner := wrappers.MakeConfigMap(namespace.Name, "owner")
			admin.Creates(ctx, owner)
			dependent := wrappers.MakeConfigMap(namespace.Name, "dependent")
			dependent.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true),
			}}
			admin.Creates(ctx, dependent)
			Expect(admin.Delete(ctx, owner, client.PropagationPolicy(policy))).To(Succeed())
			Expect(admin.Get(ctx, keyOf(owner), owner)).To(Succeed(), "the object was deleted despite its finalizer")
			Expect(owner.Finalizers).To(ConsistOf(finalizer))
			admin.Deletes(ctx, namespace)
			framework.ExpectDeleted(ctx, admin, namespace)
			expectNoObjects(ctx, namespace.Name)
		},
		Entry("Foreground", metav1.DeletePropagationForeground, metav1.FinalizerDeleteDependents),
		Entry("Orphan", metav1.DeletePropagationOrphan, metav1.FinalizerOrphanDependents),
	)
})

// updateDefinition updates the spec of a CRD and waits until status.storedVersions contains the
// storage version.
func updateDefinition(ctx context.Context, definition *unstructured.Unstructured) {
	GinkgoHelper()
	Eventually(func() error {
		now := definition.DeepCopy()
		if err := admin.Get(ctx, keyOf(definition), now); err != nil {
			return err
		}
		now.Object["spec"] = definition.Object["spec"]
		return admin.Update(ctx, now)
	}).WithContext(ctx).Should(Succeed())
	var stored string
	for _, version := range definition.Object["spec"].(map[string]any)["versions"].([]any) {
		if version.(map[string]any)["storage"] == true {
			stored = version.(map[string]any)["name"].(string)
		}
	}
	Eventually(func(g Gomega) {
		now := definition.DeepCopy()
		g.Expect(admin.Get(ctx, keyOf(definition), now)).To(Succeed())
		versions, _, err := unstructured.NestedStringSlice(now.Object, "status", "storedVersions")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(versions).To(ContainElement(stored))
	}).WithContext(ctx).Should(Succeed())
}

// newDiscovery returns a client that requests the aggregated discovery document, as the manager
// does, or, if isLegacy is set, each group separately.
func newDiscovery(isLegacy bool) *discovery.DiscoveryClient {
	GinkgoHelper()
	result, err := discovery.NewDiscoveryClientForConfig(controlplane.Unlimited(cluster.Admin.Config))
	Expect(err).NotTo(HaveOccurred())
	result.UseLegacyDiscovery = isLegacy
	return result
}

func newDynamic() dynamic.Interface {
	GinkgoHelper()
	result, err := dynamic.NewForConfig(controlplane.Unlimited(cluster.Admin.Config))
	Expect(err).NotTo(HaveOccurred())
	return result
}

// namespacedTypes returns the namespaced resource types that support all given verbs. It uses
// legacy discovery, so that it does not depend on the manager's implementation.
func namespacedTypes(ctx context.Context, verbs ...string) map[schema.GroupVersionResource]metav1.APIResource {
	GinkgoHelper()
	var lists []*metav1.APIResourceList
	// Discovery might still return the group of a type that another spec has just deleted.
	Eventually(func() (err error) {
		lists, err = newDiscovery(true).ServerPreferredNamespacedResourcesWithContext(ctx)
		return err
	}).WithContext(ctx).Should(Succeed())
	result := map[schema.GroupVersionResource]metav1.APIResource{}
	for _, list := range lists {
		groupVersion, err := schema.ParseGroupVersion(list.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		for _, resource := range list.APIResources {
			if sets.New(resource.Verbs...).HasAll(verbs...) {
				result[groupVersion.WithResource(resource.Name)] = resource
			}
		}
	}
	return result
}

// expectNoObjects checks that storage contains no objects in namespaces that no longer exist. It
// lists each type in all namespaces.
func expectNoObjects(ctx context.Context, namespaces ...string) {
	GinkgoHelper()
	wanted := sets.New(namespaces...)
	Eventually(func(g Gomega) {
		for gvr := range namespacedTypes(ctx, "list", "delete") {
			names, err := namesOf(ctx, gvr, wanted)
			Expect(names).To(BeEmpty(), "remaining %s", gvr)
			// Another spec might have just deleted the type.
			g.Expect(err).NotTo(HaveOccurred())
		}
	}).WithContext(ctx).Should(Succeed())
}

// namesOf returns the names of the objects in the given namespaces. It uses a paginated
// cluster-wide list.
func namesOf(ctx context.Context, gvr schema.GroupVersionResource, namespaces sets.Set[string]) ([]string, error) {
	var names []string
	options := metav1.ListOptions{Limit: 1000}
	for {
		list, err := metadataClient.Resource(gvr).List(ctx, options)
		if err != nil {
			return names, err
		}
		for _, item := range list.Items {
			if namespaces.Has(item.Namespace) {
				names = append(names, item.Namespace+"/"+item.Name)
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return names, nil
		}
	}
}

// expectNamespaceFinalizerKept checks that a namespace is not finalized.
func expectNamespaceFinalizerKept(ctx context.Context, namespace *corev1.Namespace) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		now := cluster.GetNamespace(g, ctx, namespace.Name)
		g.Expect(now.UID).To(Equal(namespace.UID))
		g.Expect(now.Spec.Finalizers).To(ContainElement(corev1.FinalizerKubernetes))
	}).WithContext(ctx).Should(Succeed())
}

// expectFailureEvent waits for a Warning about a namespace.
func expectFailureEvent(ctx context.Context, namespace *corev1.Namespace, text string) {
	GinkgoHelper()
	Eventually(cluster.EventsAbout).WithContext(ctx).WithArguments(namespace, "").Should(
		ContainElement(And(HavePrefix("Warning ContentDeletionFailed "), ContainSubstring(text))))
}

// fromJSON parses an object in JSON.
func fromJSON(text string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(json.Unmarshal([]byte(text), &object.Object)).To(Succeed(), text)
	return object
}

func keyOf(object client.Object) client.ObjectKey { return client.ObjectKeyFromObject(object) }

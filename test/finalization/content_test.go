// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nslifecycle/nslifecycle/test/wrappers"
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

		deleteObject(ctx, namespace)
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
			g.Expect(get(g, ctx, namespace.Name)).To(HaveFinalizersRemaining("kubernetes.io/pvc-protection in 1 resource instances"))
		}).WithContext(ctx).Should(Succeed())
		removeFinalizers(ctx, claim)
		expectDeleted(ctx, namespace)
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

		deleteObject(ctx, namespace)
		expectDeleted(ctx, namespace)
		expectNoObjects(ctx, namespace.Name)
		for _, version := range custom.versions {
			Expect(countOf(Default, ctx, custom.resourceIn(version), namespace.Name)).To(BeZero())
		}
	})

	// The garbage collector, which would remove these finalizers, does not run here.
	DescribeTable("is deleted even if a user has requested its deletion with another propagation policy:",
		func(ctx context.Context, policy metav1.DeletionPropagation, finalizer string) {
			custom := createCustomType(ctx)
			namespace := createNamespace(ctx, "propagation")
			dynamicClient := newDynamic()
			owner := wrappers.MakeConfigMap(namespace.Name, "owner")
			create(ctx, owner)
			createCustom(ctx, custom, custom.object(namespace.Name, "owner"))
			dependent := wrappers.MakeConfigMap(namespace.Name, "dependent")
			dependent.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true),
			}}
			create(ctx, dependent)
			for _, gvr := range []schema.GroupVersionResource{configMaps, custom.resource()} {
				resource := dynamicClient.Resource(gvr).Namespace(namespace.Name)
				Expect(resource.Delete(ctx, "owner", metav1.DeleteOptions{PropagationPolicy: &policy})).To(Succeed())
				now, err := resource.Get(ctx, "owner", metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred(), "%s was deleted despite its finalizer", gvr)
				Expect(now.GetFinalizers()).To(ConsistOf(finalizer))
			}
			deleteObject(ctx, namespace)
			expectDeleted(ctx, namespace)
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

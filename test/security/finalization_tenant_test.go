// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// forgeries are fields of a Namespace that is not being deleted.
var forgeries = map[string]string{
	"deletionTimestamp": `"metadata":{"name":"%NAME%","deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0}`,
	"another UID":       `"metadata":{"name":"%NAME%","uid":"00000000-0000-0000-0000-000000000000"}`,
	"phase":             `"metadata":{"name":"%NAME%"},"status":{"phase":"Terminating"}`,
	"all conditions": `"metadata":{"name":"%NAME%","deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Terminating",
		"conditions":[{"type":"NamespaceDeletionContentFailure","status":"False","reason":"ContentDeleted"},
		{"type":"NamespaceContentRemaining","status":"False","reason":"ContentRemoved"}]}`,
	"the finalizer of a foreground deletion": `"metadata":{"name":"%NAME%","finalizers":["foregroundDeletion"]}`,
}

var _ = Describe("A user who can write Namespaces with all subresources", func() {
	It("cannot make the operator finalize a namespace that is not being deleted", func(ctx context.Context) {
		name := framework.Unique("forged")
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, name)
		cluster.Admin.Creates(ctx, wrappers.MakeConfigMap(name, "kept"))
		before := listEverything(ctx)
		results := map[string]int{}
		attack := func(method, subresource, contentType, body string) {
			body = `{"apiVersion":"v1","kind":"Namespace",` + fill(body, namespace) + `}`
			if _, err := send(ctx, cluster.Ordinary, method, pathOf(namespace, subresource), contentType, []byte(body)); err != nil {
				results[fmt.Sprint("rejected ", method)]++
			} else {
				results[fmt.Sprint("ignored ", method)]++
			}
		}
		for _, body := range forgeries {
			for _, subresource := range []string{"", "status", "finalize"} {
				attack(http.MethodPut, subresource, jsonType, body)
				attack(http.MethodPatch, subresource, mergeType, body)
				attack(http.MethodPatch, subresource, "application/strategic-merge-patch+json", body)
				attack(http.MethodPatch, subresource+"?fieldManager=x&force=true", applyYAMLType, body)
			}
		}
		AddReportEntry("results", fmt.Sprint(results))

		By("finalizing another namespace")
		framework.ExpectDeleted(ctx, cluster.Admin, terminate(ctx, "control"))
		now := cluster.GetNamespace(Default, ctx, name)
		Expect(now.UID).To(Equal(namespace.UID))
		Expect(now.DeletionTimestamp).To(BeNil())
		Expect(now.Status.Phase).To(Equal(corev1.NamespaceActive))
		before.expectKept(ctx)
		Expect(cluster.Admin.Patch(ctx, now, withoutFinalizers)).To(Succeed())
		// The user has removed the namespace finalizer with a PUT to /finalize. The observer checks that the operator deletes
		// the content nevertheless.
		cluster.Admin.Deletes(ctx, now)
		framework.ExpectDeleted(ctx, cluster.Admin, now)
	}, SpecTimeout(specTimeout))

	It("cannot create a namespace that is being deleted", func(ctx context.Context) {
		for what, body := range forgeries {
			name := framework.Unique("forged")
			body = `{"apiVersion":"v1","kind":"Namespace",` + strings.ReplaceAll(body, "%NAME%", name) + `}`
			_, err := send(ctx, cluster.Ordinary, http.MethodPost, "/api/v1/namespaces", jsonType, []byte(body))
			Expect(err).NotTo(HaveOccurred(), what)
			now := cluster.GetNamespace(Default, ctx, name)
			Expect(now.DeletionTimestamp).To(BeNil(), what)
			Expect(now.UID).NotTo(BeEquivalentTo("00000000-0000-0000-0000-000000000000"))
			Expect(now.Status.Phase).To(Equal(corev1.NamespaceActive), what)
			Expect(now.Spec.Finalizers).To(ConsistOf(corev1.FinalizerKubernetes))
			Expect(cluster.Admin.Patch(ctx, now, withoutFinalizers)).To(Succeed())
			cluster.Admin.Deletes(ctx, now)
		}
	}, SpecTimeout(specTimeout))

	// The operator makes its next pass up to 15 s after the forgery.
	It("cannot complete the finalization with forged conditions, which the operator corrects", func(ctx context.Context) {
		namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("conditions"))
		held := wrappers.MakeConfigMap(namespace.Name, "held")
		held.Finalizers = []string{"test.example.com/hold"}
		cluster.Admin.Creates(ctx, held)
		cluster.Admin.Deletes(ctx, namespace)
		remaining := HaveCondition(corev1.NamespaceContentRemaining, corev1.ConditionTrue, "SomeResourcesRemain", "configmaps. has 1")
		get := func(g Gomega) *corev1.Namespace { return cluster.GetNamespace(g, ctx, namespace.Name) }
		Eventually(get).WithContext(ctx).Should(remaining)
		forged := HaveCondition(corev1.NamespaceContentRemaining, corev1.ConditionFalse, "ContentRemoved")
		Expect(cluster.Ordinary.Status().Patch(ctx, namespace, framework.MergePatch(`{"status":{"conditions":[
			{"type":"NamespaceContentRemaining","status":"False","reason":"ContentRemoved"},
			{"type":"NamespaceFinalizersRemaining","status":"False","reason":"ContentHasNoFinalizers"}]}}`))).To(Succeed())
		Expect(namespace).To(forged)
		Eventually(get).WithContext(ctx).Should(remaining)
		Expect(get(Default).Spec.Finalizers).To(ContainElement(corev1.FinalizerKubernetes))
		cluster.Admin.Reads(ctx, held)
		Expect(cluster.Admin.Patch(ctx, held, withoutFinalizers)).To(Succeed())
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
	}, SpecTimeout(specTimeout))
})

// hostileKeys are labels and annotations that refer to another namespace, or to other controllers.
func hostileKeys(victim string) map[string]string {
	return map[string]string{
		corev1.LabelMetadataName: victim, "nslifecycle.dev/managed-by-template": victim, "nslifecycle.dev/namespace-uid": victim,
		"app.kubernetes.io/managed-by": "nslifecycle", "kubernetes.io/name": victim, "name": victim, "namespace": victim,
	}
}

// reservedNames are names of namespaces that are parts of the paths of requests, or similar to protected
// namespaces.
var reservedNames = []string{
	"status", "finalize", "namespaces", "watch", "proxy", "pods", "configmaps", "api", "apis", "v1", "all", "0", "true", "null",
	"default-a", "kube-system-a", "a-kube-system", "xn--80ak6aa92e", strings.Repeat("a", 63),
}

var _ = Describe("The creator of a namespace", func() {
	It("cannot direct its finalization to other namespaces with names, labels, annotations or owner references", func(ctx context.Context) {
		victim := createVictim(ctx)
		before := listEverything(ctx)
		owner := cluster.GetNamespace(Default, ctx, victim.Namespace)
		var deleted []*corev1.Namespace
		for _, name := range reservedNames {
			wrapper := wrappers.MakeNamespace(name)
			for key, value := range hostileKeys(victim.Namespace) {
				wrapper.Annotation(key, value)
				if key != "nslifecycle.dev/managed-by-template" {
					wrapper.Label(key, value)
				}
			}
			namespace := wrapper.Obj()
			namespace.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Namespace", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true),
			}}
			cluster.Ordinary.Creates(ctx, namespace)
			for _, object := range []string{victim.Name, name, victim.Namespace} {
				content := wrappers.MakeConfigMap(name, object)
				content.OwnerReferences = []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "ConfigMap", Name: victim.Name, UID: victim.UID, BlockOwnerDeletion: new(true)},
				}
				cluster.Ordinary.Creates(ctx, content)
			}
			deleted = append(deleted, namespace)
		}
		for i, namespace := range deleted {
			policy := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}[i%2]
			// The garbage collector, which does not run here, removes the finalizer of a foreground deletion.
			Expect(cluster.Ordinary.Delete(ctx, namespace, client.PropagationPolicy(policy))).To(Succeed())
			_ = cluster.Admin.Patch(ctx, namespace, withoutFinalizers)
		}
		for _, namespace := range deleted {
			framework.ExpectDeleted(ctx, cluster.Admin, namespace)
		}
		before.expectKept(ctx)
	}, SpecTimeout(specTimeout))

	// Creating 30 MiB takes several seconds.
	It("cannot stall the finalization of other namespaces with large objects", func(ctx context.Context) {
		large := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("large"))
		for i := range 120 {
			object := wrappers.MakeConfigMap(large.Name, fmt.Sprint("large-", i))
			object.Annotations = map[string]string{"a": strings.Repeat("a", 255<<10)}
			cluster.Ordinary.Creates(ctx, object)
		}
		before := listEverything(ctx)
		// The operator lists a type in the whole cluster if several namespaces need it.
		var others []*corev1.Namespace
		for range 5 {
			other := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("other"))
			cluster.Ordinary.Creates(ctx, wrappers.MakeConfigMap(other.Name, "a"))
			others = append(others, other)
		}
		for _, other := range others {
			cluster.Ordinary.Deletes(ctx, other)
		}
		for _, other := range others {
			framework.ExpectDeleted(ctx, cluster.Admin, other)
		}
		before.expectKept(ctx)
		cluster.Ordinary.Deletes(ctx, large)
		framework.ExpectDeleted(ctx, cluster.Admin, large)
		before.expectKept(ctx, large.Name)
	}, SpecTimeout(2*specTimeout))
})

// The API server interprets some plurals in paths: /apis/<group>/v1/namespaces/<namespace>/status is the
// status of an object with the plural namespaces. Objects with the plural status or finalize cannot be
// created.
var _ = Describe("The author of a CustomResourceDefinition", func() {
	// Registering seven types takes about 20 s.
	It("cannot direct the finalization to other objects with the plural of a type", func(ctx context.Context) {
		group := framework.Unique("plurals") + ".example.com"
		victim := createVictim(ctx)
		namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("plurals"))
		installCRD(ctx, "cluster."+group, "namespaces", "namespace", "Space", "sp", "Cluster")
		created := 0
		for _, plural := range []string{"namespaces", "status", "finalize", "watch", "proxy", "pods"} {
			installCRD(ctx, plural+"."+group, plural, plural+"x", "Thing", plural+"s", "Namespaced")
			for _, in := range []string{victim.Namespace, namespace.Name} {
				for _, name := range []string{victim.Namespace, victim.Name, "status"} {
					body := `{"apiVersion":"` + plural + "." + group + `/v1","kind":"Thing","metadata":{"name":"` + name + `"}}`
					_, err := send(ctx, cluster.Admin, http.MethodPost, "/apis/"+plural+"."+group+"/v1/namespaces/"+in+"/"+plural,
						jsonType, []byte(body))
					if plural == "status" || plural == "finalize" {
						Expect(err).To(HaveOccurred())
						continue
					}
					Expect(err).NotTo(HaveOccurred())
					created++
				}
			}
		}
		for _, name := range []string{victim.Namespace, namespace.Name} {
			_, err := send(ctx, cluster.Admin, http.MethodPost, "/apis/cluster."+group+"/v1/namespaces", jsonType,
				[]byte(`{"apiVersion":"cluster.`+group+`/v1","kind":"Space","metadata":{"name":"`+name+`"}}`))
			Expect(err).NotTo(HaveOccurred())
		}
		before := listEverything(ctx)
		cluster.Admin.Deletes(ctx, namespace)
		framework.ExpectDeleted(ctx, cluster.Admin, namespace)
		before.expectKept(ctx, namespace.Name)
		Expect(created).To(Equal(24))
		_, err := send(ctx, cluster.Admin, http.MethodGet, "/apis/pods."+group+"/v1/namespaces/"+namespace.Name+"/pods/status", jsonType, nil)
		Expect(err).To(Satisfy(apierrors.IsNotFound))
	}, SpecTimeout(5*time.Minute))
})

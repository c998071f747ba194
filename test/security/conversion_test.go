// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("A malicious conversion webhook", func() {
	for name, forge := range map[string]func(metadata, victim map[string]any){
		"another namespace": func(metadata, victim map[string]any) { metadata["namespace"] = victim["namespace"] },
		"another name": func(metadata, victim map[string]any) {
			metadata["name"] = toConfigMaps(victim["namespace"].(string)) + "/precious"
		},
		"another UID": func(metadata, victim map[string]any) { metadata["uid"] = victim["uid"] },
		"another namespace, name and UID": func(metadata, victim map[string]any) {
			metadata["namespace"], metadata["name"], metadata["uid"] = victim["namespace"], victim["name"], victim["uid"]
		},
	} {
		It("cannot make the operator delete another object or complete finalization by returning "+name, func(ctx context.Context) {
			var isActive atomic.Bool
			var victim atomic.Pointer[map[string]any]
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var review map[string]any
				_ = json.NewDecoder(r.Body).Decode(&review)
				request := review["request"].(map[string]any)
				converted := []any{}
				for _, object := range request["objects"].([]any) {
					object.(map[string]any)["apiVersion"] = request["desiredAPIVersion"]
					metadata := object.(map[string]any)["metadata"].(map[string]any)
					if isActive.Load() && metadata["name"] == "held" {
						forge(metadata, *victim.Load())
					}
					converted = append(converted, object)
				}
				framework.WriteJSON(w, http.StatusOK, map[string]any{
					"apiVersion": review["apiVersion"], "kind": review["kind"],
					"response": map[string]any{
						"uid": request["uid"], "convertedObjects": converted, "result": map[string]any{"status": "Success"},
					},
				})
			}))
			DeferCleanup(server.Close)
			group := framework.Unique("conversion") + ".example.com"
			installCRD(ctx, group, "samples", "sample", "Sample", "smp", "Namespaced")
			definition := &unstructured.Unstructured{}
			definition.SetAPIVersion("apiextensions.k8s.io/v1")
			definition.SetKind("CustomResourceDefinition")
			definition.SetName("samples." + group)
			conversion, err := json.Marshal(map[string]any{"spec": map[string]any{"conversion": map[string]any{
				"strategy": "Webhook", "webhook": map[string]any{
					"conversionReviewVersions": []string{"v1"}, "clientConfig": map[string]any{
						"url":      server.URL,
						"caBundle": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
					},
				},
			}}})
			Expect(err).NotTo(HaveOccurred())
			cluster.Admin.Patches(ctx, definition, string(conversion))

			other := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("victim"))
			namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("conversion"))
			create := func(namespace, name string) *unstructured.Unstructured {
				object := &unstructured.Unstructured{}
				object.SetAPIVersion(group + "/v1")
				object.SetKind("Sample")
				object.SetNamespace(namespace)
				object.SetName(name)
				cluster.Admin.Creates(ctx, object)
				return object
			}
			precious := create(other.Name, "precious")
			held := create(namespace.Name, "held")
			metadata := precious.Object["metadata"].(map[string]any)
			victim.Store(&metadata)
			isActive.Store(true)

			cluster.Admin.Deletes(ctx, namespace)
			Eventually(func(g Gomega) *corev1.Namespace { return cluster.GetNamespace(g, ctx, namespace.Name) }).WithContext(ctx).
				Should(HaveCondition(corev1.NamespaceDeletionContentFailure, corev1.ConditionTrue, "ContentDeletionFailed", "samples."+group))
			expectTerminating(ctx, namespace)
			cluster.Admin.Reads(ctx, precious)
			Expect(precious.GetDeletionTimestamp()).To(BeNil())
			cluster.Admin.Reads(ctx, held)

			isActive.Store(false)
			framework.ExpectDeleted(ctx, cluster.Admin, namespace)
			cluster.Admin.Reads(ctx, precious)
			cluster.Admin.Deletes(ctx, other)
		}, SpecTimeout(2*specTimeout))
	}
})

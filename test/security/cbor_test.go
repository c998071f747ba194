// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

// CBOR is an alpha feature, so these specs enable it on a second API server.
var _ = Describe("An API server that accepts CBOR", Ordered, func() {
	var ordinary *framework.User

	BeforeAll(func(ctx context.Context) {
		ordinary = cluster.StartSecondAPIServer(ctx, "--feature-gates=CBORServingAndStorage=true").As(cluster.Ordinary)
	}, NodeTimeout(5*time.Minute))

	It("injects the pending list into a new namespace", func(ctx context.Context) {
		cluster.Register(ctx, "cbor", "absent.test.example.com")
		expectInjected(ctx, ordinary)
		for description, metadata := range map[string][]byte{
			"plain":           cborMap("name", cborText("cbor-1")),
			"duplicate names": cborMap("name", cborText("kube-system"), "name", cborText("cbor-2")),
			"forged": cborMap("name", cborText("cbor-3"), "labels", cborMap(labelKey, cborText("")),
				"annotations", cborMap(pendingKey, cborText(""), requesterKey, cborText("mallory"))),
			"null":        cborMap("name", cborText("cbor-4"), "labels", []byte{0xf6}, "annotations", []byte{0xf6}),
			"byte string": cborMap("name", append([]byte{0x46}, "cbor-5"...)),
		} {
			By(description)
			created, err := send(ctx, ordinary, http.MethodPost, "/api/v1/namespaces", cborType,
				cborMap("apiVersion", cborText("v1"), "kind", cborText("Namespace"), "metadata", metadata))
			if err != nil {
				Expect(err).To(Or(HaveCode(http.StatusBadRequest), HaveCode(http.StatusUnprocessableEntity)))
				continue
			}
			Expect(created["metadata"]).To(HaveKeyWithValue("labels", HaveKeyWithValue(labelKey, "true")))
			Expect(created["metadata"]).To(HaveKeyWithValue("annotations", And(
				HaveKeyWithValue(pendingKey, "absent.test.example.com"), HaveKeyWithValue(requesterKey, framework.OrdinaryUser))))
		}
	}, SpecTimeout(2*specTimeout))

	It("does not let an ordinary user change the state of an initialization", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "cbor-state")
		for description, metadata := range map[string][]byte{
			"an empty list":             cborMap("name", cborText(namespace.Name), "annotations", cborMap(pendingKey, cborText(""))),
			"an empty label":            cborMap("name", cborText(namespace.Name), "labels", cborMap(labelKey, cborText(""))),
			"duplicate keys":            cborMap("name", cborText(namespace.Name), "annotations", cborMap(pendingKey, cborText("absent.test.example.com"), pendingKey, cborText(""))),
			"another creator":           cborMap("name", cborText(namespace.Name), "annotations", cborMap(requesterKey, cborText("mallory"))),
			"an indefinite-length list": cborMap("name", cborText(namespace.Name), "annotations", cborMap(pendingKey, []byte{0x7f, 0x60, 0xff})),
		} {
			By(description)
			body := cborMap("apiVersion", cborText("v1"), "kind", cborText("Namespace"), "metadata", metadata)
			for _, subresource := range []string{"", "status"} {
				_, _ = send(ctx, ordinary, http.MethodPatch, pathOf(namespace, subresource)+"?fieldManager=x&force=true", applyCBORType, body)
				_, _ = send(ctx, ordinary, http.MethodPut, pathOf(namespace, subresource), cborType, body)
				expectUnchanged(ctx, namespace)
			}
		}
	}, SpecTimeout(specTimeout))

	It("does not let an ordinary user write to an initializing namespace", func(ctx context.Context) {
		namespace := cluster.CreateInitializing(ctx, "cbor-content")
		body, err := direct.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}})
		Expect(err).NotTo(HaveOccurred())
		path := "/api/v1/namespaces/" + namespace.Name + "/configmaps"
		_, err = send(ctx, ordinary, http.MethodPost, path, cborType, body)
		Expect(err).To(BeForbiddenBy("gate"))
		_, err = send(ctx, ordinary, http.MethodPatch, path+"/a?fieldManager=x", applyCBORType, body)
		Expect(err).To(BeForbiddenBy("gate"))
	}, SpecTimeout(specTimeout))
})

// expectInjected waits until an API server injects the pending list into new namespaces.
func expectInjected(ctx context.Context, user *framework.User) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		created, err := send(ctx, user, http.MethodPost, "/api/v1/namespaces?dryRun=All", jsonType,
			[]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"generateName":"probe-"}}`))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(created["metadata"]).To(HaveKeyWithValue("labels", HaveKey(labelKey)))
	}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
}

// cborMap encodes a map with fewer than 24 entries. The map can contain duplicate keys.
func cborMap(entries ...any) []byte {
	encoded := []byte{0xa0 | byte(len(entries)/2)}
	for _, entry := range entries {
		switch value := entry.(type) {
		case string:
			encoded = append(encoded, cborText(value)...)
		case []byte:
			encoded = append(encoded, value...)
		}
	}
	return encoded
}

// cborText encodes a text string of fewer than 256 bytes.
func cborText(text string) []byte {
	return append([]byte{0x78, byte(len(text))}, text...)
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package stolentoken

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

func encode(value any) []byte {
	GinkgoHelper()
	text, err := json.Marshal(value)
	Expect(err).NotTo(HaveOccurred())
	return text
}

// response is a response of the API server. The text of a watch is empty.
type response struct {
	code int
	text string
}

// isDenied reports whether the API server refused the request because of who sent it.
func (r response) isDenied() bool {
	return r.code == http.StatusForbidden || r.code == http.StatusTooManyRequests ||
		strings.Contains(r.text, "ValidatingAdmissionPolicy") || strings.Contains(r.text, "denied the request") ||
		strings.Contains(r.text, "FieldValueForbidden")
}

// object returns the object in the response, or an empty one.
func (r response) object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	_ = json.Unmarshal([]byte(r.text), &object.Object)
	return object
}

// send sends a request. The default content type is JSON.
func send(ctx context.Context, client *http.Client, method, path, contentType string, body []byte) response {
	GinkgoHelper()
	return sendAs(ctx, client, "", method, path, contentType, body)
}

// sendAs is like send, but impersonates a user unless the name is empty.
func sendAs(ctx context.Context, client *http.Client, user, method, path, contentType string, body []byte) response {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(cluster.Admin.Config.Host, "/")+path,
		bytes.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	if contentType == "" {
		contentType = "application/json"
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", "application/json")
	if user != "" {
		request.Header.Set("Impersonate-User", user)
	}
	answer, err := client.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close()
	if strings.Contains(path, "watch=true") && answer.StatusCode == http.StatusOK {
		return response{code: answer.StatusCode}
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 8<<20))
	Expect(err).NotTo(HaveOccurred())
	return response{answer.StatusCode, string(text)}
}

func adminClient() *http.Client {
	GinkgoHelper()
	client, err := rest.HTTPClientFor(cluster.Admin.Config)
	Expect(err).NotTo(HaveOccurred())
	return client
}

// mustSend sends a request of the administrator, which must succeed or return one of the codes.
func mustSend(ctx context.Context, method, path string, body []byte, codes ...int) response {
	GinkgoHelper()
	answer := send(ctx, adminClient(), method, path, "", body)
	if answer.code >= http.StatusBadRequest {
		Expect(codes).To(ContainElement(answer.code), fmt.Sprintf("%s %s: %s: %s", method, path, body, answer.text))
	}
	return answer
}

// mustCreate creates an object unless it exists.
func mustCreate(ctx context.Context, path string, object *unstructured.Unstructured) {
	GinkgoHelper()
	mustSend(ctx, http.MethodPost, path, encode(object), http.StatusConflict)
}

func mustDelete(ctx context.Context, path string) {
	GinkgoHelper()
	mustSend(ctx, http.MethodDelete, path, nil, http.StatusNotFound)
}

// get returns an object, or nil if it does not exist.
func get(ctx context.Context, path string) *unstructured.Unstructured {
	GinkgoHelper()
	answer := mustSend(ctx, http.MethodGet, path, nil, http.StatusNotFound)
	if answer.code == http.StatusNotFound {
		return nil
	}
	object := &unstructured.Unstructured{}
	Expect(json.Unmarshal([]byte(answer.text), &object.Object)).To(Succeed())
	return object
}

// list returns the objects in a collection.
func list(ctx context.Context, path string) []unstructured.Unstructured {
	GinkgoHelper()
	objects := &unstructured.UnstructuredList{}
	Expect(objects.UnmarshalJSON([]byte(mustSend(ctx, http.MethodGet, path, nil).text))).To(Succeed(), path)
	return objects.Items
}

// restoreAll restores objects that the attacker has changed or deleted. A deleted object in a terminating namespace, or
// one that is terminating itself, cannot be restored.
func (a *attacker) restoreAll(ctx context.Context, served resource, objects []unstructured.Unstructured) {
	GinkgoHelper()
	for _, object := range objects {
		if object.GetNamespace() != "" && object.GetNamespace() == a.namespaces[terminating] {
			continue
		}
		restore(ctx, served, &object)
	}
}

func restore(ctx context.Context, served resource, object *unstructured.Unstructured) {
	GinkgoHelper()
	path := served.path(object.GetNamespace(), object.GetName())
	Eventually(func(g Gomega) {
		current := get(ctx, path)
		if current == nil {
			answer := mustSend(ctx, http.MethodPost, served.path(object.GetNamespace()), encode(forCreation(object)), http.StatusConflict)
			g.Expect(answer.code).NotTo(Equal(http.StatusConflict))
			return
		}
		if current.GetDeletionTimestamp() != nil && object.GetDeletionTimestamp() == nil {
			// A finalizer keeps it, for example that of the fixture.
			withoutFinalizers := current.DeepCopy()
			withoutFinalizers.SetFinalizers(nil)
			mustSend(ctx, http.MethodPut, path, encode(withoutFinalizers), http.StatusConflict, http.StatusNotFound)
			g.Expect(get(ctx, path)).To(BeNil(), "still terminating")
		}
		if !served.serves("update") {
			return
		}
		restored := object.DeepCopy()
		for _, subresource := range []string{"", "status"} {
			restored.SetResourceVersion(current.GetResourceVersion())
			restored.SetUID(current.GetUID())
			answer := mustSend(ctx, http.MethodPut, path+strings.TrimSuffix("/"+subresource, "/"), encode(restored),
				http.StatusConflict, http.StatusNotFound, http.StatusMethodNotAllowed)
			g.Expect(answer.code).NotTo(Equal(http.StatusConflict), answer.text)
			if version := answer.object().GetResourceVersion(); version != "" {
				current.SetResourceVersion(version)
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// forCreation returns a copy of an object without the fields that the API server sets.
func forCreation(object *unstructured.Unstructured) *unstructured.Unstructured {
	copied := object.DeepCopy()
	for _, field := range []string{
		"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "deletionTimestamp",
		"deletionGracePeriodSeconds",
	} {
		unstructured.RemoveNestedField(copied.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(copied.Object, "status")
	return copied
}

// isSame reports whether two versions of an object have the same content.
func isSame(a, b *unstructured.Unstructured) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, object := range []*unstructured.Unstructured{a, b} {
		for _, field := range []string{"resourceVersion", "generation", "managedFields"} {
			unstructured.RemoveNestedField(object.Object, "metadata", field)
		}
	}
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}

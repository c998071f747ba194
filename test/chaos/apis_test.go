// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// customType is a CRD. The kept namespaces contain custom resources while it exists.
const customType = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.temporary.example.com}
spec:
  group: temporary.example.com
  names: {plural: things, kind: Thing}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

// unavailableAPI is an aggregated API without a server. While it exists, discovery is incomplete.
const unavailableAPI = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.unavailable.example.com}
spec:
  group: unavailable.example.com
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 10
  insecureSkipTLSVerify: true
  service: {namespace: default, name: unavailable}
`

// addTemporary creates an object, and custom resources if it is a CRD, until the returned function is called.
func (s *scenario) addTemporary(ctx context.Context, manifest string) (remove func()) {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(manifest), &object.Object)).To(Succeed())
	adding, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		until(adding, func() bool {
			err := s.admin.Create(adding, object.DeepCopy())
			return err == nil || apierrors.IsAlreadyExists(err)
		})
		if manifest == customType {
			for _, namespace := range s.kept {
				until(adding, func() bool { return s.admin.Create(adding, makeThing(namespace.Name)) == nil })
			}
		}
	}()
	return func() {
		GinkgoHelper()
		cancel()
		<-done
		Eventually(func() error { return s.admin.Delete(ctx, object.DeepCopy()) }).WithContext(ctx).
			Should(Or(Succeed(), Satisfy(apierrors.IsNotFound)))
		Eventually(func() error { return s.admin.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopy()) }).
			WithContext(ctx).Should(Satisfy(apierrors.IsNotFound))
	}
}

func makeThing(namespace string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "temporary.example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"namespace": namespace, "name": "thing"},
	}}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package causes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// testFinalizer is one whose owner leaves no trace in the cluster.
const testFinalizer = "test.example.org/hold"

var counter atomic.Int32

// scene is one namespace and what is made for it. In the texts of its objects, $ns stands
// for the namespace and $id for a word that no other scene has.
type scene struct {
	ns, id string
}

// makeScene names a namespace that is not there yet.
func makeScene() *scene {
	id := fmt.Sprintf("acme%d", counter.Add(1))
	return &scene{ns: "scene-" + id, id: id}
}

// newScene creates a namespace. Whatever is left of it at the end of the spec goes.
func newScene(ctx context.Context) *scene {
	GinkgoHelper()
	s := makeScene()
	s.create(ctx, s.manifest())
	return s
}

func (s *scene) manifest() string { return `{apiVersion: v1, kind: Namespace, metadata: {name: $ns}}` }

func (s *scene) text(text string) string {
	return strings.NewReplacer("$ns", s.ns, "$id", s.id).Replace(text)
}

// objects reads the objects of a YAML text.
func (s *scene) objects(text string) []*unstructured.Unstructured {
	GinkgoHelper()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(s.text(text)), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		Expect(err).NotTo(HaveOccurred(), s.text(text))
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// create creates the objects of a YAML text with their status, in their order, and takes
// them away at the end of the spec. It returns them.
func (s *scene) create(ctx context.Context, text string) []*unstructured.Unstructured {
	GinkgoHelper()
	objects := s.objects(text)
	for _, object := range objects {
		status, hasStatus := object.Object["status"]
		Eventually(func() error {
			err := admin.Create(ctx, object)
			if err != nil && !isTooYoung(err) {
				return StopTrying("it cannot be created").Wrap(err)
			}
			return err
		}).WithContext(ctx).Should(Succeed(), "%s %s", object.GetKind(), object.GetName())
		DeferCleanup(removeObject, object.DeepCopy())
		if hasStatus {
			object.Object["status"] = status
			Expect(admin.Status().Update(ctx, object)).To(Succeed())
		}
	}
	return objects
}

// isTooYoung tells whether the API server does not know a type, or not yet.
func isTooYoung(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err)
}

// removeObject takes an object away, and whatever holds it.
func removeObject(ctx context.Context, object *unstructured.Unstructured) {
	release(ctx, object)
	err := admin.Delete(ctx, object, client.GracePeriodSeconds(0))
	if meta.IsNoMatchError(err) {
		return
	}
	Expect(client.IgnoreNotFound(err)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
	if object.GetKind() == "Namespace" {
		finalize(ctx, object.GetName(), corev1.FinalizerKubernetes)
	}
}

// release takes all finalizers off an object that may have gone.
func release(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Expect(tryRelease(ctx, object)).To(Succeed(), "%s", object.GetName())
}

func tryRelease(ctx context.Context, object client.Object) error {
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := admin.Patch(ctx, object, patch); !meta.IsNoMatchError(err) {
		return client.IgnoreNotFound(err)
	}
	return nil
}

// finalize leaves a namespace no other token than one, for the manager to release.
func finalize(ctx context.Context, name string, token corev1.FinalizerName) {
	GinkgoHelper()
	Eventually(func() error {
		namespace := &corev1.Namespace{}
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
			return client.IgnoreNotFound(err)
		}
		tokens := []corev1.FinalizerName{token}
		if slices.Equal(namespace.Spec.Finalizers, tokens) {
			return nil
		}
		namespace.Spec.Finalizers = tokens
		return client.IgnoreNotFound(admin.SubResource("finalize").Update(ctx, namespace))
	}).WithContext(ctx).Should(Succeed())
}

// delete asks for the deletion of an object of the scene.
func (s *scene) delete(ctx context.Context, text string) {
	GinkgoHelper()
	for _, object := range s.objects(text) {
		Expect(admin.Delete(ctx, object)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
	}
}

// end asks for the deletion of the namespace, and waits until the namespace controller has
// had its say: the patience of the suite is too short for a busy machine.
func (s *scene) end(ctx context.Context) {
	GinkgoHelper()
	s.delete(ctx, s.manifest())
	Eventually(func(g Gomega) {
		namespace := s.namespace(g, ctx)
		hasSpoken := slices.ContainsFunc(namespace.Status.Conditions, func(condition corev1.NamespaceCondition) bool {
			return condition.Type == corev1.NamespaceDeletionContentFailure
		})
		g.Expect(hasSpoken || !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes)).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
}

// namespace returns the Namespace as it is now.
func (s *scene) namespace(g Gomega, ctx context.Context) *corev1.Namespace {
	namespace := &corev1.Namespace{}
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: s.ns}, namespace)).To(Succeed())
	return namespace
}

// expectGone waits until the namespace has gone.
func (s *scene) expectGone(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		return admin.Get(ctx, client.ObjectKey{Name: s.ns}, &corev1.Namespace{})
	}).WithContext(ctx).Should(Satisfy(apierrors.IsNotFound), "%s is still there", s.ns)
}

// expectThere waits until an object of the scene is there and being deleted, or not.
func (s *scene) expectThere(ctx context.Context, text string, isBeingDeleted bool) {
	GinkgoHelper()
	for _, object := range s.objects(text) {
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			g.Expect(object.GetDeletionTimestamp() != nil).To(Equal(isBeingDeleted))
		}).WithContext(ctx).Should(Succeed(), "%s %s", object.GetKind(), object.GetName())
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package confinement

import (
	"context"
	"maps"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// forEach sends each request, in a fixed order.
func forEach(ctx context.Context, requests map[string]request, matcher OmegaMatcher) {
	GinkgoHelper()
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		By(name)
		Expect(requests[name](ctx)).To(matcher, name)
	}
}

var _ = Describe("A Namespace", func() {
	It("of users cannot be changed", func(ctx context.Context) {
		namespace := makeNamespace(ctx, func(w *wrappers.NamespaceWrapper) {
			w.Label("team", "a").Annotation("team", "a").Annotation(v1alpha1.AnnotationTTL, "8h")
		})
		Expect(condition(namespace.Name, "Initializing")(ctx)).To(Succeed())
		name := namespace.Name
		label := func(key string, value any) map[string]any { return inMetadata("labels", map[string]any{key: value}) }
		annotation := func(key string, value any) map[string]any {
			return inMetadata("annotations", map[string]any{key: value})
		}
		owner := []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "none"}}
		before := &corev1.Namespace{}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), before)).To(Succeed())
		requests := map[string]request{
			"adding a label":               merge(name, label("pod-security.kubernetes.io/enforce", "privileged")),
			"changing a label":             merge(name, label("team", "b")),
			"removing a label":             merge(name, label("team", nil)),
			"a label through /status":      merge(name, label("team", "b"), "status"),
			"a label, JSON patch":          rawPatch(name, types.JSONPatchType, `[{"op":"replace","path":"/metadata/labels/team","value":"b"}]`),
			"a label, strategic":           patch(name, types.StrategicMergePatchType, label("team", "b")),
			"a label of this project":      merge(name, label(v1alpha1.LabelDeletionProtection, "x")),
			"an annotation":                merge(name, annotation("team", "b")),
			"removing an annotation":       merge(name, annotation("team", nil)),
			"shortening the lifetime":      merge(name, annotation(v1alpha1.AnnotationTTL, "1s")),
			"an expiry":                    merge(name, annotation(v1alpha1.AnnotationExpiresAt, "2020-01-01T00:00:00Z")),
			"an expiry through /status":    merge(name, annotation(v1alpha1.AnnotationTTL, "1s"), "status"),
			"a parameter":                  merge(name, annotation(v1alpha1.PrefixParameter+"size", "x")),
			"a finalizer":                  merge(name, inMetadata("finalizers", []any{"example.com/f"})),
			"an owner":                     merge(name, inMetadata("ownerReferences", owner)),
			"an owner through /status":     merge(name, inMetadata("ownerReferences", owner), "status"),
			"a condition of a user":        condition(name, "example.com/Ready"),
			"a deletion condition":         condition(name, string(corev1.NamespaceContentRemaining)),
			"removing all conditions, PUT": put(before, "status", func(n *corev1.Namespace) { n.Labels["team"] = "b" }),
			"namespace finalizers":         put(before, "finalize", func(n *corev1.Namespace) { n.Spec.Finalizers = nil }),
			"a namespace finalizer":        put(before, "finalize", func(n *corev1.Namespace) { n.Spec.Finalizers = append(n.Spec.Finalizers, "a/b") }),
			"a label, dry run": func(ctx context.Context) error {
				return operator.Patch(ctx, before.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)),
					client.DryRunAll)
			},
			"a label, server-side apply": patch(name, types.ApplyPatchType, map[string]any{
				"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": map[string]any{"team": "b"}},
			}),
			"another namespace, server-side apply": patch("applied", types.ApplyPatchType, map[string]any{
				"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "applied"},
			}),
			"another namespace": func(ctx context.Context) error { return operator.Create(ctx, wrappers.MakeNamespace("created").Obj()) },
			"deletion":          func(ctx context.Context) error { return operator.Delete(ctx, before.DeepCopy()) },
		}
		forEach(ctx, requests, BeRefused())
		after := &corev1.Namespace{}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), after)).To(Succeed())
		Expect(after).To(Equal(before))
		Expect(requests["deletion"](ctx)).To(BeRefused("system:serviceaccount:nslifecycle-system:nslifecycle-controller-manager",
			"DELETE", "namespaces", name))

		By("sending what the API server ignores")
		for _, send := range []request{
			merge(name, inMetadata("deletionTimestamp", metav1.Now()), "status"),
			merge(name, inMetadata("deletionTimestamp", metav1.Now())),
			put(before, "finalize", func(n *corev1.Namespace) { n.DeletionTimestamp = new(metav1.Now()) }),
		} {
			_ = send(ctx) // Refused by validation, or without effect.
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), after)).To(Succeed())
			Expect(after.DeletionTimestamp).To(BeNil())
		}
	})

	It("gets the state, the conditions and the records of the operator", func(ctx context.Context) {
		namespace := makeNamespace(ctx)
		name := namespace.Name
		forEach(ctx, map[string]request{
			"Initializing":      condition(name, v1alpha1.ConditionInitializing),
			"of an initializer": condition(name, "a.example.com/Initialized"),
			"Ready":             condition(name, "Ready"),
			"blocked":           condition(name, v1alpha1.ConditionDeletionBlocked),
			"templates":         merge(name, inMetadata("annotations", map[string]any{v1alpha1.AnnotationTemplates: "{}"}), "status"),
			"a dry run": func(ctx context.Context) error {
				return operator.Create(ctx, wrappers.MakeNamespace("created").Obj(), client.DryRunAll)
			},
		}, Succeed())
		By("keeping the conditions of other controllers")
		Expect(admin.Status().Patch(ctx, namespace, client.RawPatch(types.StrategicMergePatchType,
			[]byte(`{"status":{"conditions":[{"type":"example.com/Ready","status":"True"}]}}`)))).To(Succeed())
		Expect(condition(name, v1alpha1.ConditionInitializing)(ctx)).To(Succeed())
		Expect(merge(name, map[string]any{"status": map[string]any{"conditions": nil}}, "status")(ctx)).To(BeRefused())
	})

	It("is finalized while it is terminating", func(ctx context.Context) {
		namespace := makeTerminating(ctx, "example.com/other")
		name := namespace.Name
		forEach(ctx, map[string]request{
			"another namespace finalizer": put(namespace, "finalize", func(n *corev1.Namespace) { n.Spec.Finalizers = []corev1.FinalizerName{"kubernetes"} }),
			"all namespace finalizers":    put(namespace, "finalize", func(n *corev1.Namespace) { n.Spec.Finalizers = nil }),
			"one more":                    put(namespace, "finalize", func(n *corev1.Namespace) { n.Spec.Finalizers = append(n.Spec.Finalizers, "a/b") }),
			"a label through /finalize":   put(namespace, "finalize", func(n *corev1.Namespace) { n.Labels["a"] = "b" }),
		}, BeRefused())
		forEach(ctx, map[string]request{
			"a deletion condition": condition(name, string(corev1.NamespaceContentRemaining)),
			"the phase":            merge(name, map[string]any{"status": map[string]any{"phase": "Terminating"}}, "status"),
			"another namespace finalizer, dry run": func(ctx context.Context) error {
				dry := namespace.DeepCopy()
				dry.ResourceVersion, dry.Spec.Finalizers = "", nil
				return operator.SubResource("finalize").Update(ctx, dry, client.DryRunAll)
			},
		}, Succeed())
		Expect(put(namespace, "finalize", func(n *corev1.Namespace) {
			n.Spec.Finalizers = []corev1.FinalizerName{"example.com/other"}
		})(ctx)).To(Succeed())
		By("deleting content without the namespace finalizer")
		Eventually(func() error {
			return operator.Delete(ctx, wrappers.MakeConfigMap(name, "content"), client.DryRunAll)
		}).WithContext(ctx).Should(BeRefused("only objects in terminating namespaces"))
		Expect(put(namespace, "finalize", func(n *corev1.Namespace) {
			n.Spec.Finalizers = []corev1.FinalizerName{"example.com/other", "kubernetes"}
		})(ctx)).To(BeRefused())
	})

	It("without finalizers gets the namespace finalizer back", func(ctx context.Context) {
		namespace := makeNamespace(ctx)
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
		without := namespace.DeepCopy()
		without.Spec.Finalizers = nil
		Expect(admin.SubResource("finalize").Update(ctx, without)).To(Succeed())
		Expect(put(without, "finalize", func(n *corev1.Namespace) {
			n.Spec.Finalizers = []corev1.FinalizerName{"kubernetes"}
		})(ctx)).To(BeRefused("terminating"))
	})
})

// put replaces a Namespace, or a subresource of it.
func put(namespace *corev1.Namespace, subresource string, change func(*corev1.Namespace)) request {
	return func(ctx context.Context) error {
		changed := namespace.DeepCopy()
		changed.ResourceVersion = ""
		change(changed)
		return operator.SubResource(subresource).Update(ctx, changed, client.FieldOwner(nswrite.FieldOwner))
	}
}

func rawPatch(name string, kind types.PatchType, body string, subresources ...string) request {
	return func(ctx context.Context) error {
		_, err := api.CoreV1().Namespaces().Patch(ctx, name, kind, []byte(body),
			metav1.PatchOptions{FieldManager: nswrite.FieldOwner}, subresources...)
		return err
	}
}

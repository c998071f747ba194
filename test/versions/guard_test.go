// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// addList sets the labels and annotations that the injection of a pending list sets.
func addList(namespace *corev1.Namespace) {
	namespace.Labels = map[string]string{v1alpha1.LabelInitializing: "true"}
	namespace.Annotations = map[string]string{
		v1alpha1.AnnotationPendingInitializers: rbac,
		v1alpha1.AnnotationInitializers:        rbac,
		v1alpha1.AnnotationInjectedAt:          "2026-03-01T12:00:00Z",
	}
}

// change patches a namespace as the user of the client, and returns the error.
func change(
	ctx context.Context, c client.Client, name string, how func(*corev1.Namespace), subresource ...string,
) error {
	GinkgoHelper()
	namespace := get(Default, ctx, name)
	base := namespace.DeepCopy()
	how(namespace)
	patch := client.MergeFrom(base)
	if len(subresource) > 0 {
		return c.SubResource(subresource[0]).Patch(ctx, namespace, patch)
	}
	return c.Patch(ctx, namespace, patch)
}

var _ = Describe("The guard", func() {
	It("rejects initializers that a user sets at creation", func(ctx context.Context) {
		for key, forge := range map[string]func(*corev1.Namespace){
			"everything":      addList,
			"the label":       func(n *corev1.Namespace) { n.Labels[v1alpha1.LabelInitializing] = "true" },
			"a previous list": func(n *corev1.Namespace) { n.Annotations[v1alpha1.AnnotationInitializers] = rbac },
			"another key":     func(n *corev1.Namespace) { n.Annotations[v1alpha1.Prefix+"other"] = "x" },
		} {
			for _, who := range []client.Client{ordinary, initializer, admin} {
				namespace := wrappers.MakeNamespace(unique("forged")).Obj()
				forge(namespace)
				err := who.Create(ctx, namespace)
				if byOperator {
					Expect(err).To(BeDeniedBy("guard", "the operator sets the labels and annotations under "+v1alpha1.Prefix), key)
					continue
				}
				Expect(err).NotTo(HaveOccurred(), key)
				for present := range namespace.Annotations {
					Expect(present).NotTo(HavePrefix(v1alpha1.Prefix), key)
				}
				Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing), key)
			}
		}
	})

	It("allows only the operator to add a list to an existing namespace", func(ctx context.Context) {
		config, err := plane.ServiceAccountConfig(ctx, controlplane.SystemNamespace, controlplane.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		operator := framework.NewClient(config)
		stopManager()
		DeferCleanup(startManager)
		name := unique("late")
		create(ctx, name)
		for _, subresource := range [][]string{nil, {"status"}} {
			Expect(change(ctx, ordinary, name, addList, subresource...)).To(BeDeniedBy("guard", `the verb "initialize"`))
			Expect(change(ctx, initializer, name, addList, subresource...)).
				To(BeDeniedBy("guard", "can only be removed"))
		}
		if !byOperator {
			Expect(change(ctx, operator, name, addList)).To(BeDeniedBy("guard", "can only be removed"))
			return
		}
		for key, almost := range map[string]func(*corev1.Namespace){
			"a label with another value": func(n *corev1.Namespace) { n.Labels[v1alpha1.LabelInitializing] = "yes" },
			"no copy of the list":        func(n *corev1.Namespace) { delete(n.Annotations, v1alpha1.AnnotationInitializers) },
			"another copy":               func(n *corev1.Namespace) { n.Annotations[v1alpha1.AnnotationInitializers] = list },
			"no injection time":          func(n *corev1.Namespace) { delete(n.Annotations, v1alpha1.AnnotationInjectedAt) },
			"an empty list": func(n *corev1.Namespace) {
				n.Annotations[v1alpha1.AnnotationPendingInitializers] = ""
				n.Annotations[v1alpha1.AnnotationInitializers] = ""
			},
			"a requester": func(n *corev1.Namespace) { n.Annotations[v1alpha1.AnnotationRequestedBy] = ordinaryUser },
			"a result":    func(n *corev1.Namespace) { n.Annotations[v1alpha1.AnnotationInitializationResult] = "{}" },
		} {
			err := change(ctx, operator, name, func(n *corev1.Namespace) { addList(n); almost(n) })
			Expect(err).To(BeDeniedBy("guard"), key)
		}
		for _, seen := range []string{"default", preExistingName, "kube-system"} {
			Expect(change(ctx, operator, seen, addList)).To(BeDeniedBy("guard", "can only be removed"), seen)
		}
		Expect(change(ctx, operator, name, addList)).To(Succeed())
		Expect(change(ctx, operator, name, func(n *corev1.Namespace) {
			n.Annotations[v1alpha1.AnnotationPendingInitializers] = list
		})).To(BeDeniedBy("guard", "can only be removed"))
		for _, key := range []string{v1alpha1.AnnotationInitializers, v1alpha1.AnnotationInjectedAt} {
			Expect(change(ctx, operator, name, func(n *corev1.Namespace) { delete(n.Annotations, key) })).
				To(BeDeniedBy("guard", "are immutable"), key)
		}
	})

	It("allows only initializers to remove entries from the list, and rejects reordering", func(ctx context.Context) {
		register(ctx, "turns", rbac, quota)
		name := createInjected(ctx, unique("turns")).Name
		reset := func(key string) func(*corev1.Namespace) {
			return func(n *corev1.Namespace) { delete(n.Annotations, key); delete(n.Labels, key) }
		}
		for _, key := range []string{v1alpha1.LabelInitializing, v1alpha1.AnnotationPendingInitializers} {
			for _, subresource := range [][]string{nil, {"status"}} {
				err := change(ctx, ordinary, name, reset(key), subresource...)
				if byOperator {
					Expect(err).To(BeDeniedBy("guard", `the verb "initialize"`))
				} else {
					Expect(err).NotTo(HaveOccurred()) // The API server restores the label.
				}
			}
		}
		if byOperator {
			Expect(change(ctx, initializer, name, reset(v1alpha1.LabelInitializing))).
				To(BeDeniedBy("guard", `must be "true" on namespace`))
			Expect(change(ctx, initializer, name, reset(v1alpha1.AnnotationPendingInitializers))).
				To(BeDeniedBy("guard", "missing in the request"))
		}
		Expect(change(ctx, initializer, name, func(n *corev1.Namespace) {
			n.Annotations[v1alpha1.AnnotationPendingInitializers] = quota + "," + rbac
		})).To(BeDeniedBy("guard", "can only be removed"))
		Expect(change(ctx, initializer, name, func(n *corev1.Namespace) {
			n.Annotations[v1alpha1.AnnotationPendingInitializers] = quota
		})).To(Succeed())
		Expect(change(ctx, initializer, name, func(n *corev1.Namespace) {
			n.Annotations[v1alpha1.AnnotationPendingInitializers] = rbac
		})).To(BeDeniedBy("guard", "can only be removed"))
		Expect(change(ctx, initializer, name, func(n *corev1.Namespace) {
			n.Annotations[v1alpha1.AnnotationPendingInitializers] = ""
		})).To(Succeed())
		expectWritable(ctx, name, v1alpha1.ReasonCompleted)
		Expect(change(ctx, initializer, name, addList)).To(BeDeniedBy("guard"))
	})

	It("rejects the completion of a failed initialization", func(ctx context.Context) {
		stopManager()
		DeferCleanup(func(ctx context.Context) {
			if manager == nil {
				startManager(ctx)
			}
		})
		startManager(ctx)
		register(ctx, "failing", rbac)
		name := createInjected(ctx, unique("failing")).Name
		stopManager()
		Expect(change(ctx, initializer, name, func(n *corev1.Namespace) {
			n.Annotations[v1alpha1.AnnotationInitializationResult] = `{"status":"Failure"}`
		})).To(Succeed())
		Expect(change(ctx, initializer, name, func(n *corev1.Namespace) {
			n.Annotations[v1alpha1.AnnotationPendingInitializers] = ""
		})).To(BeDeniedBy("guard", "its initialization cannot complete"))
		startManager(ctx)
		expectDeleted(ctx, name)
	})

	It("rejects namespaces that are too large for a pending list", func(ctx context.Context) {
		if !byOperator {
			Skip("the API server injects the list at creation")
		}
		big := wrappers.MakeNamespace(unique("big")).Annotation("corp.example.com/big", strings.Repeat("ä", 66000)).Obj()
		Expect(ordinary.Create(ctx, big)).To(BeDeniedBy("guard", "128 KiB"))
		many := wrappers.MakeNamespace(unique("many")).Obj()
		for range 2001 {
			many.Annotations["corp.example.com/"+unique("key")] = ""
		}
		Expect(ordinary.Create(ctx, many)).To(BeDeniedBy("guard", "2000 labels and annotations"))

		stopManager()
		DeferCleanup(startManager)
		name := unique("window")
		create(ctx, name)
		Expect(change(ctx, ordinary, name, func(n *corev1.Namespace) {
			n.Annotations = map[string]string{"corp.example.com/big": strings.Repeat("x", 140000)}
		})).To(BeDeniedBy("guard", "128 KiB"))
		seen := func(n *corev1.Namespace) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NamespaceCondition{
				Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse,
			})
		}
		Expect(change(ctx, ordinary, name, seen, "status")).To(BeDeniedBy("guard", "conditions of nslifecycle"))
		Expect(change(ctx, ordinary, preExistingName, func(n *corev1.Namespace) { n.Status.Conditions = nil }, "status")).
			To(BeDeniedBy("guard", "conditions of nslifecycle"))
		// The guard ignores other conditions.
		Expect(change(ctx, ordinary, name, func(n *corev1.Namespace) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NamespaceCondition{Type: "Other", Status: corev1.ConditionTrue})
		}, "status")).To(Succeed())
	})
})

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"maps"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/admissioncases"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("A new namespace", func() {
	creations := admissioncases.Creations()
	for _, name := range slices.Sorted(maps.Keys(creations)) {
		It("gets the expected state: "+name, func(ctx context.Context) {
			test := creations[name]
			namespace := test.Request()
			err := as(test.User).Create(ctx, namespace, client.DryRunAll)
			if exists(ctx, test.Name) {
				// Otherwise, the guard policy would reject it.
				Expect(err).To(Satisfy(apierrors.IsAlreadyExists))
				return
			}
			Expect(err).NotTo(HaveOccurred())
			expectObject(Default, namespace, test.Want)
		})
	}
})

// exists reports whether a namespace exists. The API server returns no result of a dry run then.
func exists(ctx context.Context, name string) bool {
	GinkgoHelper()
	if name == "" {
		return false
	}
	err := cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	return err == nil
}

var _ = Describe("An update of a namespace", Ordered, ContinueOnFailure, func() {
	started := map[string]*corev1.Namespace{}
	BeforeAll(func(ctx context.Context) {
		for name, reachable := range admissioncases.Reachable() {
			started[name] = begin(ctx, reachable.Request, reachable.Change)
		}
	})
	starts, updates := admissioncases.Starts(), admissioncases.Updates()
	for _, name := range slices.Sorted(maps.Keys(updates)) {
		test := updates[name]
		if _, ok := admissioncases.Reachable()[test.Start]; !ok {
			continue
		}
		for _, verb := range test.Verbs {
			It("has the expected result: "+name+" ("+string(verb)+")", func(ctx context.Context) {
				before := cluster.GetNamespace(Default, ctx, started[test.Start].Name)
				expectMaps(Default, before, starts[test.Start].Labels, starts[test.Start].Annotations)
				after, err := send(ctx, as(test.User), verb, before, test.Change)
				if test.Refused {
					Expect(err).To(MatchError(ContainSubstring("ValidatingAdmissionPolicy 'nslifecycle-")))
					return
				}
				Expect(err).NotTo(HaveOccurred())
				want := test.Expected(starts[test.Start])
				expectMaps(Default, after, want.Labels, want.Annotations)
			})
		}
	}
})

// begin creates a namespace as the ordinary user, and changes it as the initializer. If it exists, begin adds the labels
// and annotations.
func begin(ctx context.Context, request *corev1.Namespace, change func(*corev1.Namespace)) *corev1.Namespace {
	GinkgoHelper()
	if exists(ctx, request.Name) {
		existing := cluster.GetNamespace(Default, ctx, request.Name)
		existing.Labels, existing.Annotations = request.Labels, request.Annotations
		Expect(cluster.Admin.Update(ctx, existing)).To(Succeed())
		return existing
	}
	namespace := request.DeepCopy()
	Expect(cluster.Ordinary.Create(ctx, namespace)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { _ = cluster.Admin.Delete(ctx, namespace) })
	if change != nil {
		patch := client.MergeFrom(namespace.DeepCopy())
		change(namespace)
		Expect(cluster.Initializer.Patch(ctx, namespace, patch)).To(Succeed())
	}
	return namespace
}

// send changes a namespace in a dry run, and returns the result.
func send(
	ctx context.Context, user *framework.User, verb admissioncases.Verb, before *corev1.Namespace,
	change func(*corev1.Namespace),
) (*corev1.Namespace, error) {
	GinkgoHelper()
	after := before.DeepCopy()
	change(after)
	after.ResourceVersion = "" // The operator changes conditions.
	var err error
	switch verb {
	case admissioncases.Put:
		err = user.Update(ctx, after, client.DryRunAll)
	case admissioncases.MergePatch:
		after.ResourceVersion = before.ResourceVersion
		err = user.Patch(ctx, after, client.MergeFrom(before), client.DryRunAll)
	case admissioncases.Status:
		err = user.Status().Update(ctx, after, client.DryRunAll)
	case admissioncases.Finalize:
		after, err = user.Clientset().CoreV1().Namespaces().Finalize(ctx, after,
			metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	return after, err
}

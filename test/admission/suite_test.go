// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/admissioncases"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// casesGroup is the group of the users of the cases that have no certificate. They have every verb but "initialize".
const casesGroup = "cases"

var (
	cluster *framework.Cluster
	// hasPolicies reports whether the API server serves MutatingAdmissionPolicy.
	hasPolicies bool
)

func TestAdmission(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Admission")
}

var _ = BeforeSuite(func(ctx context.Context) {
	framework.SetDefaults()
	cluster = framework.Start(ctx)
	err := cluster.Admin.List(ctx, &admissionv1.MutatingAdmissionPolicyList{})
	Expect(err).To(Or(Succeed(), Satisfy(meta.IsNoMatchError)))
	hasPolicies = err == nil
	cluster.Bind(ctx, casesGroup,
		[]rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: framework.VerbsButInitialize}},
		rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: casesGroup})
	cluster.StartHoldingManager(ctx)
	Expect(cluster.AggregateClusterRoles(ctx)).To(Succeed())
	register(ctx)
}, NodeTimeout(10*time.Minute))

// register registers the initializers and templates of the cases, and waits until the API server uses all.
func register(ctx context.Context) {
	GinkgoHelper()
	for _, template := range admissioncases.Templates() {
		Expect(cluster.Admin.Create(ctx, &template)).To(Succeed())
	}
	for _, configuration := range admissioncases.Configurations() {
		Expect(cluster.Admin.Create(ctx, &configuration)).To(Succeed())
	}
	for _, configuration := range admissioncases.Configurations() {
		cluster.ExpectActive(ctx, configuration.Name)
	}
	want := admissioncases.Set()
	Eventually(func(g Gomega) {
		set := cluster.EffectiveSet(g, ctx)
		g.Expect(set.Initializers).To(HaveLen(len(want.Initializers)))
		for i, initializer := range want.Initializers {
			g.Expect(set.Initializers[i].Name).To(Equal(initializer.Name))
		}
		g.Expect(set.Templates).To(HaveLen(len(want.Templates)))
		g.Expect(set.SystemNamespace).To(Equal(want.SystemNamespace))
	}).WithContext(ctx).Should(Succeed())
	cases := admissioncases.Creations()
	Eventually(func(g Gomega) {
		for _, name := range []string{"three templates", "deletion protection"} {
			test := cases[name]
			namespace := test.Request()
			g.Expect(as(test.User).Create(ctx, namespace, client.DryRunAll)).To(Succeed())
			expectObject(g, namespace, test.Want)
		}
	}).WithContext(ctx).Should(Succeed())
}

// as returns a client for a user of the cases.
func as(user string) *framework.User {
	switch user {
	case framework.OrdinaryUser:
		return cluster.Ordinary
	case framework.InitializerUser:
		return cluster.Initializer
	}
	return cluster.Impersonate(user, casesGroup)
}

// expectObject compares the labels, annotations and finalizers of a Namespace, except those that the API server adds.
func expectObject(g Gomega, namespace *corev1.Namespace, want admissioncases.Object) {
	GinkgoHelper()
	expectMaps(g, namespace, want.Labels, want.Annotations)
	g.Expect(withoutKubernetes(namespace)).To(HaveExactElements(withoutKubernetes(&corev1.Namespace{
		Spec: corev1.NamespaceSpec{Finalizers: want.Finalizers},
	})))
}

func withoutKubernetes(namespace *corev1.Namespace) []corev1.FinalizerName {
	return slices.DeleteFunc(slices.Clone(namespace.Spec.Finalizers), func(name corev1.FinalizerName) bool {
		return name == corev1.FinalizerKubernetes
	})
}

func expectMaps(g Gomega, namespace *corev1.Namespace, labels, annotations map[string]string) {
	GinkgoHelper()
	g.Expect(withoutName(namespace.Labels)).To(Equal(withoutName(labels)))
	g.Expect(withoutName(namespace.Annotations)).To(Equal(withoutName(annotations)))
}

// withoutName returns a map that is not nil, without the label that the API server sets.
func withoutName(values map[string]string) map[string]string {
	copied := maps.Clone(values)
	if copied == nil {
		copied = map[string]string{}
	}
	delete(copied, corev1.LabelMetadataName)
	return copied
}

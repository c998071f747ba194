// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/admission/cases"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
)

// casesGroup is the group of the users of the cases that have no certificate. They have every verb but "initialize".
const casesGroup = "cases"

// These specs share a control plane with a manager, which answers the webhooks if the API server does not serve
// MutatingAdmissionPolicy.
var _ = Describe("With a manager", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		cluster = framework.Start(ctx)
		cluster.Bind(ctx, casesGroup,
			[]rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: framework.VerbsButInitialize}},
			rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: casesGroup})
		cluster.StartHoldingManager(ctx)
		Expect(cluster.AggregateClusterRoles(ctx)).To(Succeed())
		register(ctx)
	})
	Describe("a new namespace", newNamespaces)
	Describe("an update of a namespace", updatedNamespaces)
	It("restores the conditions of the operator in initialized and terminating namespaces", updatedConditions)
})

// register registers the initializers and templates of the cases, and waits until the API server uses all.
func register(ctx context.Context) {
	GinkgoHelper()
	for _, template := range cases.Templates() {
		cluster.Admin.Creates(ctx, &template)
	}
	for _, configuration := range cases.Configurations() {
		cluster.Admin.Creates(ctx, &configuration)
	}
	for _, configuration := range cases.Configurations() {
		cluster.ExpectActive(ctx, configuration.Name)
	}
	want := cases.Set()
	Eventually(func(g Gomega) {
		set := cluster.EffectiveSet(g, ctx)
		g.Expect(set.Initializers).To(HaveLen(len(want.Initializers)))
		for i, initializer := range want.Initializers {
			g.Expect(set.Initializers[i].Name).To(Equal(initializer.Name))
		}
		g.Expect(set.Templates).To(HaveLen(len(want.Templates)))
		g.Expect(set.SystemNamespace).To(Equal(want.SystemNamespace))
		g.Expect(set.SourceNamespace).To(Equal(want.SourceNamespace))
	}).WithContext(ctx).Should(Succeed())
	creations := cases.Creations()
	Eventually(func(g Gomega) {
		for _, name := range []string{"three templates", "deletion protection"} {
			test := creations[name]
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
func expectObject(g Gomega, namespace *corev1.Namespace, want cases.Object) {
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

func newNamespaces() {
	creations := cases.Creations()
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
}

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

func updatedNamespaces() {
	started := map[string]*corev1.Namespace{}
	starts, updates := cases.Starts(), cases.Updates()
	BeforeAll(func(ctx context.Context) {
		for name, reachable := range cases.Reachable() {
			started[name] = begin(ctx, reachable)
		}
		const turn = v1alpha1.AnnotationTurnStartedAt
		Eventually(func(g Gomega) { // The operator records it.
			current := cluster.GetNamespace(g, ctx, started[cases.StartTurn].Name)
			g.Expect(current.Annotations).To(HaveKey(turn))
			starts[cases.StartTurn].Annotations[turn] = current.Annotations[turn]
		}).WithContext(ctx).Should(Succeed())
	})
	for _, name := range slices.Sorted(maps.Keys(updates)) {
		test := updates[name]
		if _, ok := cases.Reachable()[test.Start]; !ok {
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
}

// updatedConditions sends all cases in one spec, because they do not change the namespace.
func updatedConditions(ctx context.Context) {
	completed := cases.Reachable()[cases.StartCompleted]
	completed.Request.Name = framework.Unique("conditions")
	completed.Request.Finalizers = []string{"test.example.com/keep"}
	namespace := begin(ctx, completed).Name
	DeferCleanup(func(ctx context.Context) { framework.RemoveFinalizers(ctx, cluster.Admin, completed.Request) })
	// The operator writes the conditions of the finalization again when it changes them.
	ofInitialization := func(conditions []corev1.NamespaceCondition) []corev1.NamespaceCondition {
		return slices.DeleteFunc(slices.Clone(conditions), func(c corev1.NamespaceCondition) bool {
			return strings.HasPrefix(string(c.Type), "Namespace")
		})
	}
	expectRestored := func(status corev1.ConditionStatus, reason string) {
		GinkgoHelper()
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace).
			Should(matchers.HaveCondition(v1alpha1.ConditionReady, status, reason))
		for name, test := range cases.ConditionUpdates() {
			Eventually(func(g Gomega) { // The operator can change a condition between the two requests.
				before := cluster.GetNamespace(g, ctx, namespace)
				after := before.DeepCopy()
				after.Status.Conditions = test.Change(before.Status.Conditions)
				g.Expect(as(test.User).Status().Update(ctx, after, client.DryRunAll)).To(Succeed())
				g.Expect(ofInitialization(after.Status.Conditions)).
					To(HaveExactElements(ofInitialization(test.Expected(before.Status.Conditions))), name)
			}).WithContext(ctx).Should(Succeed())
		}
	}
	expectRestored(corev1.ConditionTrue, v1alpha1.ReasonInitialized)
	cluster.Admin.Deletes(ctx, completed.Request)
	expectRestored(corev1.ConditionFalse, v1alpha1.ReasonTerminating)
}

// begin creates a namespace as the ordinary user, and changes it as the initializer, or as the
// administrator. If it exists, begin adds the labels and annotations.
func begin(ctx context.Context, start cases.Namespace) *corev1.Namespace {
	GinkgoHelper()
	request, user := start.Request, cluster.Initializer
	if start.IsRecord {
		user = cluster.Admin
	}
	if exists(ctx, request.Name) {
		existing := cluster.GetNamespace(Default, ctx, request.Name)
		existing.Labels, existing.Annotations = request.Labels, request.Annotations
		cluster.Admin.Updates(ctx, existing)
		return existing
	}
	namespace := request.DeepCopy()
	cluster.Ordinary.Creates(ctx, namespace)
	DeferCleanup(func(ctx context.Context) { _ = cluster.Admin.Delete(ctx, namespace) })
	if start.Change != nil {
		patch := client.MergeFrom(namespace.DeepCopy())
		start.Change(namespace)
		Expect(user.Patch(ctx, namespace, patch)).To(Succeed())
	}
	return namespace
}

// send changes a namespace in a dry run, and returns the result.
func send(
	ctx context.Context, user *framework.User, verb cases.Verb, before *corev1.Namespace,
	change func(*corev1.Namespace),
) (*corev1.Namespace, error) {
	GinkgoHelper()
	after := before.DeepCopy()
	change(after)
	after.ResourceVersion = "" // The operator changes conditions.
	var err error
	switch verb {
	case cases.Put:
		err = user.Update(ctx, after, client.DryRunAll)
	case cases.MergePatch:
		after.ResourceVersion = before.ResourceVersion
		err = user.Patch(ctx, after, client.MergeFrom(before), client.DryRunAll)
	case cases.Status:
		err = user.Status().Update(ctx, after, client.DryRunAll)
	case cases.Finalize:
		after, err = user.Clientset().CoreV1().Namespaces().Finalize(ctx, after,
			metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	return after, err
}

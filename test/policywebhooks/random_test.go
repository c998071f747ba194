// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policywebhooks

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/inject"
	"github.com/nslifecycle/nslifecycle/test/admission/cases"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

var _ = Describe("The Go implementation", Ordered, func() {
	// server runs the policies if it serves them.
	var server *framework.Cluster
	BeforeAll(func(ctx context.Context) {
		server = framework.Start(ctx)
		server.StartHoldingManager(ctx)
		for _, template := range cases.Templates() {
			server.Admin.Creates(ctx, &template)
		}
		for _, configuration := range cases.Configurations() {
			server.Admin.Creates(ctx, &configuration)
			server.ExpectActive(ctx, configuration.Name)
		}
		Eventually(func(g Gomega) {
			set := server.EffectiveSet(g, ctx)
			g.Expect(set.Initializers).To(HaveLen(len(cases.Set().Initializers)))
			g.Expect(set.Templates).To(HaveLen(len(cases.Templates())))
		}).WithContext(ctx).Should(Succeed())
		test := cases.Creations()["three templates"]
		Eventually(func(g Gomega) { // The API server uses all of them.
			namespace := test.Request()
			g.Expect(server.Ordinary.Create(ctx, namespace, client.DryRunAll)).To(Succeed())
			g.Expect(namespace.Annotations).To(Equal(test.Want.Annotations))
		}).WithContext(ctx).Should(Succeed())
	})
	DescribeTable("changes a new namespace as the API server does", func(ctx context.Context, requests int) {
		randomCreations(ctx, server, requests)
	}, Entry("100 times", 100), Entry("1000 times", Label("long"), 1000))
	DescribeTable("changes an updated namespace as the API server does", func(ctx context.Context, requests int) {
		randomUpdates(ctx, server, requests)
	}, Entry("100 times", 100), Entry("1000 times", Label("long"), 1000))
})

// withoutDefaults returns the labels, annotations and finalizers of a Namespace, except those that the API server adds.
func withoutDefaults(namespace *corev1.Namespace) cases.Object {
	labels := maps.Clone(namespace.Labels)
	delete(labels, corev1.LabelMetadataName)
	if len(labels) == 0 {
		labels = nil
	}
	finalizers := slices.DeleteFunc(slices.Clone(namespace.Spec.Finalizers), func(name corev1.FinalizerName) bool {
		return name == corev1.FinalizerKubernetes
	})
	if len(finalizers) == 0 {
		finalizers = nil
	}
	annotations := namespace.Annotations
	if len(annotations) == 0 {
		annotations = nil
	}
	return cases.Object{Labels: labels, Annotations: annotations, Finalizers: finalizers}
}

// generator makes random requests.
type generator struct{ *rand.Rand }

func newGenerator() generator {
	return generator{rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))}
}

func (r generator) one(of ...string) string { return of[r.IntN(len(of))] }

// some returns a map with some of the keys, each with one of the values.
func (r generator) some(chance float64, keys, values []string) map[string]string {
	result := map[string]string{}
	for _, key := range keys {
		if r.Float64() < chance {
			result[key] = r.one(values...)
		}
	}
	return result
}

func (r generator) creation(i int) *corev1.Namespace {
	const own = v1alpha1.Prefix
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: r.one("", "shop", fmt.Sprintf("web-%d", i)),
		Labels: r.some(0.25, []string{
			"team", "corp.example.com/tier", "kubernetes.io/metadata.name", own + "initializing", own + "x", own + "policy",
			v1alpha1.LabelDeletionProtection, "app",
		}, []string{"", "a", "b", "gold", "silver", "shop", "true"}),
		Annotations: r.some(0.2, []string{
			v1alpha1.AnnotationPendingInitializers, v1alpha1.AnnotationInitializers, v1alpha1.AnnotationRequestedBy,
			v1alpha1.AnnotationSelectedTemplates, v1alpha1.AnnotationAppliedTemplates, v1alpha1.AnnotationInitializationResult,
			own + "a~b", own + "\"<", own + "a/b/c", "note", "x.example.com/y",
		}, []string{"", " ", "a", "a,b", "<&>\u2028\"\\\n", framework.OrdinaryUser, cases.Failure}),
	}}
	if namespace.Name == "" {
		namespace.GenerateName = "random-"
	}
	if template := r.one("", "", "cases-chosen", "cases-gold", "-"); template != "-" {
		namespace.Labels[v1alpha1.LabelTemplate] = template
	}
	declared := []string{"size", "region"}
	if namespace.Labels[v1alpha1.LabelTemplate] != "cases-chosen" {
		declared = nil
	}
	for name, value := range r.some(0.5, declared, []string{"", "x"}) {
		namespace.Annotations[v1alpha1.PrefixParameter+name] = value
	}
	for _, finalizer := range []corev1.FinalizerName{"cases.example.com/tier", "z.example.com/z", "cases.example.com/all"} {
		if r.IntN(4) == 0 {
			namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, finalizer)
		}
	}
	return namespace
}

func (r generator) change(namespace *corev1.Namespace) {
	chance := r.Float64()
	for _, values := range []map[string]string{namespace.Labels, namespace.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if r.Float64() < chance {
				delete(values, key)
			}
		}
	}
	maps.Copy(namespace.Annotations, r.some(chance/2, []string{v1alpha1.AnnotationPendingInitializers},
		[]string{"", "", "", " ,\t", "all.cases.example.com", "a,b"}))
	maps.Copy(namespace.Annotations, r.some(chance/3, []string{
		v1alpha1.AnnotationInitializers, v1alpha1.AnnotationRequestedBy, v1alpha1.AnnotationSelectedTemplates,
		v1alpha1.AnnotationAppliedTemplates, v1alpha1.AnnotationTurnStartedAt, "note",
	}, []string{"", "a", "<&>\n"}))
	maps.Copy(namespace.Annotations, r.some(chance/3, []string{v1alpha1.AnnotationInitializationResult}, []string{
		"", "{}", cases.Failure, ` {"a":{"status":"Failure"}}`, `{"a":{},"status" : "Failure"}` + "\n", `"status":"Failure"`,
	}))
	maps.Copy(namespace.Labels, r.some(chance/3, []string{v1alpha1.LabelInitializing, "color"}, []string{"", "true", "x"}))
}

// randomCreations sends requests. The API server must admit at least one in four.
func randomCreations(ctx context.Context, server *framework.Cluster, requests int) {
	r, set, admitted := newGenerator(), server.EffectiveSet(Default, ctx), 0
	for i := range requests {
		namespace := r.creation(i)
		want, sent := namespace.DeepCopy(), namespace.DeepCopy()
		if want.Name != "" {
			want.Labels[corev1.LabelMetadataName] = want.Name
		}
		inject.Inject(want, set, framework.OrdinaryUser)
		if err := server.Ordinary.Create(ctx, namespace, client.DryRunAll); err != nil {
			Expect(err).NotTo(MatchError(ContainSubstring("'nslifecycle-guard'")), "%+v", sent)
			continue
		}
		admitted++
		Expect(withoutDefaults(namespace)).To(Equal(withoutDefaults(want)))
	}
	AddReportEntry(fmt.Sprintf("%d of %d requests admitted", admitted, requests))
	Expect(admitted).To(BeNumerically(">", requests/4))
}

func randomUpdates(ctx context.Context, server *framework.Cluster, requests int) {
	if framework.ServesPolicies(ctx, server.Admin.Config) {
		unbind(ctx, server, "nslifecycle-guard") // It would reject most random requests.
	}
	var started []*corev1.Namespace
	reachable := cases.Reachable()
	for _, name := range slices.Sorted(maps.Keys(reachable)) {
		namespace, change := reachable[name].Request, reachable[name].Change
		if strings.HasPrefix(namespace.Name, "kube-") { // It exists.
			continue
		}
		namespace.Name = framework.Unique("random")
		server.Ordinary.Creates(ctx, namespace)
		if change != nil {
			patch := client.MergeFrom(namespace.DeepCopy())
			change(namespace)
			user := server.Initializer
			if reachable[name].IsRecord {
				user = server.Admin
			}
			Expect(user.Patch(ctx, namespace, patch)).To(Succeed())
		}
		started = append(started, namespace)
	}
	r, admitted := newGenerator(), 0
	for range requests {
		before := server.GetNamespace(Default, ctx, started[r.IntN(len(started))].Name)
		after := before.DeepCopy()
		r.change(after)
		user := []*framework.User{server.Ordinary, server.Initializer}[r.IntN(2)]
		want := after.DeepCopy()
		inject.Complete(before, want, user == server.Initializer)
		after.ResourceVersion = "" // The operator changes conditions.
		var err error
		switch r.IntN(4) {
		case 0:
			err = user.Update(ctx, after, client.DryRunAll)
		case 1:
			after.ResourceVersion = before.ResourceVersion
			err = user.Patch(ctx, after, client.MergeFrom(before), client.DryRunAll)
		case 2:
			err = user.Status().Update(ctx, after, client.DryRunAll)
		default:
			after, err = user.Clientset().CoreV1().Namespaces().Finalize(ctx, after,
				metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		}
		now := server.GetNamespace(Default, ctx, before.Name)
		isChanged := !reflect.DeepEqual(withoutDefaults(now), withoutDefaults(before)) // For example, by the operator.
		if err != nil || isChanged {
			continue
		}
		admitted++
		Expect(withoutDefaults(after)).To(Equal(withoutDefaults(want)))
	}
	AddReportEntry(fmt.Sprintf("%d of %d requests admitted", admitted, requests))
	Expect(admitted).To(BeNumerically(">", requests/4))
}

// unbind deletes a binding until the spec ends, and waits until the API server notices.
func unbind(ctx context.Context, server *framework.Cluster, name string) {
	GinkgoHelper()
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	Expect(server.Admin.Get(ctx, client.ObjectKey{Name: name}, binding)).To(Succeed())
	server.Admin.Deletes(ctx, binding)
	forged := server.GetNamespace(Default, ctx, "kube-public")
	forged.Labels[v1alpha1.LabelInitializing] = "true"
	isAdmitted := func() error { return server.Ordinary.Update(ctx, forged.DeepCopy(), client.DryRunAll) }
	Eventually(isAdmitted).WithContext(ctx).Should(Succeed())
	DeferCleanup(func(ctx context.Context) {
		binding.ResourceVersion, binding.UID = "", ""
		server.Admin.Creates(ctx, binding)
		Eventually(isAdmitted).WithContext(ctx).ShouldNot(Succeed())
	})
}

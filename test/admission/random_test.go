// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/injection"
	"github.com/nslifecycle/nslifecycle/test/admissioncases"
	"github.com/nslifecycle/nslifecycle/test/framework"
)

// requests is the number of random requests, of which at least a quarter must be admitted.
const requests = 300

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
			v1alpha1.AnnotationSelectedTemplates, v1alpha1.AnnotationTemplates, v1alpha1.AnnotationInitializationResult,
			own + "a~b", own + "\"<", own + "a/b/c", "note", "x.example.com/y",
		}, []string{"", " ", "a", "a,b", "<&>\u2028\"\\\n", framework.OrdinaryUser, admissioncases.Failure}),
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
		v1alpha1.AnnotationTemplates, "note",
	}, []string{"", "a", "<&>\n"}))
	maps.Copy(namespace.Annotations, r.some(chance/3, []string{v1alpha1.AnnotationInitializationResult}, []string{
		"", "{}", admissioncases.Failure, ` {"a":{"status":"Failure"}}`, `{"a":{},"status" : "Failure"}` + "\n", `"status":"Failure"`,
	}))
	maps.Copy(namespace.Labels, r.some(chance/3, []string{v1alpha1.LabelInitializing, "color"}, []string{"", "true", "x"}))
}

var _ = Describe("The result of a random request equals that of the Go implementation", Serial, func() {
	It("that creates a namespace", func(ctx context.Context) {
		r, set, admitted := newGenerator(), cluster.EffectiveSet(Default, ctx), 0
		for i := range requests {
			namespace := r.creation(i)
			want, sent := namespace.DeepCopy(), namespace.DeepCopy()
			if want.Name != "" {
				want.Labels[corev1.LabelMetadataName] = want.Name
			}
			injection.Inject(want, set, framework.OrdinaryUser)
			if err := cluster.Ordinary.Create(ctx, namespace, client.DryRunAll); err != nil {
				Expect(err).NotTo(MatchError(ContainSubstring("'nslifecycle-guard'")), "%+v", sent)
				continue
			}
			admitted++
			expectObject(Default, namespace, admissioncases.Object{
				Labels: want.Labels, Annotations: want.Annotations, Finalizers: want.Spec.Finalizers,
			})
		}
		AddReportEntry(fmt.Sprintf("%d of %d requests admitted", admitted, requests))
		Expect(admitted).To(BeNumerically(">", requests/4))
	}, SpecTimeout(5*time.Minute))

	It("that updates a namespace", func(ctx context.Context) {
		if hasPolicies {
			unbind(ctx, "nslifecycle-guard") // It would reject most random requests.
		}
		var started []*corev1.Namespace
		reachable := admissioncases.Reachable()
		for _, name := range slices.Sorted(maps.Keys(reachable)) {
			request := reachable[name].Request
			if !strings.HasPrefix(request.Name, "kube-") {
				request.Name = framework.Unique("random")
			}
			started = append(started, begin(ctx, request, reachable[name].Change))
		}
		r, admitted := newGenerator(), 0
		for range requests {
			before := cluster.GetNamespace(Default, ctx, started[r.IntN(len(started))].Name)
			after := before.DeepCopy()
			r.change(after)
			user := as(r.one(framework.OrdinaryUser, framework.InitializerUser))
			verb := admissioncases.Verb(r.one(string(admissioncases.Put), string(admissioncases.MergePatch),
				string(admissioncases.Status), string(admissioncases.Finalize)))
			want := after.DeepCopy()
			injection.Complete(before, want, user == cluster.Initializer)
			got, err := send(ctx, user, verb, before, func(namespace *corev1.Namespace) {
				namespace.Labels, namespace.Annotations = after.Labels, after.Annotations
			})
			if err != nil {
				continue
			}
			admitted++
			expectMaps(Default, got, want.Labels, want.Annotations)
		}
		AddReportEntry(fmt.Sprintf("%d of %d requests admitted", admitted, requests))
		Expect(admitted).To(BeNumerically(">", requests/4))
	}, SpecTimeout(5*time.Minute))
})

// unbind deletes a binding until the spec ends, and waits until the API server notices.
func unbind(ctx context.Context, name string) {
	GinkgoHelper()
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, binding)).To(Succeed())
	Expect(cluster.Admin.Delete(ctx, binding)).To(Succeed())
	forged := &corev1.Namespace{}
	Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: "kube-public"}, forged)).To(Succeed())
	forged.Labels[v1alpha1.LabelInitializing] = "true"
	isAdmitted := func() error { return cluster.Ordinary.Update(ctx, forged.DeepCopy(), client.DryRunAll) }
	Eventually(isAdmitted).WithContext(ctx).Should(Succeed())
	DeferCleanup(func(ctx context.Context) {
		binding.ResourceVersion, binding.UID = "", ""
		Expect(cluster.Admin.Create(ctx, binding)).To(Succeed())
		Eventually(isAdmitted).WithContext(ctx).ShouldNot(Succeed())
	})
}

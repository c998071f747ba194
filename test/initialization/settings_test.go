// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/selectors"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	initializerA, initializerB, initializerC = "a.test.example.com", "b.test.example.com", "c.test.example.com"

	finalizerA, finalizerB corev1.FinalizerName = "search.example.com/index", "dns.example.com/zone"
)

type settings = v1alpha1.InitializerSettings

// ofTeam returns a selector for the namespaces with the given value of the label "team".
func ofTeam(team string) *v1alpha1.NamespaceSelector {
	return &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": v1alpha1.LabelValue(team)}}
}

// nameLabel is the label that the API server adds to every namespace.
const nameLabel = corev1.LabelMetadataName

var _ = Describe("A selector", func() {
	It("selects the same namespaces in the API server and in the operator, for all kinds of selectors and labels", func(ctx context.Context) {
		wrapper := wrappers.MakeConfiguration("selectors")
		all := selectors.All()
		for i, name := range slices.Sorted(maps.Keys(all)) {
			wrapper.Initializer(fmt.Sprintf("s%d.test.example.com", i), settings{NamespaceSelector: all[name]})
		}
		cluster.RegisterConfiguration(ctx, wrapper)
		set := cluster.EffectiveSet(Default, ctx)
		Expect(registered(Default, ctx)).To(HaveLen(len(all)))
		for of, labels := range selectors.Labels() {
			for _, namespace := range []*corev1.Namespace{
				wrappers.MakeNamespace("shop").Obj(), {ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}},
			} {
				namespace.Labels = maps.Clone(labels)
				Expect(cluster.Ordinary.Create(ctx, namespace, client.DryRunAll)).To(Succeed())
				// The API server replaces the name label in a request: before admission, or afterwards with a generateName.
				Expect(namespace.Labels).To(HaveKeyWithValue(nameLabel, namespace.Name))
				want := initialization.Names(initialization.Selected(set, namespace.Labels))
				Expect(strings.Split(framework.PendingOf(namespace), ",")).To(Equal(want), of)
			}
		}
	})

	It("does not affect a namespace that no initializer selects, even after a change of its labels", func(ctx context.Context) {
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("later").
			Initializer(initializerA, settings{NamespaceSelector: ofTeam("a"), NamespaceFinalizer: string(finalizerA)}))
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("unselected"))
		expectUntouched := func(namespace *corev1.Namespace) {
			GinkgoHelper()
			Expect(namespace.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
			Expect(namespace.Annotations).NotTo(HaveKey(HavePrefix(v1alpha1.Prefix)))
			Expect(namespace.Spec.Finalizers).To(Equal([]corev1.FinalizerName{corev1.FinalizerKubernetes}))
		}
		expectUntouched(namespace)
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(BeInitializing(corev1.ConditionFalse, v1alpha1.ReasonInitialized))

		By("adding the label")
		base := namespace.DeepCopy()
		namespace.Labels["team"] = "a"
		Expect(cluster.Ordinary.Patch(ctx, namespace, client.MergeFrom(base))).To(Succeed())
		expectUntouched(namespace)
		Consistently(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveField("Labels", Not(HaveKey(v1alpha1.LabelInitializing))))
		expectUntouched(cluster.GetNamespace(Default, ctx, namespace.Name))

		By("removing the label from an initializing namespace")
		waiting := wrappers.MakeNamespace(framework.Unique("selected")).Label("team", "a").Obj()
		cluster.Ordinary.Creates(ctx, waiting)
		Expect(framework.PendingOf(waiting)).To(Equal(initializerA))
		base = waiting.DeepCopy()
		delete(waiting.Labels, "team")
		Expect(cluster.Ordinary.Patch(ctx, waiting, client.MergeFrom(base))).To(Succeed())
		Expect(framework.PendingOf(waiting)).To(Equal(initializerA))
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(waiting.Name, "early"))).To(BeDeniedBy("gate"))
	})

	It("is evaluated without the labels that inject removes, and the Active condition reports this", func(ctx context.Context) {
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("own").Initializer(initializerA, settings{
			NamespaceSelector: &v1alpha1.NamespaceSelector{MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{
				{Key: v1alpha1.LabelDeletionProtection, Operator: metav1.LabelSelectorOpDoesNotExist},
			}},
		}))
		namespace := wrappers.MakeNamespace(framework.Unique("own")).Label("nslifecycle.dev/deletion-protection-x", "true").Obj()
		cluster.Ordinary.Creates(ctx, namespace)
		Expect(framework.PendingOf(namespace)).To(Equal(initializerA))
		Expect(activeMessage(ctx, "own")).To(ContainSubstring("namespaceSelector"))
	})

	It("is enforced if all selectors together have more labels than one namespace can have", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) {
			Eventually(func(g Gomega) { g.Expect(registered(g, ctx)).To(BeEmpty()) }).
				WithContext(ctx).Should(Succeed())
			cluster.ExpectInjected(ctx)
		})
		for i := range 3 {
			wrapper := wrappers.MakeConfiguration(fmt.Sprintf("many-%d", i))
			for j := range 64 {
				selector := &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{}}
				for k := range 16 {
					selector.MatchLabels[fmt.Sprintf("l%d-%d-%d", i, j, k)] = "a"
				}
				wrapper.Initializer(fmt.Sprintf("n%d.g%d.example.com", j, i), settings{NamespaceSelector: selector})
			}
			configuration := wrapper.Obj()
			cluster.Admin.Creates(ctx, configuration)
			DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, configuration)).To(Succeed()) })
			cluster.ExpectActive(ctx, configuration.Name)
		}
		Expect(activeMessage(ctx, "many-2")).To(ContainSubstring("namespaceSelector"))
	})

	It("is enforced if other policies add the label that it selects, regardless of policy order", func(ctx context.Context) {
		framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "there are no mutating policies of other projects")
		DeferCleanup(func(ctx context.Context) {
			Eventually(func(g Gomega) {
				namespace := wrappers.MakeNamespace("shop").Obj()
				g.Expect(cluster.Ordinary.Create(ctx, namespace, client.DryRunAll)).To(Succeed())
				g.Expect(namespace.Labels).NotTo(HaveKey("team"))
			}).WithContext(ctx).Should(Succeed())
		})
		for i := range 4 {
			key := fmt.Sprintf("label-%d", i)
			framework.MutateByPolicy(ctx, cluster.Admin, "test-"+key, framework.RequestsFor("", "namespaces", admissionv1.Create),
				fmt.Sprintf(`Object{metadata: Object.metadata{labels: {"team": "x", %q: "x"}}}`, key),
				admissionv1.MutatingAdmissionPolicyBindingSpec{})
			Eventually(func(g Gomega) {
				namespace := wrappers.MakeNamespace("shop").Obj()
				g.Expect(cluster.Ordinary.Create(ctx, namespace, client.DryRunAll)).To(Succeed())
				g.Expect(namespace.Labels).To(HaveKey(key))
			}).WithContext(ctx).Should(Succeed())
		}
		unlabelled := &v1alpha1.NamespaceSelector{MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{
			{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist},
		}}
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("labelled").Initializer(initializerA, settings{NamespaceSelector: unlabelled}))
	})

	It("affects only later namespaces if it is changed", func(ctx context.Context) {
		configuration := cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("changing").
			Initializer(initializerA, settings{NamespaceSelector: ofTeam("a")}))
		create := func(team string) string {
			GinkgoHelper()
			namespace := wrappers.MakeNamespace(framework.Unique("changing")).Label("team", team).Obj()
			cluster.Ordinary.Creates(ctx, namespace)
			return framework.PendingOf(namespace)
		}
		Expect(create("a")).To(Equal(initializerA))
		Expect(create("b")).To(BeEmpty())
		for _, change := range []struct {
			settings settings
			a, b     string
		}{
			{settings: settings{NamespaceSelector: ofTeam("b")}, b: initializerA},
			{settings: settings{}, a: initializerA, b: initializerA},
			{settings: settings{NamespaceSelector: ofTeam("a")}, a: initializerA},
		} {
			Eventually(func() error {
				if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
					return err
				}
				configuration.Initializers[0].InitializerSettings = change.settings
				return cluster.Admin.Update(ctx, configuration)
			}).WithContext(ctx).Should(Succeed())
			cluster.ExpectActive(ctx, configuration.Name)
			Expect(create("a")).To(Equal(change.a))
			Expect(create("b")).To(Equal(change.b))
		}
	})
})

var _ = Describe("A finalizer of an initializer", func() {
	It("is added once to spec.finalizers at creation, in addition to the creator's finalizers", func(ctx context.Context) {
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("finalizers").
			Initializer(initializerA, settings{NamespaceFinalizer: string(finalizerA)}).
			Initializer(initializerB, settings{NamespaceFinalizer: string(finalizerA)}).
			Initializer(initializerC, settings{NamespaceFinalizer: string(finalizerB), NamespaceSelector: ofTeam("a")}))
		type names = []corev1.FinalizerName
		const kubernetes, theirs = corev1.FinalizerKubernetes, corev1.FinalizerName("openshift.com/origin")
		for of, test := range map[string]struct {
			sent, want, wantInTeam names
		}{
			"no list": {want: names{finalizerA, kubernetes}, wantInTeam: names{finalizerA, finalizerB, kubernetes}},
			"an empty list": {
				sent: names{}, want: names{finalizerA, kubernetes}, wantInTeam: names{finalizerA, finalizerB, kubernetes},
			},
			"kubernetes": {
				sent: names{kubernetes}, want: names{kubernetes, finalizerA}, wantInTeam: names{kubernetes, finalizerA, finalizerB},
			},
			"the finalizer": {
				sent: names{finalizerA}, want: names{finalizerA, kubernetes}, wantInTeam: names{finalizerA, finalizerB, kubernetes},
			},
			"the team's finalizer": {
				sent: names{finalizerB, kubernetes},
				want: names{finalizerB, kubernetes, finalizerA}, wantInTeam: names{finalizerB, kubernetes, finalizerA},
			},
			"an unrelated finalizer, twice": {
				sent: names{theirs, theirs},
				want: names{theirs, theirs, finalizerA, kubernetes}, wantInTeam: names{theirs, theirs, finalizerA, finalizerB, kubernetes},
			},
			"all finalizers in another order": {
				sent: names{finalizerB, finalizerA, theirs, kubernetes},
				want: names{finalizerB, finalizerA, theirs, kubernetes}, wantInTeam: names{finalizerB, finalizerA, theirs, kubernetes},
			},
		} {
			for user, c := range map[string]client.Client{"ordinary": cluster.Ordinary, "initializer": cluster.Initializer, "admin": cluster.Admin} {
				namespace := wrappers.MakeNamespace("shop").Obj()
				namespace.Spec.Finalizers = slices.Clone(test.sent)
				Expect(c.Create(ctx, namespace, client.DryRunAll)).To(Succeed())
				Expect(namespace.Spec.Finalizers).To(Equal(test.want), of+" as "+user)

				namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
					GenerateName: "shop-", Labels: map[string]string{"team": "a"},
				}}
				namespace.Spec.Finalizers = slices.Clone(test.sent)
				Expect(c.Create(ctx, namespace, client.DryRunAll)).To(Succeed())
				Expect(namespace.Spec.Finalizers).To(Equal(test.wantInTeam), of+" with the label, as "+user)
			}
		}
		By("sending no spec")
		name := framework.Unique("applied")
		_, err := cluster.KubectlWithInput(ctx, cluster.Ordinary.Config,
			`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+name+`"}}`, "apply", "--server-side", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		Expect(cluster.GetNamespace(Default, ctx, name).Spec.Finalizers).To(Equal(names{finalizerA, kubernetes}))
		By("creating an exempt namespace")
		exempt := wrappers.MakeNamespace(metav1.NamespacePublic).Obj()
		if err := cluster.Admin.Create(ctx, exempt, client.DryRunAll); err == nil {
			Expect(exempt.Spec.Finalizers).To(Equal(names{kubernetes}))
		}
	})

	It("blocks the deletion of the namespace until the owner of the finalizer removes it", func(ctx context.Context) {
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("held").Initializer(initializerA, settings{NamespaceFinalizer: string(finalizerA)}))
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("held"))
		cluster.Ordinary.Deletes(ctx, namespace)
		By("waiting for the removal of all other finalizers")
		Eventually(cluster.GetNamespace).WithContext(ctx).WithArguments(namespace.Name).Should(And(
			HaveField("DeletionTimestamp", Not(BeNil())),
			HaveField("Spec.Finalizers", Equal([]corev1.FinalizerName{finalizerA}))))
		framework.SetNamespaceFinalizers(ctx, cluster.Initializer, namespace.Name)
		Eventually(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), &corev1.Namespace{})
		}).
			WithContext(ctx).Should(Satisfy(apierrors.IsNotFound))
	})
})

var _ = Describe("Settings in several configurations", func() {
	It("are taken from the first configuration, and the other configurations report this", func(ctx context.Context) {
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("several-1").Initializer(initializerA, settings{NamespaceFinalizer: string(finalizerA)}))
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("several-2").Initializer(initializerA, settings{NamespaceFinalizer: string(finalizerB)}))
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("several"))
		Expect(namespace.Spec.Finalizers).To(Equal([]corev1.FinalizerName{finalizerA, corev1.FinalizerKubernetes}))
		Expect(registered(Default, ctx)).To(ConsistOf(And(
			HaveField("Configuration", "several-1"), HaveField("NamespaceFinalizer", string(finalizerA)))))
		Expect(activeMessage(ctx, "several-1")).NotTo(ContainSubstring(initializerA))
		Expect(activeMessage(ctx, "several-2")).To(And(ContainSubstring(initializerA), ContainSubstring(`"several-1"`)))
	})
})

// activeMessage returns the message of a configuration's Active condition, which must be True.
func activeMessage(ctx context.Context, name string) string {
	GinkgoHelper()
	var configuration v1alpha1.NamespaceInitializerConfiguration
	Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, &configuration)).To(Succeed())
	condition := meta.FindStatusCondition(configuration.Status.Conditions, v1alpha1.ConditionActive)
	Expect(condition.Status).To(Equal(metav1.ConditionTrue))
	return condition.Message
}

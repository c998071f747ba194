// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package mutation

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// refusedBy matches the error of a request that the API server rejects because no manager answers a webhook.
func refusedBy(webhook string) OmegaMatcher {
	return MatchError(ContainSubstring(`failed calling webhook "` + webhook + `.nslifecycle.dev"`))
}

var _ = Describe("On an API server without MutatingAdmissionPolicy, the operator", Ordered, func() {
	BeforeAll(func(ctx context.Context) {
		startCluster(ctx, controlplane.WithMutatingPolicies(false))
		Expect(framework.ServesPolicies(ctx, cluster.Admin.Config)).To(BeFalse())
	}, NodeTimeout(8*time.Minute))

	It("makes the webhooks select requests, and inject fail when it answers", func(ctx context.Context) {
		for _, webhook := range configuration(Default, ctx).Webhooks {
			Expect(webhook.Rules).To(BeEmpty())
		}
		watching, err := cluster.Admin.Clientset().AdmissionregistrationV1().MutatingWebhookConfigurations().Watch(ctx,
			metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", v1alpha1.InjectConfiguration).String()})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(watching.Stop)
		startManager(ctx)
		cluster.Register(ctx, "webhooks", first)
		var policies []admissionv1.FailurePolicyType
		for len(policies) == 0 || policies[len(policies)-1] != admissionv1.Fail {
			var event watch.Event
			Eventually(watching.ResultChan()).WithContext(ctx).Should(Receive(&event))
			inject := event.Object.(*admissionv1.MutatingWebhookConfiguration).Webhooks[0]
			Expect(inject.Name).To(Equal("inject.nslifecycle.dev"))
			if len(inject.Rules) > 0 {
				policies = append(policies, ptr.Deref(inject.FailurePolicy, ""))
			}
		}
		Expect(policies[0]).To(Equal(admissionv1.Ignore))
		for name, failurePolicy := range map[string]admissionv1.FailurePolicyType{
			"complete": admissionv1.Fail, "restore": admissionv1.Ignore,
		} {
			webhook := webhook(Default, ctx, name)
			Expect(webhook.Rules).NotTo(BeEmpty())
			Expect(webhook.FailurePolicy).To(HaveValue(Equal(failurePolicy)), name)
		}
		namespace := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("webhooks"))
		Expect(framework.PendingOf(namespace)).To(Equal(first))
		Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser))
	}, SpecTimeout(5*time.Minute))

	It("preserves a match condition that an administrator adds", func(ctx context.Context) {
		cluster.Register(ctx, "exempting", first)
		const name = "is-not-exempt"
		changeWebhook(ctx, func(inject *admissionv1.MutatingWebhook) {
			inject.MatchConditions = append(inject.MatchConditions, admissionv1.MatchCondition{
				Name: name, Expression: "!object.metadata.?name.orValue('').startsWith('exempt-')",
			})
		})
		DeferCleanup(func(ctx context.Context) {
			changeWebhook(ctx, func(inject *admissionv1.MutatingWebhook) {
				inject.MatchConditions = inject.MatchConditions[:len(inject.MatchConditions)-1]
			})
		})
		By("changing the webhook for another initializer")
		cluster.Register(ctx, "others", second)
		Expect(webhook(Default, ctx, "inject").MatchConditions).To(ContainElement(HaveField("Name", name)))
		Eventually(func(g Gomega) {
			exempt := wrappers.MakeNamespace(framework.Unique("exempt")).Obj()
			g.Expect(cluster.Ordinary.Create(ctx, exempt, client.DryRunAll)).To(Succeed())
			g.Expect(exempt.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
		cluster.ExpectInjected(ctx)
	}, SpecTimeout(5*time.Minute))

	It("completes and restores in the same request; without it, nothing is lost", func(ctx context.Context) {
		cluster.Register(ctx, "update", first, second)
		name := framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("update")).Name
		replaced := replaceWithout(ctx, cluster.Ordinary, name)
		Expect(replaced()).To(Succeed())
		state := cluster.GetNamespace(Default, ctx, name)
		Expect(framework.PendingOf(state)).To(Equal(first + "," + second))
		Expect(state.Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
		Expect(state.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, framework.OrdinaryUser))
		cluster.Finish(ctx, name)

		By("sending the same requests while no manager runs")
		cluster.StopManager()
		DeferCleanup(func(ctx context.Context) {
			if cluster.Manager == nil {
				startManager(ctx)
			}
		})
		before := cluster.GetNamespace(Default, ctx, name)
		// The API server can read the namespace from a cache that is some milliseconds old.
		Eventually(replaced).WithContext(ctx).Should(matchers.BeDeniedBy("guard"))
		Expect(complete(ctx, name)).To(refusedBy("complete"))
		Expect(replaceWithout(ctx, cluster.Initializer, name)()).To(refusedBy("complete"))
		Expect(cluster.Ordinary.Create(ctx, wrappers.MakeConfigMap(name, "early"))).To(matchers.BeForbiddenBy("gate"))
		after := cluster.GetNamespace(Default, ctx, name)
		Expect(after.Labels).To(Equal(before.Labels))
		Expect(after.Annotations).To(Equal(before.Annotations))

		By("repeating them when a manager runs again")
		startManager(ctx)
		Eventually(replaced).WithContext(ctx).Should(Succeed())
		Eventually(complete).WithContext(ctx).WithArguments(name).Should(Succeed())
		completed := cluster.GetNamespace(Default, ctx, name)
		Expect(completed.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		Expect(completed.Annotations).NotTo(HaveKey(v1alpha1.AnnotationPendingInitializers))
		Expect(completed.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationInitializers, first+","+second))
	}, SpecTimeout(5*time.Minute))

	It("is needed to create namespaces, except exempt ones", func(ctx context.Context) {
		cluster.Register(ctx, "stopped", first)
		Eventually(func(g Gomega) {
			g.Expect(webhook(g, ctx, "inject").FailurePolicy).To(HaveValue(Equal(admissionv1.Fail)))
		}).WithContext(ctx).Should(Succeed())
		cluster.StopManager()
		DeferCleanup(func(ctx context.Context) { startManager(ctx) })
		Eventually(func() error {
			return cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(framework.Unique("stopped")).Obj())
		}).WithContext(ctx).Should(refusedBy("inject"))
		Expect(cluster.Ordinary.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "stopped-"}})).To(refusedBy("inject"))
		for _, name := range []string{
			metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease,
			controlplane.SystemNamespace,
		} {
			forged := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				GenerateName: "forged-", Labels: map[string]string{corev1.LabelMetadataName: name},
			}}
			Expect(cluster.Ordinary.Create(ctx, forged)).To(refusedBy("inject"), name)
			err := cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(name).Obj())
			Expect(client.IgnoreAlreadyExists(err)).NotTo(HaveOccurred(), name)
			err = cluster.Ordinary.Create(ctx, wrappers.MakeNamespace(name).Label(v1alpha1.LabelInitializing, "true").Obj())
			Expect(err).To(refusedBy("inject"), "the keys are removed")
		}
		var namespaces corev1.NamespaceList
		Expect(cluster.Admin.List(ctx, &namespaces)).To(Succeed())
		for _, namespace := range namespaces.Items {
			Expect(namespace.Name).NotTo(Or(HavePrefix("stopped-"), HavePrefix("forged-")))
		}
	}, SpecTimeout(5*time.Minute))

	// The API server cannot reach the Service of the webhooks, which the manifest contains.
	It("keeps the settings of webhooks with a Service if the manifest is applied again", func(ctx context.Context) {
		cluster.StopManager()
		Expect(cluster.Admin.Delete(ctx, configuration(Default, ctx))).To(Succeed())
		cluster.Install(ctx, "default")
		startManager(ctx, func(options *manager.Options) { options.Hold.URL = "" })
		expectWebhooks(ctx, true)
		configured := wrappers.MakeConfiguration("unreachable").Initializers(first).Obj()
		Expect(cluster.Admin.Create(ctx, configured)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, configured)).To(Succeed()) })
		expectReason(ctx, configured, v1alpha1.ReasonEnforcementPending)
		changeWebhook(ctx, func(inject *admissionv1.MutatingWebhook) {
			Expect(inject.FailurePolicy).To(HaveValue(Equal(admissionv1.Ignore)))
			inject.FailurePolicy = ptr.To(admissionv1.Fail)
		})
		before := configuration(Default, ctx)
		cluster.Install(ctx, "default")
		after := configuration(Default, ctx)
		Expect(after.Webhooks).To(Equal(before.Webhooks))
		Expect(after.Generation).To(Equal(before.Generation))
	}, SpecTimeout(5*time.Minute))
})

// changeWebhook changes the webhook inject as an administrator.
func changeWebhook(ctx context.Context, change func(*admissionv1.MutatingWebhook)) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current := configuration(g, ctx)
		change(&current.Webhooks[0])
		g.Expect(cluster.Admin.Update(ctx, current)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// replaceWithout returns a function that replaces a namespace with one without labels and annotations.
func replaceWithout(ctx context.Context, user client.Client, name string) func() error {
	return func() error {
		current := cluster.GetNamespace(Default, ctx, name)
		current.Labels, current.Annotations = nil, nil
		err := user.Update(ctx, current)
		if apierrors.IsConflict(err) {
			return replaceWithout(ctx, user, name)()
		}
		return err
	}
}

// complete empties the pending list as an initializer.
func complete(ctx context.Context, name string) error {
	return cluster.Initializer.Patch(ctx, wrappers.MakeNamespace(name).Obj(), client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationPendingInitializers+`":""}}}`)))
}

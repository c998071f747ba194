// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("A waiting subject", func() {
	const initializer = "absent.test.example.com"
	// gitops is a ServiceAccount with the ClusterRole that a GitOps controller usually has.
	var gitops *framework.User
	BeforeEach(func(ctx context.Context) {
		gitops = addGitOps(ctx)
		configuration := wrappers.MakeConfiguration("waiting").Initializers(initializer)
		configuration.WaitingSubjects = []v1alpha1.Subject{
			{Kind: v1alpha1.SubjectServiceAccount, Namespace: gitopsNamespace, Name: gitopsAccount},
			{Kind: v1alpha1.SubjectGroup, Name: `"; ${}` + "\u00e9"},
		}
		cluster.RegisterConfiguration(ctx, configuration)
		Eventually(func(g Gomega) { g.Expect(waitingRules(ctx)).NotTo(BeEmpty()) }).WithContext(ctx).Should(Succeed())
	})
	// createWaiting creates a namespace as the subject, and waits until the policies know the subject.
	createWaiting := func(ctx context.Context) *corev1.Namespace {
		GinkgoHelper()
		namespace := framework.CreateNamespace(ctx, gitops, framework.Unique("gitops"))
		completion := mergePatch(map[string]string{v1alpha1.AnnotationPendingInitializers: ""})
		Eventually(func() error {
			return gitops.Patch(ctx, namespace.DeepCopy(), completion, client.DryRunAll)
		}).WithContext(ctx).Should(Satisfy(apierrors.IsForbidden))
		return namespace
	}

	It("waits although it holds the verb", func(ctx context.Context) {
		namespace := createWaiting(ctx).Name
		held := startCreate(ctx, gitops, namespace, "held")
		By("rejecting the writes that are not held")
		err := gitops.Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "web", Namespace: namespace},
			InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Namespace: namespace, Name: "web"},
		})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("waitingSubjects")))
		By("admitting the writes of an initializer")
		Expect(createOnce(ctx, cluster.Initializer, namespace, "quota").Err).NotTo(HaveOccurred())

		cluster.Finish(ctx, namespace)
		Expect(expectEnded(ctx, held)).To(Satisfy(apierrors.IsTooManyRequests))
		gitops.Creates(ctx, wrappers.MakeConfigMap(namespace, "web"))
	})

	It("cannot change the initialization", func(ctx context.Context) {
		namespace := createWaiting(ctx)
		for key, value := range map[string]string{
			v1alpha1.AnnotationPendingInitializers:  "",
			v1alpha1.AnnotationInitializationResult: `{"status":"Failure"}`,
		} {
			err := gitops.Patch(ctx, namespace.DeepCopy(), mergePatch(map[string]string{key: value}))
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%s: %v", key, err)
			Expect(err).To(MatchError(ContainSubstring("waitingSubjects")))
		}
	})

	It("fills a namespace with kubectl apply", func(ctx context.Context) {
		name := framework.Unique("gitops")
		manifest := renderKustomization(name)
		applied := make(chan error, 1)
		go func() {
			_, err := cluster.KubectlWithInput(ctx, gitops.Config, manifest, "apply", "--server-side", "-f", "-")
			applied <- err
		}()
		Eventually(func() error {
			return cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
		}).WithContext(ctx).Should(Succeed())
		Consistently(applied).WithContext(ctx).WithTimeout(500 * time.Millisecond).ShouldNot(Receive())
		cluster.Finish(ctx, name)
		Eventually(applied).WithContext(ctx).Should(Receive(BeNil()))
	})

	It("is an initializer again when no configuration contains it", func(ctx context.Context) {
		namespace := createWaiting(ctx).Name
		configuration := wrappers.MakeConfiguration("waiting").Obj()
		cluster.Admin.Patches(ctx, configuration, `{"waitingSubjects":null}`)
		Eventually(func(g Gomega) { g.Expect(waitingRules(ctx)).To(BeEmpty()) }).WithContext(ctx).Should(Succeed())
		Eventually(func() error { return createOnce(ctx, gitops, namespace, "web").Err }).WithContext(ctx).Should(Succeed())
	})
})

var _ = Describe("An initializer with subjects", func() {
	var namespace *corev1.Namespace
	register := func(ctx context.Context, settings v1alpha1.InitializerSettings) {
		settings.Subjects = []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: framework.InitializerUser}}
		cluster.RegisterConfiguration(ctx, wrappers.MakeConfiguration("subjects").Initializers(first).Initializer(second, settings))
		namespace = framework.CreateNamespace(ctx, cluster.Ordinary, framework.Unique("subjects"))
	}
	setPending := func(ctx context.Context, user *framework.User, pending string, options ...client.PatchOption) error {
		patch := mergePatch(map[string]string{v1alpha1.AnnotationPendingInitializers: pending})
		return user.Patch(ctx, namespace.DeepCopy(), patch, options...)
	}

	fail := func(ctx context.Context, user *framework.User) error {
		patch := mergePatch(map[string]string{v1alpha1.AnnotationInitializationResult: `{"status":"Failure"}`})
		return user.Status().Patch(ctx, namespace.DeepCopy(), patch, client.DryRunAll)
	}

	It("is removed only by them, and only when it is first, and then only they set a failure", func(ctx context.Context) {
		register(ctx, v1alpha1.InitializerSettings{})
		other := addAccount(ctx, gitopsNamespace, "other-initializer", rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces", "namespaces/status"}, Verbs: []string{"patch", "initialize"},
		})
		Eventually(func() error { return setPending(ctx, other, first, client.DryRunAll) }).WithContext(ctx).
			Should(MatchError(ContainSubstring("not one of its subjects")), "the policy knows the subjects")
		err := setPending(ctx, other, first)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(And(ContainSubstring("not one of its subjects"), ContainSubstring(second))))
		Expect(setPending(ctx, other, "")).To(MatchError(ContainSubstring("not one of its subjects")))

		err = setPending(ctx, cluster.Initializer, first)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(`while "` + first + `" is first`)))

		Expect(fail(ctx, other)).To(Succeed(), "the first initializer has no subjects")
		Expect(setPending(ctx, other, second)).To(Succeed())
		Expect(fail(ctx, other)).To(MatchError(And(ContainSubstring("initialization-result"), ContainSubstring("not one of its subjects"))))
		Expect(fail(ctx, cluster.Initializer)).To(Succeed())
		Expect(setPending(ctx, cluster.Initializer, "")).To(Succeed())
		Expect(cluster.GetNamespace(Default, ctx, namespace.Name).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
	})

	It("is removed by the operator after a timeout", func(ctx context.Context) {
		register(ctx, v1alpha1.InitializerSettings{
			TimeoutSeconds: ptr.To[int32](1), FailurePolicy: v1alpha1.FailurePolicyIgnore,
		})
		Expect(setPending(ctx, cluster.Initializer, second)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(cluster.GetNamespace(g, ctx, namespace.Name).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
		}).WithContext(ctx).Should(Succeed())
	})
})

const (
	gitopsNamespace = "gitops"
	gitopsAccount   = "application-controller"
)

// addGitOps returns a ServiceAccount whose ClusterRole contains every verb on every resource.
func addGitOps(ctx context.Context) *framework.User {
	GinkgoHelper()
	return addAccount(ctx, gitopsNamespace, gitopsAccount,
		rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
}

// addAccount returns a ServiceAccount with a permission in all namespaces.
func addAccount(ctx context.Context, namespace, name string, rule rbacv1.PolicyRule) *framework.User {
	GinkgoHelper()
	for _, object := range []client.Object{
		wrappers.MakeNamespace(namespace).Obj(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}},
	} {
		Expect(client.IgnoreAlreadyExists(cluster.Admin.Create(ctx, object))).To(Succeed())
	}
	cluster.Bind(ctx, name, []rbacv1.PolicyRule{rule},
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})
	config, err := cluster.ServiceAccountConfig(ctx, namespace, name)
	Expect(err).NotTo(HaveOccurred())
	framework.ExpectAllowed(ctx, config, rule)
	return framework.NewUser(config)
}

// waitingRules returns the rules of the webhooks for waiting subjects.
func waitingRules(ctx context.Context) []admissionregistrationv1.RuleWithOperations {
	GinkgoHelper()
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	Expect(cluster.Admin.Get(ctx, client.ObjectKey{Name: internalv1alpha1.HoldConfiguration}, configuration)).To(Succeed())
	var rules []admissionregistrationv1.RuleWithOperations
	for _, webhook := range configuration.Webhooks {
		if strings.HasSuffix(webhook.Name, "-waiting-subjects.nslifecycle.dev") {
			rules = append(rules, webhook.Rules...)
		}
	}
	return rules
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	// maxDelay is the longest delay of a CREATE or CONNECT request. It is longer than the grace period with one API
	// server and no webhooks, and shorter than the 5 s that such a webhook causes.
	maxDelay = 2 * time.Second
	// maxChangeDelay is the longest delay of an UPDATE or DELETE request, which does not affect the grace period.
	maxChangeDelay = 25 * time.Second
	// webhookTimeout exceeds both.
	webhookTimeout = 30 * time.Second
)

var _ = Describe("A request that a webhook delays until its namespace is recreated", func() {
	const (
		create  = admissionregistrationv1.Create
		update  = admissionregistrationv1.Update
		remove  = admissionregistrationv1.Delete
		connect = admissionregistrationv1.Connect
	)
	var name string
	BeforeEach(func(ctx context.Context) {
		name = createTarget(ctx)
	})

	It("does not create a RoleBinding in the initializing namespace of another user", func(ctx context.Context) {
		cluster.Register(ctx, name, "absent.test.example.com")
		webhook := installValidating(ctx, name, create, "rolebindings")
		created := webhook.send(ctx, func() error { return cluster.Ordinary.Create(ctx, bindingFor(name)) })

		Expect(webhook.recreate(ctx, name).Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
		Eventually(ctx, created).Should(Receive())
		expectNoRoleBindings(ctx, name)
	}, SpecTimeout(5*time.Minute))

	It("does not create a RoleBinding in the initialized namespace of another user", func(ctx context.Context) {
		webhook := installMutating(ctx, name, create, "rolebindings")
		created := webhook.send(ctx, func() error { return cluster.Ordinary.Create(ctx, bindingFor(name)) })

		webhook.recreate(ctx, name)
		Eventually(ctx, created).Should(Receive())
		expectNoRoleBindings(ctx, name)
	}, SpecTimeout(5*time.Minute))

	It("does not connect to a Pod in the initializing namespace of another user", func(ctx context.Context) {
		cluster.Register(ctx, name, "absent.test.example.com")
		webhook := installValidating(ctx, name, connect, "pods/exec")
		connected := webhook.send(ctx, func() error { return exec(ctx, name) })

		Expect(webhook.recreate(ctx, name).Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
		var err error
		Eventually(ctx, connected).Should(Receive(&err))
		Expect(err).To(MatchError(ContainSubstring("not found")), "the old namespace has no such Pod")
	}, SpecTimeout(5*time.Minute))

	// The API server repeats admission for these requests, so the gate rejects them after any
	// delay.
	DescribeTable("does not change an object in the initializing namespace of another user",
		func(ctx context.Context, operation admissionregistrationv1.OperationType, request func(context.Context, client.Object) error) {
			targets := []string{name, createTarget(ctx), createTarget(ctx)}
			cluster.Register(ctx, name, "absent.test.example.com")
			for _, target := range targets {
				webhook := installValidating(ctx, target, operation, "configmaps")
				changed := webhook.send(ctx, func() error { return request(ctx, settingsIn(target)) })

				Expect(webhook.recreate(ctx, target).Labels).To(HaveKeyWithValue(v1alpha1.LabelInitializing, "true"))
				var err error
				Eventually(ctx, changed).Should(Receive(&err))
				if !webhook.isLate.Load() {
					Expect(err).To(BeDeniedBy("gate"))
					return
				}
				By("repeating the attempt, because the machine was too busy to recreate the namespace within the delay")
			}
			Fail("the namespace was never recreated within the delay")
		},
		Entry("by an UPDATE", update, func(ctx context.Context, object client.Object) error {
			return cluster.Ordinary.Update(ctx, object)
		}),
		Entry("by a DELETE", remove, func(ctx context.Context, object client.Object) error {
			return cluster.Ordinary.Delete(ctx, object)
		}),
	)
})

// createTarget creates a namespace with the ConfigMap that the requests change, and returns its name.
func createTarget(ctx context.Context) string {
	GinkgoHelper()
	name := framework.Unique("delayed")
	framework.CreateNamespace(ctx, cluster.Ordinary, name)
	cluster.Admin.Creates(ctx, settingsIn(name))
	return name
}

// settingsIn returns the ConfigMap that both the old and the new namespace contain.
func settingsIn(namespace string) *corev1.ConfigMap {
	return wrappers.MakeConfigMap(namespace, "settings")
}

func bindingFor(namespace string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "attack"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: framework.OrdinaryUser}},
	}
}

func expectNoRoleBindings(ctx context.Context, namespace string) {
	GinkgoHelper()
	Consistently(func(g Gomega) {
		var bindings rbacv1.RoleBindingList
		g.Expect(cluster.Admin.List(ctx, &bindings, client.InNamespace(namespace))).To(Succeed())
		g.Expect(bindings.Items).To(BeEmpty())
	}).WithContext(ctx).Should(Succeed())
}

// exec sends the request of `kubectl exec` for the Pod "agent" as the ordinary user.
func exec(ctx context.Context, namespace string) error {
	return cluster.Ordinary.Clientset().CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("agent").
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{Command: []string{"id"}, Stdout: true}, scheme.ParameterCodec).
		Do(ctx).Error()
}

// delayingWebhook delays requests by the ordinary user until the namespace is recreated, but for no longer than
// maxDelay.
type delayingWebhook struct {
	received, recreated chan struct{}
	once                sync.Once
	maxDelay            time.Duration
	isLate              atomic.Bool // A request was delayed for maxDelay.
}

// answer returns the reason to deny a request, or "" to allow it. It denies dry runs, so that a
// spec can check that the API server calls the webhook.
func (w *delayingWebhook) answer(request *admissionv1.AdmissionRequest) string {
	if ptr.Deref(request.DryRun, false) {
		return "the webhook is called"
	}
	if request.UserInfo.Username != framework.OrdinaryUser {
		return "" // The operator sent the request.
	}
	w.once.Do(func() { close(w.received) })
	select {
	case <-w.recreated:
	case <-time.After(w.maxDelay):
		w.isLate.Store(true)
	}
	return ""
}

// send sends a request and returns after the webhook receives it.
func (w *delayingWebhook) send(ctx context.Context, request func() error) <-chan error {
	GinkgoHelper()
	result := make(chan error, 1)
	go func() { result <- request() }()
	Eventually(ctx, w.received).Should(BeClosed())
	return result
}

// recreate deletes a namespace and creates it again as another user as soon as possible.
func (w *delayingWebhook) recreate(ctx context.Context, name string) *corev1.Namespace {
	GinkgoHelper()
	old := cluster.GetNamespace(Default, ctx, name)
	cluster.Ordinary.Deletes(ctx, old)
	bob := cluster.AddUser(ctx, framework.Unique("bob"), framework.VerbsButInitialize)
	recreated := &corev1.Namespace{}
	Eventually(func() error {
		recreated = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return bob.Create(ctx, recreated)
	}).WithContext(ctx).Should(Succeed())
	Expect(recreated.UID).NotTo(Equal(old.UID))
	// The initializer creates these objects. The delayed request must not affect them.
	for _, object := range []client.Object{wrappers.MakePod(name, "agent"), settingsIn(name)} {
		// The API server can take the namespace for the terminating one for a moment.
		Eventually(cluster.Initializer.Create).WithContext(ctx).WithArguments(object).Should(Succeed())
	}
	close(w.recreated)
	return recreated
}

// installValidating installs a validating webhook for one namespace until the spec ends. It runs
// after the gate, which is a ValidatingAdmissionPolicy.
func installValidating(
	ctx context.Context, namespace string, operation admissionregistrationv1.OperationType, resource string,
) *delayingWebhook {
	GinkgoHelper()
	delay := maxDelay
	if operation == admissionregistrationv1.Update || operation == admissionregistrationv1.Delete {
		delay = maxChangeDelay
	}
	return install(ctx, namespace, delay, func(clientConfig admissionregistrationv1.WebhookClientConfig) client.Object {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "delay.test.example.com", ClientConfig: clientConfig, Rules: rulesFor(operation, resource),
				NamespaceSelector: selectorFor(namespace), AdmissionReviewVersions: []string{"v1"},
				SideEffects:    ptr.To(admissionregistrationv1.SideEffectClassNone),
				TimeoutSeconds: ptr.To(int32(webhookTimeout.Seconds())),
			}},
		}
	})
}

// installMutating installs a mutating webhook for one namespace until the spec ends. It runs after
// NamespaceLifecycle, the admission plugin that rejects new objects in a terminating namespace.
func installMutating(
	ctx context.Context, namespace string, operation admissionregistrationv1.OperationType, resource string,
) *delayingWebhook {
	GinkgoHelper()
	return install(ctx, namespace, maxDelay, func(clientConfig admissionregistrationv1.WebhookClientConfig) client.Object {
		return &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "delay.test.example.com", ClientConfig: clientConfig, Rules: rulesFor(operation, resource),
				NamespaceSelector: selectorFor(namespace), AdmissionReviewVersions: []string{"v1"},
				SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			}},
		}
	})
}

func install(
	ctx context.Context, namespace string, maxDelay time.Duration,
	configurationFor func(admissionregistrationv1.WebhookClientConfig) client.Object,
) *delayingWebhook {
	GinkgoHelper()
	webhook := &delayingWebhook{received: make(chan struct{}), recreated: make(chan struct{}), maxDelay: maxDelay}
	_, clientConfig := framework.ServeWebhook(http.StatusForbidden, webhook.answer)
	configuration := configurationFor(clientConfig)
	cluster.Admin.Creates(ctx, configuration)
	DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, configuration)).To(Succeed()) })
	Eventually(func() error {
		return cluster.Admin.Update(ctx, settingsIn(namespace), client.DryRunAll)
	}).WithContext(ctx).Should(MatchError(ContainSubstring("the webhook is called")))
	return webhook
}

func rulesFor(
	operation admissionregistrationv1.OperationType, resource string,
) []admissionregistrationv1.RuleWithOperations {
	rule := func(operation admissionregistrationv1.OperationType, resource string) admissionregistrationv1.RuleWithOperations {
		return admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{operation},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{resource},
			},
		}
	}
	return []admissionregistrationv1.RuleWithOperations{
		rule(operation, resource), rule(admissionregistrationv1.Update, "configmaps"), // The dry run in install sends this request.
	}
}

func selectorFor(namespace string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
}

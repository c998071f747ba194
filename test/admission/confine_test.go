// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/parts"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const system = controlplane.SystemNamespace

// accounts are the ServiceAccounts of the operator in all variants of the installation.
var accounts = parts.Accounts()

var (
	admin *framework.User
	// operators are the users of the accounts, and operator is the first of them.
	operators map[string]*framework.User
	operator  *framework.User
	api       kubernetes.Interface
)

func addOperators(ctx context.Context) {
	admin, operators = cluster.Admin, map[string]*framework.User{}
	for _, name := range accounts {
		operators[name] = addAccount(ctx, system, name)
	}
	operator = operators[controlplane.ServiceAccount]
	api = operator.Clientset()
}

// addAccount returns a ServiceAccount with all permissions.
func addAccount(ctx context.Context, namespace, name string) *framework.User {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := admin.Create(ctx, account); !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	cluster.Bind(ctx, framework.Unique("everything"), []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}},
	}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})
	config, err := cluster.ServiceAccountConfig(ctx, namespace, name)
	Expect(err).NotTo(HaveOccurred())
	user := framework.NewUser(config)
	user.Client = client.WithFieldOwner(user.Client, nsobject.FieldOwner)
	Eventually(func() error { return user.List(ctx, &corev1.SecretList{}) }).WithContext(ctx).Should(Succeed())
	return user
}

// BeConfined matches the error of a request that only the policy confine denies.
func BeConfined(substrings ...string) OmegaMatcher {
	return matchers.BeForbiddenBy(internalv1alpha1.PolicyConfine, append([]string{"is not allowed to"}, substrings...)...)
}

// request is a request of the operator.
type request func(ctx context.Context) error

// makeNamespace creates a namespace, which is deleted after the spec without its content.
func makeNamespace(ctx context.Context, changes ...func(*wrappers.NamespaceWrapper)) *corev1.Namespace {
	GinkgoHelper()
	wrapper := wrappers.MakeNamespace(framework.Unique("shop")).Label(plain, "")
	for _, change := range changes {
		change(wrapper)
	}
	namespace := wrapper.Obj()
	admin.Creates(ctx, namespace)
	return namespace
}

// makeTerminating creates a terminating namespace with an object.
func makeTerminating(ctx context.Context, finalizers ...corev1.FinalizerName) *corev1.Namespace {
	GinkgoHelper()
	namespace := wrappers.MakeNamespace(framework.Unique("terminating")).Label(plain, "").Obj()
	namespace.Spec.Finalizers = finalizers
	admin.Creates(ctx, namespace)
	admin.Creates(ctx, wrappers.MakeConfigMap(namespace.Name, "content"))
	admin.Deletes(ctx, namespace)
	admin.Reads(ctx, namespace)
	return namespace
}

// patch patches a Namespace as the operator.
func patch(name string, kind types.PatchType, change map[string]any, subresources ...string) request {
	return func(ctx context.Context) error {
		body, err := json.Marshal(change)
		Expect(err).NotTo(HaveOccurred())
		options := metav1.PatchOptions{FieldManager: nsobject.FieldOwner}
		if kind == types.ApplyPatchType {
			options.Force = new(true)
		}
		_, err = api.CoreV1().Namespaces().Patch(ctx, name, kind, body, options, subresources...)
		return err
	}
}

// merge returns a merge patch of a Namespace.
func merge(name string, change map[string]any, subresources ...string) request {
	return patch(name, types.MergePatchType, change, subresources...)
}

func inMetadata(key string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{key: value}}
}

// condition returns a strategic merge patch that sets a condition.
func condition(name, conditionType string) request {
	set := map[string]any{
		"type": conditionType, "status": "True", "reason": "Test", "lastTransitionTime": metav1.Now(), "message": "test",
	}
	return patch(name, types.StrategicMergePatchType,
		map[string]any{"status": map[string]any{"conditions": []any{set}}}, "status")
}

// configuration is a MutatingWebhookConfiguration. For a ValidatingWebhookConfiguration, it has the same fields.
type configuration = admissionv1.MutatingWebhookConfiguration

func confinedWebhooks() {
	const inject, hold, templates = internalv1alpha1.InjectConfiguration, internalv1alpha1.HoldConfiguration, internalv1alpha1.TemplatesConfiguration

	BeforeAll(func(ctx context.Context) {
		Expect(cluster.InstallHold(ctx, "default")).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			admin.Deletes(ctx, &configuration{ObjectMeta: metaOf("", hold)})
			admin.Deletes(ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metaOf("", templates)})
		})
		By("adding a match condition as an administrator")
		current := &configuration{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: inject}, current)).To(Succeed())
		current.Webhooks[0].MatchConditions = []admissionv1.MatchCondition{{Name: "not-recovery", Expression: "true"}}
		admin.Updates(ctx, current)
	})

	update := func(ctx context.Context, name string, change func(*configuration)) error {
		GinkgoHelper()
		if name != templates {
			current := &configuration{}
			Expect(admin.Get(ctx, client.ObjectKey{Name: name}, current)).To(Succeed())
			change(current)
			return operator.Update(ctx, current, client.DryRunAll)
		}
		current := &admissionv1.ValidatingWebhookConfiguration{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: name}, current)).To(Succeed())
		validating := &current.Webhooks[0]
		changed := &configuration{ObjectMeta: current.ObjectMeta, Webhooks: []admissionv1.MutatingWebhook{{
			ClientConfig: validating.ClientConfig, Rules: validating.Rules, FailurePolicy: validating.FailurePolicy,
			MatchConditions: validating.MatchConditions,
		}}}
		change(changed)
		webhook := &changed.Webhooks[0]
		current.ObjectMeta = changed.ObjectMeta
		validating.ClientConfig, validating.Rules = webhook.ClientConfig, webhook.Rules
		validating.FailurePolicy, validating.MatchConditions = webhook.FailurePolicy, webhook.MatchConditions
		return operator.Update(ctx, current, client.DryRunAll)
	}
	// of changes a webhook.
	of := func(index int, change func(*admissionv1.MutatingWebhook)) func(*configuration) {
		return func(c *configuration) { change(&c.Webhooks[index]) }
	}
	rule := func(group, version, resource string, operations ...admissionv1.OperationType) func(*admissionv1.MutatingWebhook) {
		return func(w *admissionv1.MutatingWebhook) {
			w.Rules = []admissionv1.RuleWithOperations{{Operations: operations, Rule: admissionv1.Rule{
				APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}, Scope: new(admissionv1.AllScopes),
			}}}
		}
	}
	failurePolicy := func(policy admissionv1.FailurePolicyType) func(*admissionv1.MutatingWebhook) {
		return func(w *admissionv1.MutatingWebhook) { w.FailurePolicy = &policy }
	}
	url := func(w *admissionv1.MutatingWebhook) {
		w.ClientConfig.Service, w.ClientConfig.URL = nil, new("https://manager.example.com/hold")
	}
	path := func(w *admissionv1.MutatingWebhook) { w.ClientConfig.Service.Path = new("/path") }
	ca := func(w *admissionv1.MutatingWebhook) { w.ClientConfig.CABundle = []byte("x") }
	condition := func(w *admissionv1.MutatingWebhook) {
		w.MatchConditions = append(w.MatchConditions, admissionv1.MatchCondition{Name: "is-initializer", Expression: "true"})
	}
	noCondition := func(w *admissionv1.MutatingWebhook) { w.MatchConditions = nil }
	held := func(resource string, scope admissionv1.ScopeType, operations ...admissionv1.OperationType) func(*admissionv1.MutatingWebhook) {
		return func(w *admissionv1.MutatingWebhook) {
			rule("*", "*", resource, operations...)(w)
			w.Rules[0].Scope = &scope
		}
	}
	const create, updateOperation = admissionv1.Create, admissionv1.Update

	DescribeTable("of the operator gets what the cluster requires", func(ctx context.Context, name string, change func(*configuration)) {
		Expect(update(ctx, name, change)).To(Succeed())
	},
		Entry("CA", inject, of(0, ca)),
		Entry("CA of hold", hold, of(3, ca)),
		Entry("CA of templates", templates, of(0, ca)),
		Entry("path", inject, of(0, path)),
		Entry("condition", inject, of(1, condition)),
		Entry("rule", inject, of(0, rule("", "v1", "namespaces", create))),
		Entry("rule for a subresource", inject, of(2, rule("", "v1", "namespaces/finalize", updateOperation, create))),
		Entry("failurePolicy", inject, of(0, failurePolicy(admissionv1.Ignore))),
		Entry("rules of hold", hold, of(0, held("*", admissionv1.NamespacedScope, create, updateOperation, admissionv1.Delete))),
		Entry("rules of waiting subjects", hold, of(2, held("*", admissionv1.NamespacedScope, create))),
		Entry("conditions of waiting subjects", hold, of(3, condition)),
	)

	DescribeTable("gets nothing else", func(ctx context.Context, name string, change func(*configuration)) {
		Expect(update(ctx, name, change)).To(BeConfined(name))
	},
		Entry("Service", inject, of(0, func(w *admissionv1.MutatingWebhook) { w.ClientConfig.Service.Name = "other" })),
		Entry("namespace of the Service", inject, of(2, func(w *admissionv1.MutatingWebhook) { w.ClientConfig.Service.Namespace = "default" })),
		Entry("port", inject, of(0, func(w *admissionv1.MutatingWebhook) { w.ClientConfig.Service.Port = new(int32(444)) })),
		Entry("URL", inject, of(0, url)),
		Entry("URL of hold", hold, of(0, url)),
		Entry("URL of templates", templates, of(0, url)),
		Entry("path of hold", hold, of(0, path)),
		Entry("Service of templates", templates, of(0, func(w *admissionv1.MutatingWebhook) { w.ClientConfig.Service.Name = "other" })),
		Entry("rule for Pods", inject, of(0, rule("", "v1", "pods", create))),
		Entry("rule for everything", inject, of(0, rule("*", "*", "*/*", create))),
		Entry("rule for another group", inject, of(0, rule("example.com", "v1", "namespaces", create))),
		Entry("rule for all groups", inject, of(0, rule("*", "v1", "namespaces", create))),
		Entry("rule for all versions", inject, of(0, rule("", "*", "namespaces", create))),
		Entry("rule for deletions", inject, of(0, rule("", "v1", "namespaces", create, admissionv1.Delete))),
		Entry("rule for all operations", inject, of(0, rule("", "v1", "namespaces", admissionv1.OperationAll))),
		Entry("rule for all subresources", inject, of(0, rule("", "v1", "namespaces/*", updateOperation))),
		Entry("rule of hold", hold, of(0, rule("", "v1", "nodes", create))),
		Entry("rule of hold for subresources", hold, of(0, held("*/*", admissionv1.NamespacedScope, create))),
		Entry("rule of hold for cluster-scoped objects", hold, of(1, held("*", admissionv1.AllScopes, create))),
		Entry("rule of hold for connections", hold, of(0, held("*", admissionv1.NamespacedScope, admissionv1.Connect))),
		Entry("rule of the probe", hold, of(4, held("*", admissionv1.NamespacedScope, create))),
		Entry("rule of waiting subjects", hold, of(2, rule("*", "*", "*/*", create))),
		Entry("rule of templates", templates, of(0, rule("", "v1", "secrets", create))),
		Entry("failurePolicy of restore", inject, of(2, failurePolicy(admissionv1.Fail))),
		Entry("failurePolicy of hold", hold, of(0, failurePolicy(admissionv1.Fail))),
		Entry("failurePolicy of waiting subjects", hold, of(2, failurePolicy(admissionv1.Fail))),
		Entry("failurePolicy of templates", templates, of(0, failurePolicy(admissionv1.Fail))),
		Entry("the administrator's condition", inject, of(0, noCondition)),
		Entry("an additional condition of hold", hold, of(0, condition)),
		Entry("no condition of hold", hold, of(1, noCondition)),
		Entry("no condition of templates", templates, of(0, noCondition)),
		Entry("namespaceSelector", hold, of(2, func(w *admissionv1.MutatingWebhook) { w.NamespaceSelector = &metav1.LabelSelector{} })),
		Entry("objectSelector", inject, of(0, func(w *admissionv1.MutatingWebhook) {
			w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		})),
		Entry("timeout", inject, of(0, func(w *admissionv1.MutatingWebhook) { w.TimeoutSeconds = new(int32(30)) })),
		Entry("side effects", inject, of(0, func(w *admissionv1.MutatingWebhook) {
			w.SideEffects = new(admissionv1.SideEffectClassNoneOnDryRun)
		})),
		Entry("reinvocation", inject, of(0, func(w *admissionv1.MutatingWebhook) {
			w.ReinvocationPolicy = new(admissionv1.IfNeededReinvocationPolicy)
		})),
		Entry("matchPolicy", inject, of(0, func(w *admissionv1.MutatingWebhook) { w.MatchPolicy = new(admissionv1.Exact) })),
		Entry("review version", inject, of(0, func(w *admissionv1.MutatingWebhook) {
			w.AdmissionReviewVersions = append(w.AdmissionReviewVersions, "v1beta1")
		})),
		Entry("no webhook", hold, func(c *configuration) { c.Webhooks = nil }),
		Entry("fewer webhooks", hold, func(c *configuration) { c.Webhooks = c.Webhooks[:3] }),
		Entry("another order", hold, func(c *configuration) { c.Webhooks[0], c.Webhooks[1] = c.Webhooks[1], c.Webhooks[0] }),
		Entry("another webhook", inject, func(c *configuration) {
			added := *c.Webhooks[0].DeepCopy()
			added.Name = "other.nslifecycle.dev"
			c.Webhooks = append(c.Webhooks, added)
		}),
		Entry("another name", inject, of(0, func(w *admissionv1.MutatingWebhook) { w.Name = "other.nslifecycle.dev" })),
		Entry("label", inject, func(c *configuration) { c.Labels["a"] = "b" }),
		Entry("annotation", templates, func(c *configuration) { c.Annotations = map[string]string{"a": "b"} }),
		Entry("finalizer", hold, func(c *configuration) { c.Finalizers = []string{"example.com/x"} }),
		Entry("owner", hold, func(c *configuration) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "x", UID: "x"}}
		}),
	)

	It("is neither created nor deleted, and no other configuration is updated", func(ctx context.Context) {
		none := admissionv1.SideEffectClassNone
		mutating := &configuration{ObjectMeta: metaOf("", "other"), Webhooks: []admissionv1.MutatingWebhook{{
			Name: "inject.nslifecycle.dev", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none,
			ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://example.com")},
		}}}
		validating := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metaOf("", inject), Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "inject.nslifecycle.dev", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none,
			ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://example.com")},
		}}}
		for _, object := range []client.Object{mutating, validating} {
			Expect(operator.Create(ctx, object.DeepCopyObject().(client.Object))).To(BeConfined())
			admin.Creates(ctx, object)
			DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, object)).To(Succeed()) })
			Expect(operator.Delete(ctx, object.DeepCopyObject().(client.Object))).To(BeConfined())
		}
		ca(&mutating.Webhooks[0])
		Expect(operator.Update(ctx, mutating)).To(BeConfined("other"))
		validating.Webhooks[0].ClientConfig.CABundle = []byte("x")
		Expect(operator.Update(ctx, validating)).To(BeConfined(inject))
	})

	It("gets another URL after an administrator has set one", func(ctx context.Context) {
		Expect(cluster.SetWebhookURL(ctx, "https://localhost:9443")).To(Succeed())
		for _, name := range []string{inject, hold, templates} {
			Expect(update(ctx, name, of(0, url))).To(Succeed())
			Expect(update(ctx, name, of(0, func(w *admissionv1.MutatingWebhook) {
				w.ClientConfig.URL, w.ClientConfig.Service = nil, &admissionv1.ServiceReference{Namespace: "default", Name: "other"}
			}))).To(BeConfined("Service"))
		}
	})
}

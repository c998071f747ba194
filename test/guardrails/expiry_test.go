// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package guardrails

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	yes, no = corev1.ConditionTrue, corev1.ConditionFalse

	farOff = "2099-01-01T00:00:00Z"
)

func withTTL(prefix, ttl string) *wrappers.NamespaceWrapper {
	return wrappers.MakeNamespace(unique(prefix)).Annotation(v1alpha1.AnnotationTTL, ttl)
}

// annotate sets annotations of a namespace as the user in the client configuration. A nil value
// removes an annotation.
func annotate(
	ctx context.Context, config *rest.Config, name string, annotations map[string]any, subresource ...string,
) error {
	GinkgoHelper()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	Expect(err).NotTo(HaveOccurred())
	clientset, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	_, err = clientset.CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}, subresource...)
	return err
}

// put updates a namespace or one of its subresources with a PUT request.
func put(ctx context.Context, config *rest.Config, namespace *corev1.Namespace, subresource ...string) error {
	GinkgoHelper()
	namespace.ResourceVersion = "" // The operator writes conditions.
	clientset, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return clientset.CoreV1().RESTClient().Put().Resource("namespaces").Name(namespace.Name).
		SubResource(subresource...).Body(namespace).Do(ctx).Error()
}

var _ = Describe("The expiry policy", func() {
	It("allows only users who can delete the namespace to set or change its expiry", func(ctx context.Context) {
		for name, given := range map[string]struct {
			have map[string]string
			set  map[string]any
		}{
			"setting a time":        {set: map[string]any{v1alpha1.AnnotationExpiresAt: farOff}},
			"setting a lifetime":    {set: map[string]any{v1alpha1.AnnotationTTL: "1h"}},
			"shortening a lifetime": {have: map[string]string{v1alpha1.AnnotationTTL: "8h"}, set: map[string]any{v1alpha1.AnnotationTTL: "1h"}},
			"extending a lifetime":  {have: map[string]string{v1alpha1.AnnotationTTL: "8h"}, set: map[string]any{v1alpha1.AnnotationTTL: "9h"}},
			"replacing a lifetime with a time": {
				have: map[string]string{v1alpha1.AnnotationTTL: "8h"},
				set:  map[string]any{v1alpha1.AnnotationTTL: nil, v1alpha1.AnnotationExpiresAt: farOff},
			},
		} {
			By(name)
			wrapper := wrappers.MakeNamespace(unique("who"))
			for key, value := range given.have {
				wrapper.Annotation(key, value)
			}
			namespace := create(ctx, owner, wrapper)
			for _, subresource := range [][]string{nil, {"status"}} {
				Expect(annotate(ctx, editorConfig, namespace.Name, given.set, subresource...)).To(BeForbiddenBy("expiry",
					`user "`+editorUser+`"`, `namespace "`+namespace.Name+`" expires`, "permission to delete it"))
			}
			for _, subresource := range [][]string{nil, {"status"}, {"finalize"}} {
				// If the operator has written a condition in the meantime, the policy guard also rejects the request.
				Eventually(func(g Gomega) {
					changed := get(g, ctx, namespace.Name)
					if changed.Annotations == nil {
						changed.Annotations = map[string]string{}
					}
					for key, value := range given.set {
						delete(changed.Annotations, key)
						if text, isText := value.(string); isText {
							changed.Annotations[key] = text
						}
					}
					g.Expect(put(ctx, editorConfig, changed, subresource...)).To(BeForbiddenBy("expiry"))
				}).WithContext(ctx).Should(Succeed())
			}
			Expect(expiryOf(get(Default, ctx, namespace.Name))).To(Equal(expiryOf(namespace)))
			Expect(annotate(ctx, ownerConfig, namespace.Name, given.set)).To(Succeed())
		}
		By("using server-side apply")
		namespace := create(ctx, owner, wrappers.MakeNamespace(unique("who")))
		manifest := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + namespace.Name +
			`","annotations":{"nslifecycle.dev/ttl":"1h"}}}`
		_, err := cluster.KubectlWithInput(ctx, editorConfig, manifest, "apply", "--server-side", "-f", "-")
		Expect(err).To(BeDeniedBy("expiry"))
		_, err = cluster.KubectlWithInput(ctx, ownerConfig, manifest, "apply", "--server-side", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(5*time.Minute))

	It("allows users to set the expiry of a namespace that they create, and allows users who can update a namespace to remove the expiry", func(ctx context.Context) {
		namespace := create(ctx, editor, withTTL("keep", "8h"))
		Expect(namespace.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationTTL, "8h"))
		By("changing another annotation")
		Expect(annotate(ctx, editorConfig, namespace.Name, map[string]any{"example.com/note": "x"})).To(Succeed())
		Expect(annotate(ctx, editorConfig, namespace.Name, map[string]any{v1alpha1.AnnotationTTL: "8h"})).To(Succeed())
		By("removing the expiry")
		Expect(annotate(ctx, editorConfig, namespace.Name, map[string]any{v1alpha1.AnnotationTTL: nil})).To(Succeed())
		By("checking that a request that sets the expiry again is denied")
		Expect(annotate(ctx, editorConfig, namespace.Name, map[string]any{v1alpha1.AnnotationTTL: "8h"})).To(BeForbiddenBy("expiry"))
	}, SpecTimeout(5*time.Minute))

	It("allows setting the expiry if a Role in the namespace grants permission to delete the namespace", func(ctx context.Context) {
		const name = "tenant@corp.example.com"
		config := newUser(ctx, name, "get", "patch")
		mine := create(ctx, owner, wrappers.MakeNamespace(unique("tenant")))
		other := create(ctx, owner, wrappers.MakeNamespace(unique("tenant")))
		for _, object := range []client.Object{
			&rbacv1.Role{
				ObjectMeta: metav1.ObjectMeta{Namespace: mine.Name, Name: "owner"},
				Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"delete"}}},
			},
			&rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: mine.Name, Name: "owner"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "owner"},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
			},
		} {
			Expect(admin.Create(ctx, object)).To(Succeed())
		}
		set := map[string]any{v1alpha1.AnnotationTTL: "8h"}
		Eventually(func() error { return annotate(ctx, config, mine.Name, set) }).WithContext(ctx).Should(Succeed())
		Expect(annotate(ctx, config, other.Name, set)).To(BeForbiddenBy("expiry"))
		c := framework.NewClient(config)
		Expect(c.Delete(ctx, mine, client.DryRunAll)).To(Succeed())
		Expect(c.Delete(ctx, other, client.DryRunAll)).NotTo(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("rejects values that the operator cannot parse", func(ctx context.Context) {
		for key, invalid := range map[string]string{
			v1alpha1.AnnotationExpiresAt: "2026-02-29T00:00:00Z", v1alpha1.AnnotationTTL: "30m1h",
		} {
			for _, value := range []string{invalid, strings.Repeat("9", 200000)} {
				namespace := wrappers.MakeNamespace("value").Annotation(key, value).Obj()
				Expect(owner.Create(ctx, namespace, client.DryRunAll)).To(BeDeniedBy("expiry", "annotation "+key+" must be a"), "%q", value)
			}
		}

		By("checking that a namespace with both annotations is rejected")
		both := withTTL("both", "8h").Annotation(v1alpha1.AnnotationExpiresAt, farOff).Obj()
		Expect(owner.Create(ctx, both)).To(BeDeniedBy("expiry", "not both"))
		namespace := create(ctx, owner, withTTL("both", "8h"))
		Expect(annotate(ctx, ownerConfig, namespace.Name, map[string]any{v1alpha1.AnnotationExpiresAt: farOff})).
			To(BeDeniedBy("expiry", "not both"))
	}, SpecTimeout(5*time.Minute))
})

// expiryOf returns the values of both expiry annotations.
func expiryOf(namespace *corev1.Namespace) [2]string {
	return [2]string{namespace.Annotations[v1alpha1.AnnotationExpiresAt], namespace.Annotations[v1alpha1.AnnotationTTL]}
}

// warnings returns the Warning Events about a namespace that have the given reason.
func warnings(g Gomega, ctx context.Context, namespace *corev1.Namespace, reason string) []string {
	var found []string
	for _, event := range cluster.EventsAbout(g, ctx, namespace, "") {
		if strings.HasPrefix(event, "Warning "+reason+" ") {
			found = append(found, event)
		}
	}
	return found
}

var _ = Describe("Expiry", func() {
	It("deletes only expired namespaces, and only after a warning, unless their expiry was extended or removed", func(ctx context.Context) {
		// On a busy machine, the warnings and the changes take a while, and must not be later than the expiry.
		const lifetime = 45 * time.Second
		ttl := lifetime.String()
		neighbours := []*corev1.Namespace{
			create(ctx, owner, wrappers.MakeNamespace(unique("neighbour"))), create(ctx, owner, withTTL("neighbour", "3h")),
		}
		extended, kept := create(ctx, owner, withTTL("extended", ttl)), create(ctx, owner, withTTL("extended", ttl))
		held := withTTL("expires", ttl).Obj()
		held.Finalizers = []string{"test.example.com/hold"}
		Expect(owner.Create(ctx, held)).To(Succeed())
		at := create(ctx, owner, wrappers.MakeNamespace(unique("expires")).
			Annotation(v1alpha1.AnnotationExpiresAt, time.Now().Add(lifetime).UTC().Format(time.RFC3339Nano)))
		for _, namespace := range []*corev1.Namespace{held, at, extended, kept} {
			Eventually(warnings).WithContext(ctx).WithArguments(namespace, v1alpha1.ReasonExpiresSoon).Should(HaveLen(1))
		}
		Expect(annotate(ctx, ownerConfig, extended.Name, map[string]any{v1alpha1.AnnotationTTL: "8h"})).To(Succeed())
		// Run the command that the warning recommends.
		_, err := cluster.Kubectl(ctx, editorConfig, "annotate", "namespace", kept.Name, "nslifecycle.dev/ttl-")
		Expect(err).NotTo(HaveOccurred())

		expectDeleted(ctx, at)
		Eventually(cluster.EventsAbout).WithContext(ctx).WithArguments(held, "").
			Should(ContainElement(And(HavePrefix("Normal Expired "), ContainSubstring("(nslifecycle.dev/ttl=%s)", ttl))))
		now := get(Default, ctx, held.Name)
		Expect(now.DeletionTimestamp.Time).To(BeTemporally(">=", now.CreationTimestamp.Add(lifetime)))
		Expect(now).To(HaveCondition(v1alpha1.ConditionExpiring, yes, v1alpha1.ReasonExpiresSoon))
		Expect(warnings(Default, ctx, held, v1alpha1.ReasonExpiresSoon)).To(HaveLen(1))
		Expect(owner.Patch(ctx, held, framework.MergePatch(`{"metadata":{"finalizers":null}}`))).To(Succeed())
		expectDeleted(ctx, held)

		for _, namespace := range append(neighbours, extended, kept) {
			expectKept(ctx, namespace)
		}
		Expect(nsobject.FindCondition(get(Default, ctx, neighbours[0].Name), v1alpha1.ConditionExpiring)).To(BeNil())
		for name, reason := range map[string]string{
			neighbours[1].Name: v1alpha1.ReasonExpiryScheduled, extended.Name: v1alpha1.ReasonExpiryScheduled, kept.Name: v1alpha1.ReasonNoExpiry,
		} {
			Expect(get(Default, ctx, name)).To(HaveCondition(v1alpha1.ConditionExpiring, no, reason))
		}
		Expect(get(Default, ctx, neighbours[1].Name)).To(
			HaveCondition(v1alpha1.ConditionExpiring, no, v1alpha1.ReasonExpiryScheduled, "(nslifecycle.dev/ttl=3h); to keep it, run: "))
	}, SpecTimeout(5*time.Minute))

	It("records the warning in an annotation that only it can change", func(ctx context.Context) {
		const key = v1alpha1.AnnotationExpiryWarnedAt
		namespace := create(ctx, owner, withTTL("warned", "30m"))
		Eventually(get).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionExpiring, yes, v1alpha1.ReasonExpiresSoon))
		warned, expires := get(Default, ctx, namespace.Name), namespace.CreationTimestamp.Add(30*time.Minute)
		Expect(warned.Annotations).To(HaveKeyWithValue(key, HaveSuffix("Z "+expires.UTC().Format(time.RFC3339))))
		for _, value := range []string{"", "2020-01-01T00:00:00Z " + expires.UTC().Format(time.RFC3339)} {
			for _, subresource := range [][]string{nil, {"status"}} {
				Expect(annotate(ctx, ownerConfig, namespace.Name, map[string]any{key: value}, subresource...)).To(Succeed())
				Expect(get(Default, ctx, namespace.Name).Annotations).To(HaveKeyWithValue(key, warned.Annotations[key]))
			}
		}
		By("leaving it out")
		Eventually(annotate).WithContext(ctx).WithArguments(ownerConfig, namespace.Name, map[string]any{key: nil}).
			Should(Succeed())
		Expect(get(Default, ctx, namespace.Name).Annotations).To(HaveKeyWithValue(key, warned.Annotations[key]))
		By("removing the expiry")
		Expect(annotate(ctx, ownerConfig, namespace.Name, map[string]any{v1alpha1.AnnotationTTL: nil})).To(Succeed())
		Eventually(get).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionExpiring, no, v1alpha1.ReasonNoExpiry))
		Expect(get(Default, ctx, namespace.Name).Annotations).NotTo(HaveKey(key))
	}, SpecTimeout(5*time.Minute))

	It("never deletes a protected namespace, and warns once the protection is removed", func(ctx context.Context) {
		namespace := create(ctx, owner, withTTL("guarded", "2s").Label(v1alpha1.LabelDeletionProtection, "enabled"))
		Eventually(warnings).WithContext(ctx).WithArguments(namespace, v1alpha1.ReasonDeletionProtected).
			Should(ConsistOf(ContainSubstring("kubectl label namespace " + namespace.Name + " nslifecycle.dev/deletion-protection-")))
		expectKept(ctx, namespace)
		Expect(get(Default, ctx, namespace.Name)).To(
			HaveCondition(v1alpha1.ConditionExpiring, no, v1alpha1.ReasonDeletionProtected, "expired at "))
		Expect(warnings(Default, ctx, namespace, v1alpha1.ReasonDeletionProtected)).To(HaveLen(1))

		_, err := cluster.Kubectl(ctx, ownerConfig, "label", "namespace", namespace.Name, "nslifecycle.dev/deletion-protection-")
		Expect(err).NotTo(HaveOccurred())
		Eventually(get).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionExpiring, yes, v1alpha1.ReasonExpiresSoon, "has expired"))
		expectKept(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	It("only reports expired namespaces with --expiry-dry-run", func(ctx context.Context) {
		restartManager(ctx, withControllers("*,expiry"), func(options *manager.Options) { options.IsExpiryDryRun = true })
		namespace := create(ctx, owner, withTTL("dry-run", "2s"))
		Eventually(warnings).WithContext(ctx).WithArguments(namespace, v1alpha1.ReasonExpiryDryRun).
			Should(ConsistOf(ContainSubstring("is not deleted: the operator runs with --expiry-dry-run")))
		expectKept(ctx, namespace)
	}, SpecTimeout(5*time.Minute))

	It("is disabled by default", func(ctx context.Context) {
		restartManager(ctx, withControllers("*"))
		namespace := create(ctx, owner, withTTL("off", "1s"))
		Eventually(get).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionInitializing, no, v1alpha1.ReasonInitialized))
		expectKept(ctx, namespace)
		Consistently(get).WithContext(ctx).WithArguments(namespace.Name).WithTimeout(2 * time.Second).
			Should(HaveField("DeletionTimestamp", BeNil()))
	}, SpecTimeout(5*time.Minute))

	It("never deletes namespaces that the cluster or the operator requires", func(ctx context.Context) {
		for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, controlplane.SystemNamespace} {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			Expect(client.IgnoreAlreadyExists(admin.Create(ctx, namespace))).To(Succeed())
			Expect(annotate(ctx, cluster.Admin.Config, name, map[string]any{v1alpha1.AnnotationTTL: "1s"})).To(Succeed())
			DeferCleanup(func(ctx context.Context) {
				Expect(annotate(ctx, cluster.Admin.Config, name, map[string]any{v1alpha1.AnnotationTTL: nil})).To(Succeed())
			})
			Eventually(get).WithContext(ctx).WithArguments(name).
				Should(HaveCondition(v1alpha1.ConditionExpiring, no, v1alpha1.ReasonNeverExpires))
			expectKept(ctx, get(Default, ctx, name))
		}
	}, SpecTimeout(5*time.Minute))

	It("uses the API server's clock if the manager's clock is ahead", func(ctx context.Context) {
		ahead := clocktesting.NewFakePassiveClock(time.Now().Add(24 * time.Hour))
		restartManager(ctx, withControllers("expiry"), func(options *manager.Options) { options.Clock = ahead })
		namespace := create(ctx, owner, withTTL("clock", "3h"))
		Eventually(get).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionExpiring, no, v1alpha1.ReasonExpiryScheduled))
		expectKept(ctx, namespace)
		Expect(warnings(Default, ctx, namespace, v1alpha1.ReasonExpiresSoon)).To(BeEmpty())
	}, SpecTimeout(5*time.Minute))

	It("reports that an admission policy denies the deletion, and retries the deletion", func(ctx context.Context) {
		binding := framework.DenyByPolicy(ctx, admin, framework.RequestsFor("", "namespaces", admissionv1.Delete),
			"'test.example.com/refuse' in oldObject.metadata.?labels.orValue({})", "not today")
		namespace := create(ctx, owner, withTTL("refused", "8h").Label("test.example.com/refuse", "true"))
		Eventually(func() error { return owner.Delete(ctx, namespace.DeepCopy(), client.DryRunAll) }).WithContext(ctx).
			Should(MatchError(ContainSubstring("not today")))
		// Set the expiry after the manager has started, so that the warning is not late.
		Expect(annotate(ctx, ownerConfig, namespace.Name, map[string]any{
			v1alpha1.AnnotationTTL: nil, v1alpha1.AnnotationExpiresAt: time.Now().Add(15 * time.Second).UTC().Format(time.RFC3339),
		})).To(Succeed())
		Eventually(get).WithContext(ctx).WithArguments(namespace.Name).
			Should(HaveCondition(v1alpha1.ConditionExpiring, yes, v1alpha1.ReasonDeletionRejected, "not today"))
		Eventually(warnings).WithContext(ctx).WithArguments(namespace, v1alpha1.ReasonDeletionRejected).Should(HaveLen(1))
		expectKept(ctx, namespace)

		Expect(admin.Delete(ctx, binding)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(get(g, ctx, namespace.Name).DeletionTimestamp).NotTo(BeNil())
		}).WithContext(ctx).Should(Succeed())
		Expect(warnings(Default, ctx, namespace, v1alpha1.ReasonDeletionRejected)).To(HaveLen(1))
	}, SpecTimeout(5*time.Minute))

	It("deletes no namespaces while the policy is missing, and resumes when the policy is restored", func(ctx context.Context) {
		waiting := create(ctx, owner, withTTL("policy", "8h"))
		Eventually(get).WithContext(ctx).WithArguments(waiting.Name).
			Should(HaveCondition(v1alpha1.ConditionExpiring, no, v1alpha1.ReasonExpiryScheduled))
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: "nslifecycle-expiry"}, binding)).To(Succeed())
		Expect(admin.Delete(ctx, binding)).To(Succeed())
		restore := func(ctx context.Context) {
			GinkgoHelper()
			again := binding.DeepCopy()
			again.ResourceVersion, again.UID = "", ""
			Expect(client.IgnoreAlreadyExists(admin.Create(ctx, again))).To(Succeed())
			expectExpiryPolicy(ctx)
		}
		DeferCleanup(restore)
		Eventually(get).WithContext(ctx).WithArguments(waiting.Name).Should(HaveCondition(
			v1alpha1.ConditionExpiring, no, v1alpha1.ReasonExpiryPolicyMissing, "run: kubectl apply -k config/expiry"))
		By("setting a value that the policy would reject")
		wrong := create(ctx, owner, withTTL("policy", "8h"))
		Eventually(func() error {
			return annotate(ctx, editorConfig, wrong.Name, map[string]any{v1alpha1.AnnotationTTL: "soon"})
		}).WithContext(ctx).Should(Succeed())
		short := create(ctx, owner, wrappers.MakeNamespace(unique("policy")))
		Expect(annotate(ctx, editorConfig, short.Name, map[string]any{v1alpha1.AnnotationTTL: "1s"})).To(Succeed())
		for _, namespace := range []*corev1.Namespace{wrong, short} {
			expectKept(ctx, namespace)
		}

		both := map[string]any{v1alpha1.AnnotationTTL: "1s", v1alpha1.AnnotationExpiresAt: farOff}
		twice := create(ctx, owner, wrappers.MakeNamespace(unique("policy")))
		Expect(annotate(ctx, editorConfig, twice.Name, both)).To(Succeed())

		By("restoring the policy")
		restore(ctx)
		Eventually(get).WithContext(ctx).WithArguments(waiting.Name).
			Should(HaveCondition(v1alpha1.ConditionExpiring, no, v1alpha1.ReasonExpiryScheduled))
		Eventually(get).WithContext(ctx).WithArguments(wrong.Name).
			Should(HaveCondition(v1alpha1.ConditionExpiring, no, v1alpha1.ReasonInvalidExpiry, `is "soon"`))
		Eventually(warnings).WithContext(ctx).WithArguments(wrong, v1alpha1.ReasonInvalidExpiry).Should(HaveLen(1))
		Eventually(get).WithContext(ctx).WithArguments(short.Name).
			Should(HaveCondition(v1alpha1.ConditionExpiring, yes, v1alpha1.ReasonExpiresSoon, "has expired"))
		expectKept(ctx, wrong)

		By("checking that a user who cannot delete the namespace cannot remove one of two annotations")
		Eventually(get).WithContext(ctx).WithArguments(twice.Name).
			Should(HaveCondition(v1alpha1.ConditionExpiring, no, v1alpha1.ReasonInvalidExpiry, v1alpha1.AnnotationExpiresAt, v1alpha1.AnnotationTTL))
		Expect(annotate(ctx, editorConfig, twice.Name, map[string]any{v1alpha1.AnnotationExpiresAt: nil})).To(BeForbiddenBy("expiry"))
		Expect(annotate(ctx, editorConfig, twice.Name, map[string]any{"example.com/note": "x"})).To(Succeed())
		expectKept(ctx, twice)
		Expect(annotate(ctx, editorConfig, twice.Name, map[string]any{
			v1alpha1.AnnotationTTL: nil, v1alpha1.AnnotationExpiresAt: nil,
		})).To(Succeed())
	}, SpecTimeout(5*time.Minute))
})

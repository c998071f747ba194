// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const testTimeout = 2 * time.Minute

var _ = Describe("create", func() {
	It("shows the progress of each initializer until the namespace is ready", func(ctx context.Context) {
		register(ctx, "progress", "first.progress.example.com", "second.progress.example.com")
		name := unique("progress")
		created := newUser(plane.Admin).start("create", name, "--wait", "--labels=team=a")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		Eventually(created.stdout).Should(gbytes.Say("namespace/" + name + " created"))
		Eventually(created.stdout).Should(gbytes.Say(`first\.progress\.example\.com +working`))
		Eventually(created.stdout).Should(gbytes.Say(`second\.progress\.example\.com +waiting`))

		say(ctx, name, "first.progress.example.com", "Quota", "asking the accounts for a budget")
		Eventually(created.stdout).Should(gbytes.Say(`first\.progress\.example\.com +working +Quota: asking the accounts`))
		finish(ctx, name)
		Eventually(created.stdout).Should(gbytes.Say(`first\.progress\.example\.com +done`))
		Eventually(created.stdout).Should(gbytes.Say(`second\.progress\.example\.com +working`))
		Consistently(created.done).ShouldNot(BeClosed())
		finish(ctx, name)
		ended := created.wait(ctx)
		Expect(ended.code).To(BeZero())
		Expect(ended.stdout).To(MatchRegexp(`namespace/` + name + ` ready after \S+\n$`))
		Expect(get(ctx, admin, name).Labels).To(HaveKeyWithValue("team", "a"))
	}, NodeTimeout(testTimeout))

	It("serves users who may do nothing but create and get namespaces", func(ctx context.Context) {
		register(ctx, "few", "only.few.example.com")
		creator := newRestrictedUser(ctx, plane, "creator", rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get"},
		})
		name := unique("few")
		created := creator.start("create", name, "--wait")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		Eventually(created.stdout).Should(gbytes.Say(`only\.few\.example\.com +working`))
		finish(ctx, name)
		Expect(created.wait(ctx).code).To(BeZero())
	}, NodeTimeout(testTimeout))

	It("shows why an initialization has failed", func(ctx context.Context) {
		register(ctx, "fail", "only.fail.example.com")
		name := unique("fail")
		created := newUser(plane.Admin).start("create", name, "--wait")
		Eventually(created.stdout).Should(gbytes.Say("working"))
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationInitializationResult,
			`{"status":"Failure","reason":"BudgetUsedUp","message":"the team has no budget left"}`)
		Expect(admin.Patch(ctx, get(ctx, admin, name), client.RawPatch("application/merge-patch+json", []byte(patch)))).
			To(Succeed())
		ended := created.wait(ctx)
		Expect(ended.code).To(Equal(1))
		Expect(ended.stderr).To(ContainSubstring("BudgetUsedUp: the team has no budget left"))
		Expect(ended.stdout).NotTo(ContainSubstring("ready"))
	}, NodeTimeout(testTimeout))

	It("gives up at the time-out, and says what it waits for", func(ctx context.Context) {
		register(ctx, "late", "only.late.example.com")
		name := unique("late")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		created := newUser(plane.Admin).run(ctx, "create", name, "--wait", "--timeout=2s")
		Expect(created.code).To(Equal(1))
		Expect(created.stderr).To(ContainSubstring("was not ready within 2s: it waits for only.late.example.com"))
	}, NodeTimeout(testTimeout))

	It("notices that the namespace is deleted, or another one", func(ctx context.Context) {
		register(ctx, "gone", "only.gone.example.com")
		for _, isReplaced := range []bool{false, true} {
			name := unique("gone")
			// By polling, since a watch would see the deletion in between.
			creator := newRestrictedUser(ctx, plane, unique("poller"), rbacv1.PolicyRule{
				APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get"},
			})
			created := creator.start("create", name, "--wait")
			Eventually(created.stdout).Should(gbytes.Say("working"))
			remove(ctx, name)
			if isReplaced {
				Expect(admin.Create(ctx, wrappers.MakeNamespace(name).Obj())).To(Succeed())
				DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
			}
			ended := created.wait(ctx)
			Expect(ended.code).To(Equal(1))
			Expect(ended.stderr).To(Or(ContainSubstring("was deleted while"), ContainSubstring("is being deleted")))
		}
	}, NodeTimeout(testTimeout))

	It("leaves the namespace alone on Ctrl-C", func(ctx context.Context) {
		register(ctx, "interrupt", "only.interrupt.example.com")
		name := unique("interrupt")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		created := newUser(plane.Admin).start("create", name, "--wait")
		Eventually(created.stdout).Should(gbytes.Say("working"))
		interrupt(created)
		ended := created.wait(ctx)
		Expect(ended.code).To(Equal(130))
		Expect(ended.stderr).To(ContainSubstring("is still being initialized"))
		Expect(get(ctx, admin, name).DeletionTimestamp).To(BeNil())
	}, NodeTimeout(testTimeout))

	It("is done at once where there is nothing to wait for", func(ctx context.Context) {
		for _, where := range []*user{newUser(plane.Admin), newUser(bare.Admin)} {
			name := unique("at-once")
			created := where.run(ctx, "create", name, "--wait")
			Expect(created.code).To(BeZero())
			Expect(created.stdout).To(MatchRegexp(`^namespace/` + name + ` created\nnamespace/` + name + ` ready after \S+\n$`))
			again := where.run(ctx, "create", name, "--wait")
			Expect(again.code).To(Equal(1))
			Expect(again.stderr).To(Equal(`error: namespaces "` + name + `" already exists` + "\n"))
		}
	}, NodeTimeout(testTimeout))

	It("follows kubectl create", func(ctx context.Context) {
		register(ctx, "plain", "only.plain.example.com")
		somebody := newUser(plane.Admin)
		name := unique("plain")
		for strategy, said := range map[string]string{
			"client": "namespace/" + name + " created (dry run)\n",
			"server": "namespace/" + name + " created (server dry run)\n",
		} {
			tried := somebody.run(ctx, "create", name, "--wait", "--dry-run="+strategy)
			Expect(tried.code).To(BeZero())
			Expect(tried.stdout).To(Equal(said))
		}
		Expect(apierrors.IsNotFound(admin.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))).To(BeTrue())
		var object corev1.Namespace
		tried := somebody.run(ctx, "create", name, "--dry-run=server", "-o", "yaml", "--annotations=a=b")
		Expect(yaml.Unmarshal([]byte(tried.stdout), &object)).To(Succeed())
		Expect(object.Kind).To(Equal("Namespace"))
		Expect(object.Annotations).To(And(HaveKeyWithValue("a", "b"),
			HaveKeyWithValue(v1alpha1.AnnotationPendingInitializers, "only.plain.example.com")))

		By("not waiting")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		created := somebody.run(ctx, "create", name)
		Expect(created.stdout).To(Equal("namespace/" + name + " created\n"))
		Expect(created.stderr).To(ContainSubstring("It waits for 1 initializer"))

		By("printing the object that is ready")
		structured := somebody.start("create", name+"-json", "--wait", "-o", "json")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name+"-json") })
		Eventually(structured.stderr).Should(gbytes.Say("working"))
		finish(ctx, name+"-json")
		ended := structured.wait(ctx)
		Expect(ended.code).To(BeZero())
		Expect(json.Unmarshal([]byte(ended.stdout), &object)).To(Succeed())
		Expect(object.Name).To(Equal(name + "-json"))
	}, NodeTimeout(testTimeout))
})

func get(ctx context.Context, c client.Client, name string) *corev1.Namespace {
	GinkgoHelper()
	namespace := &corev1.Namespace{}
	Expect(c.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	return namespace
}

// remove deletes a namespace of the control plane with the operator, and waits for its end.
func remove(ctx context.Context, name string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Eventually(func() bool {
		return apierrors.IsNotFound(admin.Delete(ctx, namespace))
	}).WithContext(ctx).Should(BeTrue())
}

// register puts a configuration in force for the time of one spec.
func register(ctx context.Context, name string, initializers ...string) {
	GinkgoHelper()
	configuration := wrappers.MakeConfiguration(name).Initializers(initializers...).Obj()
	Expect(admin.Create(ctx, configuration)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, configuration))).To(Succeed())
		expectInjected(ctx, "")
	})
	Eventually(func(g Gomega) {
		var now v1alpha1.NamespaceInitializerConfiguration
		g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, &now)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionActive)).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
	expectInjected(ctx, strings.Join(initializers, ","))
}

// expectInjected waits until new namespaces get this list.
func expectInjected(ctx context.Context, list string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
		g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Annotations[v1alpha1.AnnotationPendingInitializers]).To(Equal(list))
	}).WithContext(ctx).Should(Succeed())
}

// finish takes the first pending initializer off the list.
func finish(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		namespace := get(ctx, admin, name)
		_, rest, _ := strings.Cut(namespace.Annotations[v1alpha1.AnnotationPendingInitializers], ",")
		namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = rest
		g.Expect(admin.Update(ctx, namespace)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// say sets the condition in which an initializer tells how far it is.
func say(ctx context.Context, name, initializer, reason, message string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		namespace := get(ctx, admin, name)
		conditionType := corev1.NamespaceConditionType(initializer + v1alpha1.ConditionInitializedSuffix)
		kept := namespace.Status.Conditions[:0]
		for _, condition := range namespace.Status.Conditions {
			if condition.Type != conditionType {
				kept = append(kept, condition)
			}
		}
		namespace.Status.Conditions = append(kept, corev1.NamespaceCondition{
			Type: conditionType, Status: corev1.ConditionFalse, Reason: reason, Message: message,
			LastTransitionTime: metav1.Now(),
		})
		g.Expect(admin.Status().Update(ctx, namespace)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

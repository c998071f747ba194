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

const testTimeout = 5 * time.Minute

var _ = Describe("create", func() {
	It("shows the progress of each initializer until the namespace is ready", func(ctx context.Context) {
		register(ctx, "progress", "first.progress.example.com", "second.progress.example.com")
		name := unique("progress")
		created := newUser(plane.Admin).start("create", name, "--wait", "--labels=team=a")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		Eventually(created.stdout).Should(gbytes.Say("namespace/" + name + " created"))
		Eventually(created.stdout).Should(gbytes.Say(`first\.progress\.example\.com +running`))
		Eventually(created.stdout).Should(gbytes.Say(`second\.progress\.example\.com +waiting`))

		setProgress(ctx, name, "first.progress.example.com", "Quota", "requesting a budget")
		Eventually(created.stdout).Should(gbytes.Say(`first\.progress\.example\.com +running +Quota: requesting a budget`))
		finish(ctx, name)
		Eventually(created.stdout).Should(gbytes.Say(`first\.progress\.example\.com +done`))
		Eventually(created.stdout).Should(gbytes.Say(`second\.progress\.example\.com +running`))
		Consistently(created.done).ShouldNot(BeClosed())
		finish(ctx, name)
		finished := created.wait(ctx)
		Expect(finished.code).To(BeZero())
		Expect(finished.stdout).To(MatchRegexp(`namespace/` + name + ` ready after \S+\n$`))
		Expect(get(ctx, admin, name).Labels).To(HaveKeyWithValue("team", "a"))
	}, NodeTimeout(testTimeout))

	It("requires only permission to create and get namespaces", func(ctx context.Context) {
		register(ctx, "few", "only.few.example.com")
		creator := newRestrictedUser(ctx, plane, "creator", rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get"},
		})
		name := unique("few")
		created := creator.start("create", name, "--wait")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		Eventually(created.stdout).Should(gbytes.Say(`only\.few\.example\.com +running`))
		finish(ctx, name)
		Expect(created.wait(ctx).code).To(BeZero())
	}, NodeTimeout(testTimeout))

	It("shows why the initialization failed", func(ctx context.Context) {
		register(ctx, "fail", "only.fail.example.com")
		name := unique("fail")
		created := newUser(plane.Admin).start("create", name, "--wait")
		Eventually(created.stdout).Should(gbytes.Say("running"))
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationInitializationResult,
			`{"status":"Failure","reason":"BudgetUsedUp","message":"no budget"}`)
		Expect(admin.Patch(ctx, get(ctx, admin, name), client.RawPatch("application/merge-patch+json", []byte(patch)))).
			To(Succeed())
		finished := created.wait(ctx)
		Expect(finished.code).To(Equal(1))
		Expect(finished.stderr).To(ContainSubstring("BudgetUsedUp: no budget"))
		Expect(finished.stdout).NotTo(ContainSubstring("ready"))
	}, NodeTimeout(testTimeout))

	It("times out and prints the pending initializers", func(ctx context.Context) {
		register(ctx, "late", "only.late.example.com")
		name := unique("late")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		created := newUser(plane.Admin).run(ctx, "create", name, "--wait", "--timeout=2s")
		Expect(created.code).To(Equal(1))
		Expect(created.stderr).To(And(ContainSubstring("2s"), ContainSubstring("only.late.example.com"), ContainSubstring("kubectl nslifecycle explain "+name)))
	}, NodeTimeout(testTimeout))

	It("fails if the namespace is deleted or recreated", func(ctx context.Context) {
		register(ctx, "deleted", "only.deleted.example.com")
		for _, isReplaced := range []bool{false, true} {
			name := unique("deleted")
			// This user cannot watch namespaces, so the plugin polls. If the namespace is recreated,
			// the plugin does not observe the deletion.
			creator := newRestrictedUser(ctx, plane, unique("poller"), rbacv1.PolicyRule{
				APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get"},
			})
			created := creator.start("create", name, "--wait")
			Eventually(created.stdout).Should(gbytes.Say("running"))
			remove(ctx, name)
			if isReplaced {
				Expect(admin.Create(ctx, wrappers.MakeNamespace(name).Obj())).To(Succeed())
				DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
			}
			finished := created.wait(ctx)
			Expect(finished.code).To(Equal(1))
			Expect(finished.stderr).To(MatchRegexp(`error: .*"` + name + `" was deleted`))
		}
	}, NodeTimeout(testTimeout))

	It("does not change the namespace on Ctrl-C", func(ctx context.Context) {
		register(ctx, "interrupt", "only.interrupt.example.com")
		name := unique("interrupt")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		created := newUser(plane.Admin).start("create", name, "--wait")
		Eventually(created.stdout).Should(gbytes.Say("running"))
		interrupt(created)
		finished := created.wait(ctx)
		Expect(finished.code).To(Equal(130))
		Expect(finished.stderr).To(And(HavePrefix("error: interrupted"),
			ContainSubstring("kubectl wait --for=condition=Initializing=False namespace/"+name+" --timeout=5m")))
		Expect(get(ctx, admin, name).DeletionTimestamp).To(BeNil())
	}, NodeTimeout(testTimeout))

	It("returns immediately if no initializers are registered", func(ctx context.Context) {
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

	It("behaves like kubectl create", func(ctx context.Context) {
		register(ctx, "plain", "only.plain.example.com")
		adminUser := newUser(plane.Admin)
		name := unique("plain")
		for strategy, output := range map[string]string{
			"client": "namespace/" + name + " created (dry run)\n",
			"server": "namespace/" + name + " created (server dry run)\n",
		} {
			tried := adminUser.run(ctx, "create", name, "--wait", "--dry-run="+strategy)
			Expect(tried.code).To(BeZero())
			Expect(tried.stdout).To(Equal(output))
		}
		Expect(apierrors.IsNotFound(admin.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))).To(BeTrue())
		var object corev1.Namespace
		tried := adminUser.run(ctx, "create", name, "--dry-run=server", "-o", "yaml", "--annotations=a=b")
		Expect(yaml.Unmarshal([]byte(tried.stdout), &object)).To(Succeed())
		Expect(object.Kind).To(Equal("Namespace"))
		Expect(object.Annotations).To(And(HaveKeyWithValue("a", "b"),
			HaveKeyWithValue(v1alpha1.AnnotationPendingInitializers, "only.plain.example.com")))

		By("creating the namespace without waiting")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		created := adminUser.run(ctx, "create", name)
		Expect(created.stdout).To(Equal("namespace/" + name + " created\n"))
		Expect(created.stderr).To(And(ContainSubstring("1 initializer"), ContainSubstring("namespace/"+name)))

		By("printing the Namespace when it is ready")
		structured := adminUser.start("create", name+"-json", "--wait", "-o", "json")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name+"-json") })
		Eventually(structured.stderr).Should(gbytes.Say("running"))
		finish(ctx, name+"-json")
		finished := structured.wait(ctx)
		Expect(finished.code).To(BeZero())
		Expect(json.Unmarshal([]byte(finished.stdout), &object)).To(Succeed())
		Expect(object.Name).To(Equal(name + "-json"))
	}, NodeTimeout(testTimeout))
})

func get(ctx context.Context, c client.Client, name string) *corev1.Namespace {
	GinkgoHelper()
	namespace := &corev1.Namespace{}
	Expect(c.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	return namespace
}

// remove deletes a namespace on the control plane with the operator and waits for the deletion.
func remove(ctx context.Context, name string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Eventually(func() bool {
		return apierrors.IsNotFound(admin.Delete(ctx, namespace))
	}).WithContext(ctx).Should(BeTrue())
}

// register creates a configuration for the duration of the spec and waits until it is enforced.
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

// expectInjected waits until the API server injects the given pending list into new namespaces.
func expectInjected(ctx context.Context, list string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
		g.Expect(admin.Create(ctx, probe, client.DryRunAll)).To(Succeed())
		g.Expect(probe.Annotations[v1alpha1.AnnotationPendingInitializers]).To(Equal(list))
	}).WithContext(ctx).Should(Succeed())
}

// finish removes the first pending initializer.
func finish(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		namespace := get(ctx, admin, name)
		_, rest, _ := strings.Cut(namespace.Annotations[v1alpha1.AnnotationPendingInitializers], ",")
		namespace.Annotations[v1alpha1.AnnotationPendingInitializers] = rest
		g.Expect(admin.Update(ctx, namespace)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// setProgress sets the condition that reports the progress of an initializer.
func setProgress(ctx context.Context, name, initializer, reason, message string) {
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

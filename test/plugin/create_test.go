// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const testTimeout = 5 * time.Minute

var _ = Describe("create", func() {
	It("shows the progress of each initializer until the namespace is initialized", func(ctx context.Context) {
		plane.Register(ctx, "progress", "first.progress.example.com", "second.progress.example.com")
		name := unique("progress")
		created := newUser(plane.Admin.Config).start("create", name, "--wait", "--labels=team=a")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		Eventually(created.stdout).Should(gbytes.Say("namespace/" + name + " created"))
		Eventually(created.stdout).Should(gbytes.Say(`first\.progress\.example\.com +running`))
		Eventually(created.stdout).Should(gbytes.Say(`second\.progress\.example\.com +waiting`))

		setProgress(ctx, name, "first.progress.example.com", "Quota", "requesting a budget")
		Eventually(created.stdout).Should(gbytes.Say(`first\.progress\.example\.com +running +Quota: requesting a budget`))
		plane.Finish(ctx, name)
		Eventually(created.stdout).Should(gbytes.Say(`first\.progress\.example\.com +done`))
		Eventually(created.stdout).Should(gbytes.Say(`second\.progress\.example\.com +running`))
		Consistently(created.done).ShouldNot(BeClosed())
		plane.Finish(ctx, name)
		finished := created.wait(ctx)
		Expect(finished.code).To(BeZero())
		Expect(finished.stdout).To(MatchRegexp(`namespace/` + name + ` initialized after \S+\n$`))
		Expect(get(ctx, admin, name).Labels).To(HaveKeyWithValue("team", "a"))
	}, NodeTimeout(testTimeout))

	It("requires only permission to create and get namespaces", func(ctx context.Context) {
		plane.Register(ctx, "few", "only.few.example.com")
		creator := newRestrictedUser(ctx, plane, "creator", rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get"},
		})
		name := unique("few")
		created := creator.start("create", name, "--wait")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		Eventually(created.stdout).Should(gbytes.Say(`only\.few\.example\.com +running`))
		plane.Finish(ctx, name)
		Expect(created.wait(ctx).code).To(BeZero())
	}, NodeTimeout(testTimeout))

	It("shows why the initialization failed", func(ctx context.Context) {
		plane.Register(ctx, "fail", "only.fail.example.com")
		name := unique("fail")
		created := newUser(plane.Admin.Config).start("create", name, "--wait")
		Eventually(created.stdout).Should(gbytes.Say("running"))
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationInitializationResult,
			`{"status":"Failure","reason":"BudgetUsedUp","message":"no budget"}`)
		Expect(admin.Patch(ctx, get(ctx, admin, name), framework.MergePatch(patch))).
			To(Succeed())
		finished := created.wait(ctx)
		Expect(finished.code).To(Equal(1))
		Expect(finished.stderr).To(ContainSubstring("BudgetUsedUp: no budget"))
		Expect(finished.stdout).NotTo(ContainSubstring("ready"))
	}, NodeTimeout(testTimeout))

	It("times out and prints the pending initializers", func(ctx context.Context) {
		plane.Register(ctx, "late", "only.late.example.com")
		name := unique("late")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		created := newUser(plane.Admin.Config).run(ctx, "create", name, "--wait", "--timeout=2s")
		Expect(created.code).To(Equal(1))
		Expect(created.stderr).To(And(ContainSubstring("2s"), ContainSubstring("only.late.example.com"), ContainSubstring("kubectl nslifecycle explain "+name)))
	}, NodeTimeout(testTimeout))

	It("fails if the namespace is deleted or recreated", func(ctx context.Context) {
		plane.Register(ctx, "deleted", "only.deleted.example.com")
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
				admin.Creates(ctx, wrappers.MakeNamespace(name).Obj())
				DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
			}
			finished := created.wait(ctx)
			Expect(finished.code).To(Equal(1))
			Expect(finished.stderr).To(MatchRegexp(`error: .*"` + name + `" was deleted`))
		}
	}, NodeTimeout(testTimeout))

	It("does not change the namespace on Ctrl-C", func(ctx context.Context) {
		plane.Register(ctx, "interrupt", "only.interrupt.example.com")
		name := unique("interrupt")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		created := newUser(plane.Admin.Config).start("create", name, "--wait")
		Eventually(created.stdout).Should(gbytes.Say("running"))
		interrupt(created)
		finished := created.wait(ctx)
		Expect(finished.code).To(Equal(130))
		Expect(finished.stderr).To(And(HavePrefix("error: interrupted"),
			ContainSubstring("kubectl nslifecycle wait "+name)))
		Expect(get(ctx, admin, name).DeletionTimestamp).To(BeNil())
	}, NodeTimeout(testTimeout))

	It("returns immediately if no initializers are registered", func(ctx context.Context) {
		for _, where := range []*user{newUser(plane.Admin.Config), newUser(bare.Admin.Config)} {
			name := unique("at-once")
			created := where.run(ctx, "create", name, "--wait")
			Expect(created.code).To(BeZero())
			Expect(created.stdout).To(MatchRegexp(`^namespace/` + name + ` created\nnamespace/` + name + ` initialized after \S+\n$`))
			again := where.run(ctx, "create", name, "--wait")
			Expect(again.code).To(Equal(1))
			Expect(again.stderr).To(Equal(`Error from server (AlreadyExists): namespaces "` + name + `" already exists` + "\n"))
		}
	}, NodeTimeout(testTimeout))

	It("behaves like kubectl create", func(ctx context.Context) {
		plane.Register(ctx, "plain", "only.plain.example.com")
		adminUser := newUser(plane.Admin.Config)
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
		Expect(created.stderr).To(And(ContainSubstring("1 initializer"), ContainSubstring("kubectl nslifecycle wait "+name)))

		By("printing the Namespace when it is ready")
		structured := adminUser.start("create", name+"-json", "--wait", "-o", "json")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name+"-json") })
		Eventually(structured.stderr).Should(gbytes.Say("running"))
		plane.Finish(ctx, name+"-json")
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

var _ = Describe("delete", func() {
	It("shows the remaining objects until the namespace is deleted", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "delete")
		held := make([]*corev1.ConfigMap, 0, 3)
		for i := range 3 {
			held = append(held, makeConfigMap(ctx, admin, namespace.Name, fmt.Sprintf("held-%d", i), testFinalizer))
		}
		deleted := newUser(plane.Admin.Config).start("delete", namespace.Name)
		Eventually(deleted.stdout).Should(gbytes.Say(`configmaps: 3 of \d remaining\n`))
		for i, remaining := range []string{"2", "1"} {
			framework.RemoveFinalizers(ctx, admin, held[i])
			Eventually(deleted.stdout).Should(gbytes.Say(`configmaps: ` + remaining + ` of \d remaining\n`))
		}
		framework.RemoveFinalizers(ctx, admin, held[2])
		finished := deleted.wait(ctx)
		Expect(finished.code).To(BeZero())
		Expect(finished.stdout).To(MatchRegexp(`namespace "` + namespace.Name + `" deleted after \S+\n$`))
		Expect(finished.stderr).To(BeEmpty())
		Expect(apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace))).To(BeTrue())
	}, NodeTimeout(testTimeout))

	It("prints the cause if there is no progress", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "stuck")
		held := makeConfigMap(ctx, admin, namespace.Name, "held", testFinalizer)
		DeferCleanup(func(ctx context.Context) { framework.RemoveFinalizers(ctx, admin, held) })
		deleted := newUser(plane.Admin.Config).run(ctx, "delete", namespace.Name, "--progress-deadline=2s", "--timeout=30s")
		Expect(deleted.stdout).To(MatchRegexp(`No progress for \d+s`))
		Expect(strings.Count(deleted.stdout, "No progress")).To(BeNumerically("<=", 2), "the other diagnoses have the same result")
		Expect(deleted.stdout).To(ContainSubstring(testFinalizer))
		Expect(deleted.stdout).To(ContainSubstring("kubectl nslifecycle explain " + namespace.Name))
		Expect(deleted.stderr).To(And(ContainSubstring("30s"), ContainSubstring(namespace.Name)))
		Expect(deleted.code).To(Equal(3))
	}, NodeTimeout(testTimeout))

	It("stops on Ctrl-C while the deletion continues, and can be run again", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "interrupted")
		held := makeConfigMap(ctx, admin, namespace.Name, "held", testFinalizer)
		adminUser := newUser(plane.Admin.Config)
		deleted := adminUser.start("delete", namespace.Name, "--context=nslifecycle")
		Eventually(deleted.stdout).Should(gbytes.Say("configmaps: 1 of"))
		interrupt(deleted)
		finished := deleted.wait(ctx)
		Expect(finished.code).To(Equal(130))
		Expect(finished.stderr).To(And(HavePrefix("error: interrupted"),
			ContainSubstring("kubectl nslifecycle --context=nslifecycle wait "+namespace.Name+" --for=delete")))
		Expect(get(ctx, admin, namespace.Name).DeletionTimestamp).NotTo(BeNil())

		again := adminUser.start("delete", namespace.Name)
		Eventually(again.stderr).Should(gbytes.Say(`Namespace "` + namespace.Name + `" has already been terminating`))
		framework.RemoveFinalizers(ctx, admin, held)
		Expect(again.wait(ctx).code).To(BeZero())
	}, NodeTimeout(testTimeout))

	It("behaves like kubectl delete with --wait=false and --dry-run", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "no-wait")
		adminUser := newUser(plane.Admin.Config)
		for strategy, suffix := range map[string]string{"client": " (dry run)", "server": " (server dry run)"} {
			tried := adminUser.run(ctx, "delete", namespace.Name, "--dry-run="+strategy)
			Expect(tried.code).To(BeZero())
			Expect(tried.stdout).To(Equal(`namespace "` + namespace.Name + `" deleted` + suffix + "\n"))
			Expect(get(ctx, admin, namespace.Name).DeletionTimestamp).To(BeNil())
		}
		deleted := adminUser.run(ctx, "delete", namespace.Name, "--wait=false")
		Expect(deleted.stdout).To(Equal(`namespace "` + namespace.Name + `" deleted` + "\n"))
		Eventually(func() string {
			return adminUser.run(ctx, "delete", namespace.Name, "--wait=false").stderr
		}).WithContext(ctx).Should(Equal(`Error from server (NotFound): namespaces "` + namespace.Name + `" not found` + "\n"))
		Expect(adminUser.run(ctx, "delete", namespace.Name, "--ignore-not-found").code).To(BeZero())
	}, NodeTimeout(testTimeout))

	It("deletes several namespaces, also if one of them does not exist", func(ctx context.Context) {
		one, two := makeNamespace(ctx, admin, "several"), makeNamespace(ctx, admin, "several")
		deleted := newUser(plane.Admin.Config).run(ctx, "delete", one.Name, "missing", two.Name)
		Expect(deleted.code).To(Equal(1))
		Expect(deleted.stderr).To(ContainSubstring("Error from server (NotFound): namespaces \"missing\" not found\n"))
		framework.ExpectDeleted(ctx, admin, one)
		framework.ExpectDeleted(ctx, admin, two)
	}, NodeTimeout(testTimeout))

	It("refuses to delete system namespaces", func(ctx context.Context) {
		adminUser := newUser(bare.Admin.Config)
		for _, name := range []string{"kube-system", "kube-public", "kube-node-lease", "default"} {
			refused := adminUser.run(ctx, "delete", name)
			Expect(refused.code).To(Equal(1))
			Expect(refused.stderr).To(ContainSubstring("system namespace"))
		}
		Expect(get(ctx, bareAdmin, "kube-public").DeletionTimestamp).To(BeNil())
	}, NodeTimeout(testTimeout))

	It("prints how to allow the deletion of a protected namespace", func(ctx context.Context) {
		_, err := plane.Kubectl(ctx, plane.Admin.Config, "apply", "-k", filepath.Join(controlplane.Root(), "config", "protection"))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := plane.Kubectl(ctx, plane.Admin.Config, "delete", "-k", filepath.Join(controlplane.Root(), "config", "protection"))
			Expect(err).NotTo(HaveOccurred())
		})
		namespace := makeNamespace(ctx, admin, "protected")
		_, err = plane.Kubectl(ctx, plane.Admin.Config, "label", "namespace", namespace.Name, "nslifecycle.dev/deletion-protection=enabled")
		Expect(err).NotTo(HaveOccurred())
		adminUser := newUser(plane.Admin.Config)
		removal := "kubectl label namespace " + namespace.Name + " nslifecycle.dev/deletion-protection-"
		Eventually(func() string {
			return adminUser.run(ctx, "delete", namespace.Name, "--dry-run=server").stderr
		}).WithContext(ctx).Should(HaveSuffix(" " + removal + "\n"))
		refused := adminUser.run(ctx, "delete", namespace.Name)
		Expect(refused.code).To(Equal(1))
		Expect(refused.stderr).To(And(HavePrefix(`error: namespace "`+namespace.Name+`" was not deleted`),
			ContainSubstring("label nslifecycle.dev/deletion-protection "), HaveSuffix(" "+removal+"\n")))
		Expect(adminUser.run(ctx, "list", "-o", "wide", "-l", "nslifecycle.dev/deletion-protection").stdout).To(MatchRegexp(`yes +<none>`))

		_, err = plane.Kubectl(ctx, plane.Admin.Config, strings.Fields(removal)[1:]...)
		Expect(err).NotTo(HaveOccurred())
		Expect(adminUser.run(ctx, "delete", namespace.Name).code).To(BeZero())
	}, NodeTimeout(testTimeout))

	It("shows the conditions of the Namespace if its content cannot be read", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "unreadable")
		held := makeConfigMap(ctx, admin, namespace.Name, "held", testFinalizer)
		owner := newRestrictedUser(ctx, plane, "owner", rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "delete"},
		})
		deleted := owner.start("delete", namespace.Name)
		Eventually(deleted.stderr).Should(gbytes.Say("Warning: .*" + namespace.Name))
		Eventually(deleted.stdout).Should(gbytes.Say("waiting for 1 configmaps"))
		framework.RemoveFinalizers(ctx, admin, held)
		Expect(deleted.wait(ctx).code).To(BeZero())
	}, NodeTimeout(testTimeout))
})

// interrupt sends SIGINT, as Ctrl-C does.
func interrupt(r *running) {
	GinkgoHelper()
	Expect(r.command.Process.Signal(syscall.SIGINT)).To(Succeed())
}

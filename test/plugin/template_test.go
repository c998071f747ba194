// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
)

// provisioner is the ServiceAccount of the templates.
const provisioner = "template-account"

var _ = Describe("template", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) { plane.AddTemplateAccount(ctx, provisioner) })

	It("creates namespaces with the objects of a template, and shows what it changes", func(ctx context.Context) {
		user := newUser(plane.Admin.Config)
		settings := newTemplate(unique("settings"))
		plane.CreateTemplate(ctx, settings.DeepCopy())

		By("creating namespaces")
		names := []string{unique("small"), unique("large"), unique("default-size")}
		for i, arguments := range [][]string{{"-p", "size=s"}, {"-p", "size=l"}, {}} {
			created := user.run(ctx, append([]string{"create", names[i], "--wait", "--template=" + settings.Name}, arguments...)...)
			DeferCleanup(func(ctx context.Context) { remove(ctx, names[i]) })
			Expect(created.code).To(BeZero(), created.stderr)
			Expect(created.stdout).To(ContainSubstring("initialized after"))
		}
		Expect(dataOf(Default, ctx, names[0])).To(HaveKeyWithValue("pods", "4"))
		Expect(dataOf(Default, ctx, names[1])).To(HaveKeyWithValue("pods", "40"))
		refused := user.run(ctx, "create", unique("refused"), "--template="+settings.Name, "-p", "size=xl")
		Expect(refused.code).To(Equal(1))
		Expect(refused.stderr).To(ContainSubstring(`parameter "size"`))

		By("comparing the template in the cluster")
		same := user.run(ctx, "template", "diff", settings.Name)
		Expect(same.code).To(BeZero())
		Expect(same.stdout).To(MatchRegexp(`Namespaces +3 +0 +0 +0 +0 +0 +0\n`))
		Expect(same.stdout).To(MatchRegexp(`Objects +6 +0 +0 +0 +0 +0 +0\n`))

		By("comparing a template that changes one of the namespaces")
		settings.Spec.Variables[0].Expression = "params.size == 'l' ? 80 : 4"
		file := writeTemplate(user, settings)
		changed := user.run(ctx, "template", "diff", "-f", file)
		Expect(changed.code).To(BeZero(), changed.stderr)
		Expect(changed.stdout).To(MatchRegexp(`Namespaces +2 +1 +0 +0 +0 +0 +0\n`))
		Expect(changed.stdout).To(ContainSubstring("Namespace " + names[1] + ": changed\n"))
		Expect(changed.stdout).To(ContainSubstring(`data.pods: "40" -> "80"`))
		Expect(changed.stderr).To(BeEmpty())
		Expect(dataOf(Default, ctx, names[1])).To(HaveKeyWithValue("pods", "40"), "a comparison changes nothing")

		By("comparing with few permissions")
		reader := newRestrictedUser(ctx, plane, unique("reader"), rbacv1.PolicyRule{
			APIGroups: []string{"", v1alpha1.GroupVersion.Group}, Resources: []string{"namespaces", "namespacetemplates"},
			Verbs: []string{"get", "list"},
		})
		restricted := reader.run(ctx, "template", "diff", "-f", file)
		Expect(restricted.code).To(BeZero())
		Expect(restricted.stdout).To(ContainSubstring(`data.pods: "40" -> "80"`))
		Expect(restricted.stderr).To(And(ContainSubstring("could not be tested"), ContainSubstring("no permission to get them")))

		By("comparing a template that the API server rejects, and that renames an object")
		rejected := settings.DeepCopy()
		rejected.Spec.Objects[0].Template.Raw = []byte(strings.Replace(string(rejected.Spec.Objects[0].Template.Raw),
			`"pods":`, `"no spaces":`, 1))
		rejected.Spec.Objects[1].Template.Raw = []byte(strings.Replace(string(rejected.Spec.Objects[1].Template.Raw),
			`"name":"notes"`, `"name":"remarks"`, 1))
		failed := user.run(ctx, "template", "diff", "-f", writeTemplate(user, rejected), "--namespace="+names[0], "-o", "json")
		Expect(failed.code).To(Equal(1))
		var comparison map[string]any
		Expect(json.Unmarshal([]byte(failed.stdout), &comparison)).To(Succeed())
		Expect(comparison).To(And(HaveKeyWithValue("kind", "TemplateComparison"), HaveKeyWithValue("objects", And(
			HaveKeyWithValue("Failed", 1.0), HaveKeyWithValue("Created", 1.0), HaveKeyWithValue("Deleted", 0.0)))),
			"nothing is deleted while an object cannot be applied")
		Expect(failed.stdout).To(ContainSubstring("a valid config key must consist of"))

		By("applying the changed template")
		applied := &v1alpha1.NamespaceTemplate{}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(settings), applied)).To(Succeed())
		patch := client.MergeFrom(applied.DeepCopy())
		applied.Spec = settings.Spec
		Expect(admin.Patch(ctx, applied, patch)).To(Succeed())
		Eventually(func(g Gomega) {
			same = user.run(ctx, "template", "diff", settings.Name)
			g.Expect(same.stdout).To(MatchRegexp(`Namespaces +3 +0 +0 +0 +0 +0 +0\n`))
		}).WithContext(ctx).Should(Succeed())
		Expect(dataOf(Default, ctx, names[1])).To(HaveKeyWithValue("pods", "80"))

		By("showing the state of the template")
		Eventually(func(g Gomega) {
			status := user.run(ctx, "template", "status", settings.Name)
			g.Expect(status.code).To(BeZero(), status.stdout)
			g.Expect(status.stdout).To(ContainSubstring("Namespaces: 3 desired, 3 updated, 0 outdated, 0 failed, 0 conflicted."))
		}).WithContext(ctx).Should(Succeed())
		structured := user.run(ctx, "template", "status", settings.Name, "-o", "json")
		Expect(structured.stdout).To(And(ContainSubstring(`"kind": "TemplateStatus"`), ContainSubstring(`"outdated": []`)))

		By("rendering the template for a namespace in the cluster")
		rendered := user.run(ctx, "template", "render", settings.Name, "--namespace="+names[1])
		Expect(rendered.code).To(BeZero(), rendered.stderr)
		Expect(rendered.stdout).To(ContainSubstring(`pods: "80"`))
		Expect(user.run(ctx, "template", "render", settings.Name, "--namespace=missing", "-p", "size=s").stdout).
			To(And(ContainSubstring(`pods: "4"`), ContainSubstring("namespace: missing")))
	}, NodeTimeout(testTimeout))

	It("shows which templates select a namespace, and why another does not", func(ctx context.Context) {
		user := newUser(plane.Admin.Config)
		selecting := newTemplate(unique("selecting"))
		key := "corp.example.com/" + selecting.Name + "-kind"
		selecting.Spec.NamespaceSelector = &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{key: "platform"}}
		plane.CreateTemplate(ctx, selecting.DeepCopy())
		selected, nearly := unique("selected"), unique("nearly")
		for name, label := range map[string]string{selected: key + "=platform", nearly: key + "=plattform"} {
			created := user.run(ctx, "create", name, "--labels="+label, "--wait")
			DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
			Expect(created.code).To(BeZero(), created.stderr)
		}
		reason := `has the value "plattform": the template requires "platform"`

		By("explaining the namespaces")
		Eventually(func(g Gomega) {
			explained := user.run(ctx, "explain", selected)
			g.Expect(explained.code).To(BeZero())
			g.Expect(explained.stdout).To(And(ContainSubstring(", healthy\n"), MatchRegexp(
				`(?m)^Templates:\n(  .*\n)*  `+selecting.Name+`: selected, revision \w+ \(current\)$`)))
		}).WithContext(ctx).Should(Succeed())
		explained := user.run(ctx, "explain", nearly)
		Expect(explained.code).To(BeZero())
		Expect(unwrap(explained.stdout)).To(And(ContainSubstring(selecting.Name+": nearly selected"), ContainSubstring(reason)))
		structured := user.run(ctx, "explain", nearly, "-o", "json")
		Expect(structured.stdout).To(And(ContainSubstring(`"selection": "NearlySelected"`), ContainSubstring(`"state": "Initialized"`)))
		Expect(user.run(ctx, "list", "-o", "wide").stdout).To(And(
			MatchRegexp(selected+` .* `+selecting.Name+`\n`), MatchRegexp(nearly+` .* `+selecting.Name+` \(nearly selected\)`)))

		By("explaining settings that no template uses")
		admin.Patches(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: nearly}}, `{"metadata":{"annotations":{"parameter.nslifecycle.dev/size":"l"}}}`)
		Expect(unwrap(user.run(ctx, "explain", nearly).stdout)).To(ContainSubstring(
			"Annotation parameter.nslifecycle.dev/size: no template that is applied has this parameter."))

		By("comparing and showing the template")
		compared := user.run(ctx, "template", "diff", selecting.Name, "--namespace="+nearly)
		Expect(compared.code).To(BeZero())
		Expect(unwrap(compared.stdout)).To(ContainSubstring("Nearly selected: label " + key + " " + reason))
		Expect(user.run(ctx, "template", "diff", selecting.Name, "--namespace="+selected).stdout).NotTo(ContainSubstring("elected:"))
		exempt := user.run(ctx, "template", "diff", selecting.Name, "--namespace=kube-system")
		Expect(exempt.code).To(Equal(1))
		Expect(exempt.stderr).To(ContainSubstring("it is exempt from initialization"))
		status := user.run(ctx, "template", "status", selecting.Name)
		Expect(unwrap(status.stdout)).To(ContainSubstring("Nearly selected: " + nearly + " (label " + key + " " + reason))

		By("adding the label, and extending the template to the namespace, in which another object exists")
		admin.Patches(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: nearly}}, `{"metadata":{"labels":{"`+key+`":"platform"}}}`)
		late := user.run(ctx, "explain", nearly)
		Expect(unwrap(late.stdout)).To(And(ContainSubstring(selecting.Name+": selected, but not applied"),
			ContainSubstring("The template did not select the namespace when the namespace was created")))
		makeConfigMap(ctx, admin, nearly, "settings")
		admin.Patches(ctx, &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: selecting.Name}}, `{"spec":{"scope":"AllNamespaces","sync":{"adoptionPolicy":"Never"}}}`)
		Eventually(func(g Gomega) {
			degraded := user.run(ctx, "explain", nearly)
			g.Expect(degraded.code).To(Equal(3))
			g.Expect(degraded.stdout).To(And(ContainSubstring(", degraded\n"),
				ContainSubstring("Conflicts: object settings: AlreadyExists: ")))
		}).WithContext(ctx).Should(Succeed())
		Expect(user.run(ctx, "explain", "--all").stdout).To(ContainSubstring("Namespace " + nearly + ": Initialized for "))
		Expect(rows(user.run(ctx, "list").stdout)).To(HaveKeyWithValue(nearly,
			ContainSubstring("template "+selecting.Name+", object settings")))

		By("explaining without permission to list templates")
		reader := newRestrictedUser(ctx, plane, unique("reader"), rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list"},
		})
		recorded := reader.run(ctx, "explain", selected)
		Expect(recorded.code).To(Equal(1))
		Expect(recorded.stdout).To(And(ContainSubstring(", unknown\n"), ContainSubstring(selecting.Name+": recorded, revision ")))
		Expect(recorded.stderr).To(ContainSubstring("no permission to list them"))
	}, NodeTimeout(testTimeout))

	It("distinguishes what dry runs have shown from what it infers", func(ctx context.Context) {
		user := newUser(plane.Admin.Config)
		tried := newTemplate(unique("tried"))
		plane.CreateTemplate(ctx, tried.DeepCopy())
		for range 5 {
			name := unique("tried-ns")
			created := user.run(ctx, "create", name, "--wait", "--template="+tried.Name)
			DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
			Expect(created.code).To(BeZero(), created.stderr)
		}
		tried.Spec.Variables[0].Expression = "8"
		changed := user.run(ctx, "template", "diff", "-f", writeTemplate(user, tried))
		Expect(changed.code).To(BeZero())
		Expect(changed.stdout).To(And(MatchRegexp(`Namespaces +0 +5 +0 +0 +0 +0 +0\n`),
			ContainSubstring("Tried 3 of 5 namespaces by dry run. The result for the rest is inferred from records.")))

		tried.Spec.Objects[0].Template.Raw = []byte(strings.Replace(string(tried.Spec.Objects[0].Template.Raw),
			`"pods":`, `"no spaces":`, 1))
		file := writeTemplate(user, tried)
		failed := user.run(ctx, "template", "diff", "-f", file)
		Expect(failed.code).To(Equal(1))
		Expect(failed.stdout).To(And(MatchRegexp(`Namespaces +0 +0 +0 +0 +0 +0 +3\n`), ContainSubstring("Tried 3 of 5 namespaces"),
			ContainSubstring("Likely to fail, not tried: 2 namespaces"), ContainSubstring("not tried; the object fails in 3 namespaces")))
		all := user.run(ctx, "template", "diff", "-f", file, "--all")
		Expect(all.stdout).To(And(MatchRegexp(`Namespaces +0 +0 +0 +0 +0 +0 +5\n`), ContainSubstring("Tried 5 of 5 namespaces by dry run.\n")))
	}, NodeTimeout(testTimeout))

	It("includes existing objects, namespaces and failures in a comparison", func(ctx context.Context) {
		user := newUser(plane.Admin.Config)
		old := newTemplate(unique("existing"))
		old.Spec.NamespaceSelector = &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{
			"existing": v1alpha1.LabelValue(old.Name),
		}}
		existing := unique("existing-ns")
		Expect(user.run(ctx, "create", existing, "--labels=existing="+old.Name).code).To(BeZero())
		DeferCleanup(func(ctx context.Context) { remove(ctx, existing) })
		file := writeTemplate(user, old)

		excluded := user.run(ctx, "template", "diff", "-f", file)
		Expect(excluded.code).To(BeZero())
		Expect(excluded.stdout).To(And(ContainSubstring("is new"), ContainSubstring("1 selected namespace"),
			MatchRegexp(`Namespaces +0 +0 +0 +0 +0 +0 +0\n`)))

		old.Spec.Scope = v1alpha1.ScopeAllNamespaces
		created := user.run(ctx, "template", "diff", "-f", writeTemplate(user, old))
		Expect(created.code).To(BeZero())
		Expect(created.stdout).To(And(MatchRegexp(`Namespaces +0 +0 +0 +1 +0 +0 +0\n`), ContainSubstring("+ ConfigMap settings")))

		old.Spec.Parameters[0].Default, old.Spec.Parameters[0].Required = nil, true
		failed := user.run(ctx, "template", "diff", "-f", writeTemplate(user, old))
		Expect(failed.code).To(Equal(1))
		Expect(failed.stdout).To(And(MatchRegexp(`Namespaces +0 +0 +0 +0 +0 +0 +1\n`), ContainSubstring("the parameter size is required")))

		old.Spec.Parameters[0].Required = false
		old.Spec.Sync.AdoptionPolicy = v1alpha1.AdoptNever
		makeConfigMap(ctx, admin, existing, "settings")
		adopted := user.run(ctx, "template", "diff", "-f", writeTemplate(user, old))
		Expect(adopted.code).To(Equal(1))
		Expect(adopted.stdout).To(And(MatchRegexp(`Objects +0 +0 +0 +1 +0 +0 +1\n`), ContainSubstring("exists already")))
	}, NodeTimeout(testTimeout))

	It("compares what the operator keeps, replaces and adopts", func(ctx context.Context) {
		user := newUser(plane.Admin.Config)
		before := newTemplate(unique("kept"))
		immutable := func(pods string) {
			before.Spec.Objects[0].Template.Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"immutable":true,` +
				`"data":{"pods":"` + pods + `"}}`)
		}
		immutable("4")
		plane.CreateTemplate(ctx, before.DeepCopy())
		namespace := unique("kept-ns")
		created := user.run(ctx, "create", namespace, "--wait", "--template="+before.Name)
		DeferCleanup(func(ctx context.Context) { remove(ctx, namespace) })
		Expect(created.code).To(BeZero(), created.stderr)

		By("replacing an object that cannot be changed")
		immutable("8")
		compared := user.run(ctx, "template", "diff", "-f", writeTemplate(user, before))
		Expect(compared.code).To(BeZero(), compared.stdout)
		Expect(compared.stdout).To(And(MatchRegexp(`Objects +1 +0 +1 +0 +0 +0 +0\n`), ContainSubstring("and creates it again")))
		applied := &v1alpha1.NamespaceTemplate{}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(before), applied)).To(Succeed())
		patch := client.MergeFrom(applied.DeepCopy())
		applied.Spec = before.Spec
		Expect(admin.Patch(ctx, applied, patch)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(dataOf(g, ctx, namespace)).To(HaveKeyWithValue("pods", "8"), "between deletion and creation, it does not exist")
		}).WithContext(ctx).Should(Succeed())
		Expect(admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "notes"}, &corev1.ConfigMap{})).To(Succeed())

		By("adopting an object with the keys of an earlier namespace, if it has the same content")
		existing := makeNamespace(ctx, admin, "restored")
		restored := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: existing.Name, Name: "settings",
				Annotations: map[string]string{v1alpha1.AnnotationNamespaceUID: "earlier"}},
			Data: map[string]string{"pods": "4"},
		}
		admin.Creates(ctx, restored)
		adopting := newTemplate(unique("adopting"))
		adopting.Spec.Scope = v1alpha1.ScopeAllNamespaces
		adopting.Spec.NamespaceSelector = &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"test": "restored"}}
		file := writeTemplate(user, adopting)
		compared = user.run(ctx, "template", "diff", "-f", file)
		Expect(compared.code).To(BeZero(), compared.stdout)
		Expect(compared.stdout).To(And(MatchRegexp(`Objects +0 +0 +0 +1 +1 +0 +0\n`), ContainSubstring("adopts it without changing it")))
		restored.Data["pods"] = "40"
		admin.Updates(ctx, restored)
		compared = user.run(ctx, "template", "diff", "-f", file)
		Expect(compared.code).To(Equal(1))
		Expect(compared.stdout).To(And(MatchRegexp(`Objects +0 +0 +0 +1 +0 +0 +1\n`), ContainSubstring("exists with other values"), ContainSubstring("conflict")))
		adopting.Spec.Sync.AdoptionPolicy = v1alpha1.AdoptAlways
		compared = user.run(ctx, "template", "diff", "-f", writeTemplate(user, adopting))
		Expect(compared.code).To(BeZero())
		Expect(compared.stdout).To(And(MatchRegexp(`Objects +0 +0 +0 +1 +1 +0 +0\n`), ContainSubstring("adopts and changes it"),
			ContainSubstring(`data.pods: "40" -> "4"`)))

		By("naming an adopted object that the template no longer contains")
		adopting.Spec.ObjectRetentionPolicy.WhenRemoved = v1alpha1.RetentionDelete
		plane.CreateTemplate(ctx, adopting.DeepCopy())
		Eventually(func(g Gomega) {
			g.Expect(dataOf(g, ctx, existing.Name)).To(HaveKeyWithValue("pods", "4"))
		}).WithContext(ctx).Should(Succeed())
		renamed := &v1alpha1.NamespaceTemplate{}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(adopting), renamed)).To(Succeed())
		base := renamed.DeepCopy()
		renamed.Spec.Objects[0].Template.Raw = []byte(strings.Replace(string(renamed.Spec.Objects[0].Template.Raw), `"settings"`, `"settings-md"`, 1))
		Expect(admin.Patch(ctx, renamed, client.MergeFrom(base))).To(Succeed())
		Eventually(func(g Gomega) {
			status := user.run(ctx, "template", "status", adopting.Name)
			g.Expect(unwrap(status.stdout)).To(ContainSubstring("No longer contained, but not deleted: ConfigMap settings in " + existing.Name))
			explained := user.run(ctx, "explain", existing.Name)
			g.Expect(explained.code).To(BeZero())
			g.Expect(unwrap(explained.stdout)).To(ContainSubstring("Not deleted: ConfigMap settings, which template " + adopting.Name + " no longer contains"))
		}).WithContext(ctx).Should(Succeed())
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(restored), restored)).To(Succeed(), "an adopted object is not deleted")
	}, NodeTimeout(testTimeout))

	It("lists the templates that a user can choose", func(ctx context.Context) {
		open, restricted := newTemplate(unique("open")), newTemplate(unique("restricted"))
		restricted.Spec.Access = v1alpha1.AccessRestricted
		plane.CreateTemplate(ctx, open.DeepCopy())
		plane.CreateTemplate(ctx, restricted.DeepCopy())
		read := rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"namespacetemplates"}, Verbs: []string{"list"},
		}
		use := rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"namespacetemplates"},
			ResourceNames: []string{restricted.Name}, Verbs: []string{v1alpha1.VerbUse},
		}
		listed := newRestrictedUser(ctx, plane, unique("lister"), read).run(ctx, "template", "list")
		Expect(listed.code).To(BeZero(), listed.stderr)
		Expect(listed.stdout).To(MatchRegexp(open.Name + ` +Open +yes +size +s, l +s +How many pods`))
		Expect(listed.stdout).To(MatchRegexp(restricted.Name + ` +Restricted +no +size`))
		chooser := newRestrictedUser(ctx, plane, unique("chooser"), read, use)
		Expect(chooser.run(ctx, "template", "list").stdout).To(MatchRegexp(restricted.Name + ` +Restricted +yes +size`))
		Expect(chooser.run(ctx, "template", "list", "-o", "json").stdout).To(ContainSubstring(`"usable": true`))
	}, NodeTimeout(testTimeout))

	It("manages the rollout of a template, and rolls it back", func(ctx context.Context) {
		user := newUser(plane.Admin.Config)
		rollout := func(arguments ...string) result {
			GinkgoHelper()
			return user.run(ctx, append([]string{"template", "rollout"}, arguments...)...)
		}
		succeed := func(done result, stdout string) {
			GinkgoHelper()
			Expect(done.code).To(BeZero(), done.stderr)
			Expect(done.stdout).To(HaveSuffix(stdout + "\n"))
		}
		rolled := newTemplate(unique("rolled"))
		plane.CreateTemplate(ctx, rolled.DeepCopy())
		name, resource := rolled.Name, "namespacetemplates.nslifecycle.dev/"+rolled.Name
		finished := `NamespaceTemplate "` + name + `" successfully rolled out`
		namespace := unique("rolled-ns")
		Expect(user.run(ctx, "create", namespace, "--wait", "--template="+name).code).To(BeZero())
		DeferCleanup(func(ctx context.Context) { remove(ctx, namespace) })
		succeed(rollout("status", name, "--timeout=60s"), finished)
		Expect(rollout("undo", name).stderr).To(ContainSubstring("no earlier revision"))
		setPods := func(expression string) {
			GinkgoHelper()
			admin.Patches(ctx, rolled, `{"spec":{"variables":[{"name":"pods","expression":"`+expression+`"}]}}`)
		}

		By("pausing")
		succeed(rollout("pause", name), resource+" paused")
		Expect(rollout("pause", name).stderr).To(ContainSubstring("already paused"))
		setPods("8")
		Eventually(func() string { return rollout("history", name).stdout }).WithContext(ctx).
			Should(MatchRegexp(`(?s)1 +[0-9a-f]{12} +\S+ +Current\n2 +[0-9a-f]{12} +\S+ +Latest\n`))
		timedOut := rollout("status", name, "--timeout=8s")
		Expect(timedOut.code).To(Equal(1))
		Expect(timedOut.stderr).To(ContainSubstring("timed out after 8s"))
		Expect(timedOut.stdout).To(And(ContainSubstring("0 of 1 namespaces"), ContainSubstring("paused...")))
		Expect(dataOf(Default, ctx, namespace)).To(HaveKeyWithValue("pods", "4"))

		By("resuming")
		succeed(rollout("resume", name), resource+" resumed")
		Expect(rollout("resume", name).stderr).To(ContainSubstring("is not paused"))
		succeed(rollout("status", name, "--timeout=60s"), finished)
		Expect(dataOf(Default, ctx, namespace)).To(HaveKeyWithValue("pods", "8"))

		By("rolling back")
		Expect(rollout("history", name, "--revision=1").stdout).To(ContainSubstring("expression: 'params.size == ''l'' ? 40 : 4'"))
		Expect(rollout("undo", name, "--to-revision=2").stderr).To(ContainSubstring("already has revision 2"))
		Expect(rollout("undo", name, "--to-revision=3").stderr).To(ContainSubstring("revision 3 of NamespaceTemplate"))
		succeed(rollout("undo", name, "--dry-run=client"), resource+" rolled back to revision 1 (dry run)")
		succeed(rollout("undo", name, "--dry-run=server"), resource+" rolled back to revision 1 (server dry run)")
		Expect(rollout("undo", name, "--to-revision=2").code).To(Equal(1), "a dry run changes nothing")
		succeed(rollout("undo", name), resource+" rolled back to revision 1")
		succeed(rollout("status", name, "--timeout=60s"), finished)
		Expect(dataOf(Default, ctx, namespace)).To(HaveKeyWithValue("pods", "4"))
		Eventually(func() string { return rollout("history", name).stdout }).WithContext(ctx).
			Should(MatchRegexp(`(?s)STATE\n2 +.* <none>\n3 +.* Latest, Current\n`), "the restored revision is the newest")

		By("rolling back a rollout that cannot finish")
		succeed(rollout("pause", name), resource+" paused")
		setPods("16")
		admin.Patches(ctx, rolled, `{"spec":{"metadata":{"annotations":{"example.com/a":"b"}}}}`)
		done := rollout("undo", name)
		Expect(done.stdout).To(ContainSubstring(" rolled back to revision "), done.stderr)
		restored := &v1alpha1.NamespaceTemplate{}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(rolled), restored)).To(Succeed())
		Expect(restored.Spec.Variables[0].Expression).To(ContainSubstring("40 : 4"))
		Expect(restored.Spec.Metadata).To(BeNil())
		succeed(rollout("resume", name), resource+" resumed")
		setPods("invalid")
		Eventually(func(g Gomega) {
			invalid := rollout("status", name, "--watch=false")
			g.Expect(invalid.code).To(Equal(3), invalid.stdout)
			g.Expect(invalid.stderr).To(ContainSubstring("cannot continue (Invalid)"))
		}).WithContext(ctx).Should(Succeed())
		Expect(rollout("undo", name).code).To(BeZero())
		succeed(rollout("status", name, "--timeout=60s"), finished)
		admin.Reads(ctx, rolled)
		Expect(rolled.Spec.Variables[0].Expression).To(ContainSubstring("40 : 4"))

		By("rolling back without permissions")
		reader := newRestrictedUser(ctx, plane, unique("reader"), rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group, internalv1alpha1.GroupVersion.Group},
			Resources: []string{"namespacetemplates", "namespaceinitializersets"},
			Verbs:     []string{"get"},
		})
		forbidden := reader.run(ctx, "template", "rollout", "undo", name)
		Expect(forbidden.code).To(Equal(1))
		Expect(forbidden.stderr).To(ContainSubstring(`cannot list resource "controllerrevisions"`))
		Expect(reader.run(ctx, "template", "rollout", "pause", name).stderr).To(ContainSubstring("cannot patch resource"))
	}, NodeTimeout(testTimeout))

	It("shows why a template is not effective", func(ctx context.Context) {
		user := newUser(plane.Admin.Config)
		broken := newTemplate(unique("broken"))
		broken.Spec.ServiceAccountName = "missing"
		plane.CreateTemplate(ctx, broken.DeepCopy())
		Eventually(func(g Gomega) {
			status := user.run(ctx, "template", "status", broken.Name)
			g.Expect(status.code).To(Equal(3))
			g.Expect(status.stdout).To(MatchRegexp(`Authorized +False`))
		}).WithContext(ctx).Should(Succeed())
		Expect(user.run(ctx, "template", "status", "missing").stderr).To(ContainSubstring(`"missing" not found`))
	}, NodeTimeout(testTimeout))

	It("fails at once if waiting cannot help, and shows whole messages", func(ctx context.Context) {
		account := unique("limited")
		admin.Creates(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.SystemNamespace, Name: account},
		})
		plane.Bind(ctx, account, []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbProvision}},
			{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: []string{"create", "patch", "delete"}},
		}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: controlplane.SystemNamespace, Name: account})
		plane.AllowImpersonation(ctx, account)
		var rules []rbacv1.PolicyRule
		for i := range 9 {
			rules = append(rules, rbacv1.PolicyRule{
				APIGroups: []string{fmt.Sprintf("group-%d.example.com", i)}, Resources: []string{"widgets"}, Verbs: []string{"get", "list"},
			})
		}
		admin.Creates(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account + "-granted"}, Rules: rules})
		broken := newTemplate(unique("broken"))
		broken.Spec.ServiceAccountName = account
		broken.Spec.Objects = []v1alpha1.TemplateObject{{Name: "creator", Template: &runtime.RawExtension{Raw: []byte(
			`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"creator"},` +
				`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"` + account + `-granted"},` +
				`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"dana"}]}`)}}}
		plane.CreateTemplate(ctx, broken.DeepCopy())
		creator := newRestrictedUser(ctx, plane, unique("creator"), rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "get"},
		})
		name, started := unique("failing"), time.Now()
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		created := creator.run(ctx, "create", name, "--template="+broken.Name, "--wait")
		Expect(time.Since(started)).To(BeNumerically("<", time.Minute), "the default of --timeout is 5 minutes")
		Expect(created.code).To(Equal(3), created.stderr)
		clause := `ServiceAccount "` + account + `" is attempting to grant RBAC permissions not currently held: {APIGroups:["group-0.example.com"]`
		Expect(created.stderr).To(And(ContainSubstring(clause), ContainSubstring("grant the ServiceAccount of the template what is missing"),
			ContainSubstring("kubectl nslifecycle delete "+name), Not(ContainSubstring("groups="))))
		Expect(get(ctx, admin, name).Labels).To(HaveKey(v1alpha1.LabelInitializing))
		Eventually(func(g Gomega) {
			status := newUser(plane.Admin.Config).run(ctx, "template", "status", broken.Name)
			g.Expect(status.code).To(Equal(3))
			g.Expect(strings.Join(strings.Fields(status.stdout), " ")).To(And(ContainSubstring("namespace/"+name+", object creator: Forbidden"),
				ContainSubstring(clause), MatchRegexp(`and \d other rules\. To fix it, grant the ServiceAccount`)))
		}).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(testTimeout))

	It("explains that the cluster has no templates", func(ctx context.Context) {
		for _, arguments := range [][]string{{"list"}, {"status", "team"}, {"render", "team", "--namespace=shop"}} {
			done := newUser(bare.Admin.Config).run(ctx, append([]string{"template"}, arguments...)...)
			Expect(done.code).To(Equal(1))
			Expect(done.stderr).To(ContainSubstring("does not serve NamespaceTemplates"))
		}
	}, NodeTimeout(testTimeout))

	It("renders templates without a cluster", func(ctx context.Context) {
		offline := &user{home: GinkgoT().TempDir()} // It has no kubeconfig.
		file := writeTemplate(offline, newTemplate("team"))
		rendered := offline.run(ctx, "template", "render", "-f", file, "--namespace=shop", "-p", "size=l")
		Expect(rendered.code).To(BeZero(), rendered.stderr)
		Expect(rendered.stdout).To(ContainSubstring(`pods: "40"`))
	}, NodeTimeout(testTimeout))
})

// newTemplate returns a template with two ConfigMaps, which namespaces choose by name.
func newTemplate(name string) *v1alpha1.NamespaceTemplate {
	GinkgoHelper()
	made := &v1alpha1.NamespaceTemplate{}
	Expect(yaml.UnmarshalStrict([]byte(`
apiVersion: nslifecycle.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: `+name+`}
spec:
  serviceAccountName: `+provisioner+`
  parameters:
  - {name: size, enum: [s, l], default: s, description: How many pods the namespace can contain}
  variables:
  - {name: pods, expression: "params.size == 'l' ? 40 : 4"}
  objects:
  - name: settings
    template: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"pods": "${string(variables.pods)}"}}
  - name: notes
    template: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "notes"}, "data": {"namespace": "${ns.name}"}}
`), made)).To(Succeed())
	return made
}

// writeTemplate writes a template to a file of the user.
func writeTemplate(of *user, object *v1alpha1.NamespaceTemplate) string {
	GinkgoHelper()
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": object.APIVersion, "kind": object.Kind, "metadata": map[string]any{"name": object.Name}, "spec": object.Spec,
	})
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(of.home, "template.yaml")
	Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
	return file
}

// unwrap joins the lines of wrapped messages.
func unwrap(text string) string {
	return strings.Join(strings.Fields(text), " ")
}

// dataOf returns the data of the object settings in a namespace.
func dataOf(g Gomega, ctx context.Context, namespace string) map[string]string {
	GinkgoHelper()
	object := &corev1.ConfigMap{}
	g.Expect(admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "settings"}, object)).To(Succeed())
	return object.Data
}

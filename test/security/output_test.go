// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework/observer"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	hostileFinalizer = "removed.test.example.com/hold"
	// hostileText contains control sequences, a character that reverses the subsequent text, and a
	// line that looks like an error message of the plugin.
	hostileText = "a\u009b2J\x1b]0;PWN\x07\u202e\ufeff\u2028\r\nerror: PWN: kubectl touch PWN"
)

// hostileNames are names that the API server accepts for RoleBindings.
var hostileNames = []string{
	`x\'; touch PWN #`, `$'\r\'; touch PWN #'`, "$(touch PWN)", "b\nerror: PWN\nkubectl touch PWN", "c\x07\u009b2JPWN",
	"d\u202ePWN", "e\x1b]0;PWN\x07", "f\ufeff\u2028\u2069\u200bPWN", "g, secrets PWN", "h  secrets  PWN",
}

// An attacker who can create objects in one namespace chooses the names of the objects and the
// messages of their conditions and Events. An administrator reads these names and messages.
func describeHostileText() {
	var plugin, kubeconfig string

	run := func(ctx context.Context, args ...string) string {
		GinkgoHelper()
		command := osexec.CommandContext(ctx, plugin, append([]string{"--kubeconfig", kubeconfig}, args...)...)
		output, err := command.CombinedOutput()
		var exit *osexec.ExitError
		if err != nil && !errors.As(err, &exit) {
			Expect(err).NotTo(HaveOccurred())
		}
		GinkgoWriter.Printf("$ nslifecycle %s\n%q\n", strings.Join(args, " "), output)
		return string(output)
	}

	BeforeAll(func(ctx context.Context) {
		plugin, kubeconfig = filepath.Join(cluster.Dir, "kubectl-nslifecycle"), filepath.Join(cluster.Dir, "admin.kubeconfig")
		Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.PluginProgram, plugin)).To(Succeed())
		Expect(controlplane.WriteKubeconfig(kubeconfig, cluster.Admin.Config)).To(Succeed())
	})

	It("is escaped in terminals, conditions and Events if a deletion is stuck", func(ctx context.Context) {
		namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("hostile")).Name
		makeHostileBindings(ctx, namespace, hostileFinalizer)
		makeHostileEvents(ctx, namespace)
		denyDeletion(ctx, namespace)
		cluster.Admin.Deletes(ctx, wrappers.MakeNamespace(namespace).Obj())

		Eventually(func(g Gomega) {
			now := cluster.GetNamespace(g, ctx, namespace)
			for _, conditionType := range []corev1.NamespaceConditionType{
				v1alpha1.ConditionDeletionBlocked, corev1.NamespaceDeletionContentFailure, corev1.NamespaceFinalizersRemaining,
			} {
				condition := nsobject.FindCondition(now, conditionType)
				g.Expect(condition).NotTo(BeNil())
				g.Expect(condition.Status).To(Equal(corev1.ConditionTrue), string(conditionType))
			}
			failure := nsobject.FindCondition(now, corev1.NamespaceDeletionContentFailure)
			g.Expect(failure.Message).To(ContainSubstring("PWN"), "the message must contain the attacker's text")
			g.Expect(eventsAbout(g, ctx, now)).To(ContainElement(ContainSubstring("PWN")))
		}).WithContext(ctx).Should(Succeed())

		Consistently(func(g Gomega) {
			now := cluster.GetNamespace(g, ctx, namespace)
			for _, condition := range now.Status.Conditions {
				g.Expect(condition.Message).To(beOneLine(), string(condition.Type))
			}
			for _, text := range eventsAbout(g, ctx, now) {
				g.Expect(text).To(beOneLine())
			}
		}).WithContext(ctx).Should(Succeed())

		commands := [][]string{
			{"list"}, {"list", "-o", "wide"}, {"list", "-o", "json"}, {"list", "-o", "yaml"},
			{"explain", namespace, "--progress-deadline=1s"}, {"explain", "--all", "--progress-deadline=1s"},
			{"explain", namespace, "--progress-deadline=1s", "-o", "json"}, {"explain", namespace, "--progress-deadline=1s", "-o", "yaml"},
			{"finalize", namespace}, {"finalize", namespace, "-o", "yaml"},
			{"finalize", namespace, "--finalizer=" + hostileFinalizer},
			{"finalize", namespace, "--finalizer=" + hostileFinalizer, "--resource=rolebindings", "-o", "json"},
			{"finalize", namespace, "--namespace-finalizer=kubernetes", "--orphan", "--dry-run"},
			{"delete", namespace, "--timeout=4s", "--progress-deadline=1s"},
			{"finalize", namespace, "--finalizer=PWN\u202e\x1b[2J\nerror: PWN"}, {"explain", hostileText},
			{"explain", namespace, "-v=9"},
		}
		for _, command := range commands {
			expectHarmless(run(ctx, command...), strings.Join(command, " "))
		}
		Expect(run(ctx, "explain", namespace, "--progress-deadline=1s")).To(ContainSubstring("pasted into a shell"))
	}, SpecTimeout(10*time.Minute))

	It("is escaped in terminals during an initialization", func(ctx context.Context) {
		cluster.Register(ctx, "hostile", "hostile.test.example.com")
		name := framework.Unique("hostile")
		namespace := wrappers.MakeNamespace(name).Obj()
		Expect(cluster.Impersonate("PWN\u202e\u009b2J\ufeff", "system:masters").Create(ctx, namespace)).To(Succeed())
		namespace.Status.Conditions = []corev1.NamespaceCondition{{
			Type: "hostile.test.example.com/Initialized", Status: corev1.ConditionFalse, Reason: "Working", Message: hostileText,
		}}
		Eventually(func() error {
			patch := client.RawPatch("application/strategic-merge-patch+json", mustEncode(map[string]any{
				"status": map[string]any{"conditions": namespace.Status.Conditions}}))
			return cluster.Initializer.Status().Patch(ctx, namespace.DeepCopy(), patch)
		}).WithContext(ctx).Should(Succeed())

		for _, command := range [][]string{
			{"list", "-o", "wide"}, {"list", "-o", "yaml"}, {"explain", name, "--progress-deadline=1s"},
			{"explain", name, "--progress-deadline=1s", "-o", "json"},
			{"create", framework.Unique("hostile"), "--annotations=a=" + "\u202e\u009b2J", "-o", "yaml"},
		} {
			expectHarmless(run(ctx, command...), strings.Join(command, " "))
		}

		By("reporting a failure with hostile text")
		result := mustEncode(map[string]any{"status": "Failure", "reason": "Broken", "message": hostileText})
		Eventually(func() error {
			return cluster.Initializer.Patch(ctx, wrappers.MakeNamespace(name).Obj(),
				framework.MergePatch(string(mustEncode(map[string]any{"metadata": map[string]any{
					"finalizers":  []string{hostileFinalizer},
					"annotations": map[string]string{v1alpha1.AnnotationInitializationResult: string(result)},
				}}))))
		}).WithContext(ctx).Should(Succeed())
		Eventually(func(g Gomega) {
			now := cluster.GetNamespace(g, ctx, name)
			condition := nsobject.FindCondition(now, v1alpha1.ConditionInitializing)
			g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonFailed))
			g.Expect(condition.Message).To(And(ContainSubstring("PWN"), beOneLine()))
			g.Expect(eventsAbout(g, ctx, now)).To(ContainElement(And(ContainSubstring("PWN"), beOneLine())))
		}).WithContext(ctx).Should(Succeed())
		expectHarmless(run(ctx, "list", "-o", "wide"), "list")
		Expect(cluster.Admin.Patch(ctx, wrappers.MakeNamespace(name).Obj(), withoutFinalizers)).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("is escaped in terminals if objects are orphaned", func(ctx context.Context) {
		namespace := framework.CreateNamespace(ctx, cluster.Admin, framework.Unique("hostile"))
		makeHostileBindings(ctx, namespace.Name, hostileFinalizer)
		cluster.Admin.Deletes(ctx, namespace)
		framework.SetNamespaceFinalizers(ctx, cluster.Admin, namespace.Name)
		for _, command := range [][]string{
			{"orphans"}, {"orphans", "--no-headers", "-o", "wide"}, {"orphans", "-o", "json"}, {"orphans", "-o", "yaml"},
		} {
			output := run(ctx, command...)
			Expect(output).To(ContainSubstring("PWN"))
			expectHarmless(output, strings.Join(command, " "))
		}
		rows, _, _ := strings.Cut(run(ctx, "orphans", "--no-headers"), "To delete")
		Expect(strings.Count(rows, "\n")).To(Equal(len(hostileNames)), "one row for each object")
		Expect(cluster.Observation.CollectViolations(ctx)).To(And(
			HaveLen(len(hostileNames)), HaveEach(HaveField("Invariant", observer.OrphanedObject))))
	}, SpecTimeout(5*time.Minute))

	It("is escaped in the commands for templates", func(ctx context.Context) {
		hostileTemplates(ctx, run)
	}, SpecTimeout(5*time.Minute))
}

// makeHostileBindings creates a RoleBinding for each hostile name.
func makeHostileBindings(ctx context.Context, namespace string, finalizers ...string) {
	GinkgoHelper()
	for _, name := range hostileNames {
		cluster.Admin.Creates(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, Finalizers: finalizers, Annotations: map[string]string{"a": hostileText},
			},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		})
	}
	DeferCleanup(func(ctx context.Context) {
		// An object cannot be patched after its namespace is deleted.
		if err := cluster.Admin.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); apierrors.IsNotFound(err) {
			return
		}
		var list rbacv1.RoleBindingList
		Expect(cluster.Admin.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
		for i := range list.Items {
			Expect(client.IgnoreNotFound(cluster.Admin.Patch(ctx, &list.Items[i], withoutFinalizers))).To(Succeed())
		}
	})
}

// makeHostileEvents creates Events about the RoleBindings. Their messages look like an error about
// a missing Secret.
func makeHostileEvents(ctx context.Context, namespace string) {
	GinkgoHelper()
	for i, name := range hostileNames {
		cluster.Admin.Creates(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("hostile-%d", i)},
			InvolvedObject: corev1.ObjectReference{
				APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding", Namespace: namespace, Name: name,
			},
			Type: corev1.EventTypeWarning, Reason: "PWN\u202e\u009b2J", LastTimestamp: metav1.Now(),
			Message: hostileText + ` secret "` + hostileText + `" not found`,
		})
	}
}

// denyDeletion makes the API server deny the deletion of a ConfigMap with a message that the
// attacker chooses.
func denyDeletion(ctx context.Context, namespace string) {
	GinkgoHelper()
	configMap := wrappers.MakeConfigMap(namespace, "protected")
	cluster.Admin.Creates(ctx, configMap)
	framework.DenyByPolicy(ctx, cluster.Admin, framework.RequestsFor("", "configmaps", admissionv1.Delete),
		fmt.Sprintf("request.namespace == %q", namespace), strings.NewReplacer("\r", "", "\n", "").Replace(hostileText))
	Eventually(func() bool {
		return apierrors.IsInvalid(cluster.Admin.Delete(ctx, configMap.DeepCopy(), client.DryRunAll))
	}).WithContext(ctx).Should(BeTrue())
}

// expectHarmless checks that no line in the output of a command contains characters that a terminal
// interprets, looks like an error, or suggests a command chosen by the attacker.
func expectHarmless(output, command string) {
	GinkgoHelper()
	for line := range strings.Lines(output) {
		line = strings.NewReplacer("\n", "", "\t", "").Replace(line)
		Expect(line).To(beOneLine(), command)
		text := strings.TrimLeft(line, " │├└─")
		Expect(strings.HasPrefix(text, "kubectl ") && strings.Contains(text, "PWN")).To(BeFalse(), "%s: %s", command, line)
		Expect(line).NotTo(HavePrefix("error: PWN"), command)
	}
}

// beOneLine matches text without line breaks and other characters that a terminal interprets or
// hides.
func beOneLine() OmegaMatcher {
	return Satisfy(func(text string) bool {
		return utf8.ValidString(text) && !strings.ContainsFunc(text, func(char rune) bool {
			return !unicode.IsPrint(char) || unicode.Is(unicode.Variation_Selector, char)
		})
	})
}

// eventsAbout returns the text fields of the Events that the operator recorded about a namespace.
func eventsAbout(g Gomega, ctx context.Context, namespace *corev1.Namespace) []string {
	var list eventsv1.EventList
	g.Expect(cluster.Admin.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
	var texts []string
	for _, event := range list.Items {
		if event.Regarding.UID == namespace.UID {
			texts = append(texts, event.Note+event.Reason+event.Action+ptr.Deref(event.Related, corev1.ObjectReference{}).Name)
		}
	}
	return texts
}

const (
	// hostileUser is the name of a user who creates namespaces.
	hostileUser = "PWN\u202e\u009b2J\ufeff"
	// lineBreaks are characters that JSON permits within strings, and YAML replaces.
	lineBreaks = "\u0085\u2028\u2029\x7f\u0080a"
)

// makeHostileTemplate returns a template whose objects contain text of its author and of the creators of
// namespaces.
func makeHostileTemplate(name, account string) *v1alpha1.NamespaceTemplate {
	GinkgoHelper()
	object := func(name string, manifest map[string]any) v1alpha1.TemplateObject {
		return v1alpha1.TemplateObject{Name: name, Template: &runtime.RawExtension{Raw: mustEncode(manifest)}}
	}
	return &v1alpha1.NamespaceTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NamespaceTemplate"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"a": hostileText}},
		Spec: v1alpha1.NamespaceTemplateSpec{
			ServiceAccountName: account,
			Initialization:     v1alpha1.TemplateInitialization{WaitPolicy: v1alpha1.WaitForApplied}, // The role does not exist.
			Parameters: []v1alpha1.TemplateParameter{
				{Name: "name", Description: hostileText, Default: new(hostileNames[0])},
				{Name: "size", Enum: []string{"PWN\u202e", "s"}, Default: new("s")},
				{Name: "config", Default: new("config"), Description: "PWN: kubectl touch PWN"},
			},
			Objects: []v1alpha1.TemplateObject{
				object("binding", map[string]any{
					"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
					"metadata": map[string]any{"name": "${params.name}"},
					"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "PWN"},
					"subjects": []any{"${subject(requestedBy)}"},
				}),
				object("config", map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap",
					"metadata": map[string]any{"name": "${params.config}", "annotations": map[string]any{"a": "${params.name}"}},
					"data":     map[string]any{"text": hostileText + lineBreaks, "user": "${requestedBy}"},
				}),
			},
		},
	}
}

// hostileTemplates runs the commands for templates in a cluster with hostile templates and namespaces.
func hostileTemplates(ctx context.Context, run func(context.Context, ...string) string) {
	GinkgoHelper()
	template := makeHostileTemplate(framework.Unique("hostile"), "hostile-provisioner")
	cluster.AddTemplateAccount(ctx, template.Spec.ServiceAccountName)
	Eventually(func() error { return cluster.Admin.Create(ctx, template.DeepCopy()) }).WithContext(ctx).Should(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(cluster.Admin.Delete(ctx, template)).To(Succeed()) })
	creator := cluster.Impersonate(hostileUser, "system:masters")
	Eventually(func() error {
		return creator.Create(ctx, wrappers.MakeNamespace("probe").Label(v1alpha1.LabelTemplate, template.Name).Obj(),
			client.DryRunAll)
	}).WithContext(ctx).Should(Succeed())
	initialized := ""
	for _, name := range hostileNames {
		initialized = framework.Unique("hostile")
		creator.Creates(ctx, wrappers.MakeNamespace(initialized).Label(v1alpha1.LabelTemplate, template.Name).
			Annotation(v1alpha1.PrefixParameter+"name", name).Obj())
	}
	invalid := framework.Unique("hostile")
	creator.Creates(ctx, wrappers.MakeNamespace(invalid).Label(v1alpha1.LabelTemplate, template.Name).
		Annotation(v1alpha1.PrefixParameter+"config", hostileText).Obj())
	Eventually(func(g Gomega) {
		now := &v1alpha1.NamespaceTemplate{}
		g.Expect(cluster.Admin.Get(ctx, client.ObjectKeyFromObject(template), now)).To(Succeed())
		g.Expect(now.Status.Failures).NotTo(BeEmpty())
		g.Expect(now.Status.Failures[0].Message).To(And(ContainSubstring("PWN"), beOneLine()))
		for _, condition := range now.Status.Conditions {
			g.Expect(strings.ReplaceAll(condition.Message, "\n", "")).To(beOneLine(), condition.Type)
		}
		waiting := cluster.GetNamespace(g, ctx, invalid)
		g.Expect(framework.ConditionMessage(waiting, v1alpha1.TemplatesInitializer+v1alpha1.ConditionInitializedSuffix)).
			To(And(ContainSubstring("PWN"), beOneLine()))
		g.Expect(eventsAbout(g, ctx, waiting)).To(ContainElement(And(ContainSubstring("PWN"), beOneLine())))
		g.Expect(cluster.GetNamespace(g, ctx, initialized).Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
	}).WithContext(ctx).Should(Succeed())

	By("applying the exact text")
	config := &corev1.ConfigMap{}
	Expect(cluster.Admin.Get(ctx, client.ObjectKey{Namespace: initialized, Name: "config"}, config)).To(Succeed())
	Expect(config.Data).To(Equal(map[string]string{"text": hostileText + lineBreaks, "user": hostileUser}))

	file := writeChanged(template)
	for _, command := range [][]string{
		{"template", "list"}, {"template", "list", "-o", "yaml"}, {"template", "list", template.Name},
		{"template", "status", template.Name}, {"template", "status", template.Name, "-o", "json"},
		{"template", "render", template.Name, "--namespace=" + initialized},
		{"template", "render", template.Name, "--namespace=" + invalid},
		{"template", "render", "-f", file, "--namespace=new", "--requested-by=" + hostileUser,
			"-p", "name=" + hostileNames[3]},
		{"template", "render", "-f", file, "--namespace=new", "-p", "size=" + hostileText},
		{"template", "diff", template.Name, "--all"}, {"template", "diff", "-f", file, "--all"},
		{"template", "diff", "-f", file, "--all", "-o", "yaml"},
		{"template", "rollout", "status", template.Name, "--watch=false"},
		{"template", "rollout", "history", template.Name}, {"template", "rollout", "history", template.Name, "--revision=1"},
		{"template", "rollout", "undo", template.Name}, {"template", "status", hostileText},
		{"create", framework.Unique("hostile"), "--template=" + template.Name, "-p", "size=" + hostileText},
		{"create", framework.Unique("hostile"), "--template=" + template.Name, "-p", "name=" + hostileNames[5], "-o", "yaml"},
		{"create", framework.Unique("hostile"), "--template=" + template.Name, "-p", "config=" + hostileText,
			"--wait", "--timeout=2s"},
		{"create", framework.Unique("hostile"), "--template=" + hostileText},
		{"list", "-o", "wide"}, {"explain", invalid, "--progress-deadline=1s"},
	} {
		expectHarmless(run(ctx, command...), strings.Join(command, " "))
	}
	Expect(run(ctx, "template", "status", template.Name)).To(ContainSubstring("PWN"))
}

// writeChanged writes a template with another revision than the one in the cluster to a file.
func writeChanged(template *v1alpha1.NamespaceTemplate) string {
	GinkgoHelper()
	changed := template.DeepCopy()
	changed.Spec.Parameters[2].Default = new("changed")
	file := filepath.Join(GinkgoT().TempDir(), "template.yaml")
	Expect(os.WriteFile(file, mustEncode(changed), 0o600)).To(Succeed())
	return file
}

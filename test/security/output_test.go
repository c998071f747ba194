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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/manager"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/test/controlplane"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/observer"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
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
var _ = Describe("Hostile text", Ordered, ContinueOnFailure, func() {
	var (
		attacked   *framework.Cluster
		plugin     string
		kubeconfig string
	)

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
		attacked = framework.Start(ctx)
		attacked.StartObserver(ctx)
		attacked.Install(ctx, "default")
		attacked.StartManager(ctx, func(options *manager.Options) { options.DiagnosisProgressDeadline = time.Second })
		plugin, kubeconfig = filepath.Join(attacked.Dir, "kubectl-nslifecycle"), filepath.Join(attacked.Dir, "admin.kubeconfig")
		Expect(controlplane.Build(ctx, controlplane.Root(), controlplane.PluginProgram, plugin)).To(Succeed())
		Expect(controlplane.WriteKubeconfig(kubeconfig, attacked.Admin.Config)).To(Succeed())
	})

	It("is escaped in terminals, conditions and Events if a deletion is stuck", func(ctx context.Context) {
		namespace := framework.CreateNamespace(ctx, attacked.Admin, framework.Unique("hostile")).Name
		makeHostileBindings(ctx, attacked.Admin, namespace, hostileFinalizer)
		makeHostileEvents(ctx, attacked.Admin, namespace)
		denyDeletion(ctx, attacked.Admin, namespace)
		Expect(attacked.Admin.Delete(ctx, wrappers.MakeNamespace(namespace).Obj())).To(Succeed())

		Eventually(func(g Gomega) {
			now := attacked.GetNamespace(g, ctx, namespace)
			for _, conditionType := range []corev1.NamespaceConditionType{
				v1alpha1.ConditionDeletionBlocked, corev1.NamespaceDeletionContentFailure, corev1.NamespaceFinalizersRemaining,
			} {
				condition := nscondition.Find(now, conditionType)
				g.Expect(condition).NotTo(BeNil())
				g.Expect(condition.Status).To(Equal(corev1.ConditionTrue), string(conditionType))
			}
			failure := nscondition.Find(now, corev1.NamespaceDeletionContentFailure)
			g.Expect(failure.Message).To(ContainSubstring("PWN"), "the message must contain the attacker's text")
			g.Expect(eventsAbout(g, ctx, attacked.Admin, now)).To(ContainElement(ContainSubstring("PWN")))
		}).WithContext(ctx).Should(Succeed())

		Consistently(func(g Gomega) {
			now := attacked.GetNamespace(g, ctx, namespace)
			for _, condition := range now.Status.Conditions {
				g.Expect(condition.Message).To(beOneLine(), string(condition.Type))
			}
			for _, text := range eventsAbout(g, ctx, attacked.Admin, now) {
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
			{"backup", namespace}, {"delete", namespace, "--timeout=4s", "--progress-deadline=1s"},
			{"finalize", namespace, "--finalizer=PWN\u202e\x1b[2J\nerror: PWN"}, {"explain", hostileText},
			{"backup", namespace, "-v=9"},
		}
		for _, command := range commands {
			expectHarmless(run(ctx, command...), strings.Join(command, " "))
		}
		Expect(run(ctx, "explain", namespace, "--progress-deadline=1s")).To(ContainSubstring("pasted into a shell"))
	}, SpecTimeout(10*time.Minute))

	It("is escaped in terminals during an initialization", func(ctx context.Context) {
		attacked.Register(ctx, "hostile", "hostile.test.example.com")
		name := framework.Unique("hostile")
		namespace := wrappers.MakeNamespace(name).Obj()
		Expect(attacked.Impersonate("PWN\u202e\u009b2J\ufeff", "system:masters").Create(ctx, namespace)).To(Succeed())
		namespace.Status.Conditions = []corev1.NamespaceCondition{{
			Type: "hostile.test.example.com/Initialized", Status: corev1.ConditionFalse, Reason: "Working", Message: hostileText,
		}}
		Eventually(func() error {
			patch := client.RawPatch("application/strategic-merge-patch+json", mustEncode(map[string]any{
				"status": map[string]any{"conditions": namespace.Status.Conditions}}))
			return attacked.Initializer.Status().Patch(ctx, namespace.DeepCopy(), patch)
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
			return attacked.Initializer.Patch(ctx, wrappers.MakeNamespace(name).Obj(),
				mergePatch(string(mustEncode(map[string]any{"metadata": map[string]any{
					"finalizers":  []string{hostileFinalizer},
					"annotations": map[string]string{v1alpha1.AnnotationInitializationResult: string(result)},
				}}))))
		}).WithContext(ctx).Should(Succeed())
		Eventually(func(g Gomega) {
			now := attacked.GetNamespace(g, ctx, name)
			condition := nscondition.Find(now, v1alpha1.ConditionInitializing)
			g.Expect(condition.Reason).To(Equal(v1alpha1.ReasonFailed))
			g.Expect(condition.Message).To(And(ContainSubstring("PWN"), beOneLine()))
			g.Expect(eventsAbout(g, ctx, attacked.Admin, now)).To(ContainElement(And(ContainSubstring("PWN"), beOneLine())))
		}).WithContext(ctx).Should(Succeed())
		expectHarmless(run(ctx, "list", "-o", "wide"), "list")
		Expect(attacked.Admin.Patch(ctx, wrappers.MakeNamespace(name).Obj(), withoutFinalizers)).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("is escaped in terminals if objects are orphaned", func(ctx context.Context) {
		namespace := framework.CreateNamespace(ctx, attacked.Admin, framework.Unique("hostile"))
		makeHostileBindings(ctx, attacked.Admin, namespace.Name, hostileFinalizer)
		Expect(attacked.Admin.Delete(ctx, namespace)).To(Succeed())
		Eventually(func(g Gomega) {
			now := attacked.GetNamespace(g, ctx, namespace.Name)
			now.Spec.Finalizers = nil
			g.Expect(attacked.Admin.SubResource("finalize").Update(ctx, now)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
		for _, command := range [][]string{
			{"orphans"}, {"orphans", "--no-headers", "-o", "wide"}, {"orphans", "-o", "json"}, {"orphans", "-o", "yaml"},
			{"orphans", "--delete", "--yes"},
		} {
			output := run(ctx, command...)
			Expect(output).To(ContainSubstring("PWN"))
			expectHarmless(output, strings.Join(command, " "))
		}
		rows := strings.Split(strings.TrimSpace(run(ctx, "orphans", "--no-headers")), "\n")
		Expect(rows).To(HaveLen(len(hostileNames)), "one row for each object")
		Expect(attacked.Observation.CollectViolations(ctx)).To(And(
			HaveLen(len(hostileNames)), HaveEach(HaveField("Invariant", observer.OrphanedObject))))
	}, SpecTimeout(5*time.Minute))

	It("is escaped in the commands for templates", func(ctx context.Context) {
		hostileTemplates(ctx, attacked, run)
	}, SpecTimeout(5*time.Minute))

	It("is escaped in a backup and restored from the backup", func(ctx context.Context) {
		namespace := framework.CreateNamespace(ctx, attacked.Admin, framework.Unique("hostile"))
		makeHostileBindings(ctx, attacked.Admin, namespace.Name)
		saved := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace.Name, Name: "saved", Annotations: map[string]string{"a": hostileText},
			},
			Data: map[string]string{"text": hostileText + "\u0085\x7f\n---\n\U000e0041\U0001f600\u00a0\ufe0f", "plain": "a\nb\n"},
		}
		Expect(attacked.Admin.Create(ctx, saved)).To(Succeed())
		backup := filepath.Join(attacked.Dir, "backup.yaml")
		expectHarmless(run(ctx, "backup", namespace.Name, "-f", backup), "backup")
		text, err := os.ReadFile(backup)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.ReplaceAll(string(text), "\n", "")).To(beOneLine())

		Expect(attacked.Admin.Delete(ctx, saved.DeepCopy())).To(Succeed())
		Expect(attacked.Admin.DeleteAllOf(ctx, &rbacv1.RoleBinding{}, client.InNamespace(namespace.Name))).To(Succeed())
		// Do not use server-side apply: kubectl sends the text unescaped, and the API server parses
		// the body as YAML.
		output, err := attacked.Kubectl(ctx, attacked.Admin.Config, "apply", "-f", backup)
		Expect(err).NotTo(HaveOccurred(), output)
		var restored corev1.ConfigMap
		Expect(attacked.Admin.Get(ctx, client.ObjectKeyFromObject(saved), &restored)).To(Succeed())
		Expect(restored.Data).To(Equal(saved.Data))
		Expect(restored.Annotations).To(HaveKeyWithValue("a", hostileText))
		var bindings rbacv1.RoleBindingList
		Expect(attacked.Admin.List(ctx, &bindings, client.InNamespace(namespace.Name))).To(Succeed())
		var names []string
		for i := range bindings.Items {
			names = append(names, bindings.Items[i].Name)
		}
		Expect(names).To(ConsistOf(hostileNames))
	}, SpecTimeout(5*time.Minute))
})

// makeHostileBindings creates a RoleBinding for each hostile name.
func makeHostileBindings(ctx context.Context, c client.Client, namespace string, finalizers ...string) {
	GinkgoHelper()
	for _, name := range hostileNames {
		Expect(c.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, Finalizers: finalizers, Annotations: map[string]string{"a": hostileText},
			},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		})).To(Succeed())
	}
	DeferCleanup(func(ctx context.Context) {
		// An object cannot be patched after its namespace is deleted.
		if err := c.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); apierrors.IsNotFound(err) {
			return
		}
		var list rbacv1.RoleBindingList
		Expect(c.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
		for i := range list.Items {
			Expect(client.IgnoreNotFound(c.Patch(ctx, &list.Items[i], withoutFinalizers))).To(Succeed())
		}
	})
}

// makeHostileEvents creates Events about the RoleBindings. Their messages look like an error about
// a missing Secret.
func makeHostileEvents(ctx context.Context, c client.Client, namespace string) {
	GinkgoHelper()
	for i, name := range hostileNames {
		Expect(c.Create(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("hostile-%d", i)},
			InvolvedObject: corev1.ObjectReference{
				APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding", Namespace: namespace, Name: name,
			},
			Type: corev1.EventTypeWarning, Reason: "PWN\u202e\u009b2J", LastTimestamp: metav1.Now(),
			Message: hostileText + ` secret "` + hostileText + `" not found`,
		})).To(Succeed())
	}
}

// denyDeletion makes the API server deny the deletion of a ConfigMap with a message that the
// attacker chooses.
func denyDeletion(ctx context.Context, c client.Client, namespace string) {
	GinkgoHelper()
	configMap := wrappers.MakeConfigMap(namespace, "protected")
	Expect(c.Create(ctx, configMap)).To(Succeed())
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Delete},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: "false", Message: strings.NewReplacer("\r", "", "\n", "").Replace(hostileText),
			}},
			FailurePolicy: ptr.To(admissionv1.Fail),
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: namespace},
			}},
		},
	}
	for _, object := range []client.Object{policy, binding} {
		Expect(c.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, object)).To(Succeed()) })
	}
	Eventually(func() bool {
		return apierrors.IsInvalid(c.Delete(ctx, configMap.DeepCopy(), client.DryRunAll))
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
func eventsAbout(g Gomega, ctx context.Context, c client.Client, namespace *corev1.Namespace) []string {
	var list eventsv1.EventList
	g.Expect(c.List(ctx, &list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
	var texts []string
	for _, event := range list.Items {
		if event.Regarding.UID == namespace.UID {
			texts = append(texts, event.Note+event.Reason+event.Action+ptr.Deref(event.Related, corev1.ObjectReference{}).Name)
		}
	}
	return texts
}

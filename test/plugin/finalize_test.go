// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// testNamespaceFinalizer is a namespace finalizer without an owner.
const testNamespaceFinalizer = "test.example.com/agent"

// The diagnosis of a namespace has no findings before the progress deadline of 30 seconds. To avoid
// waiting for the deadline, most specs use --ignore-active-owner.
var _ = Describe("finalize", func() {
	var (
		adminUser *user
		dir       string
	)

	BeforeEach(func() {
		adminUser = newUser(bare.Admin.Config)
		dir = GinkgoT().TempDir()
	})

	// finalize runs the finalize command.
	finalize := func(ctx context.Context, namespace *corev1.Namespace, flags ...string) result {
		GinkgoHelper()
		return adminUser.run(ctx, append([]string{"finalize", namespace.Name}, flags...)...)
	}

	// expectRefusal runs the command with --dry-run=false and verifies that it refuses the removal for
	// the given reason and changes nothing.
	expectRefusal := func(ctx context.Context, namespace *corev1.Namespace, reason string, flags ...string) {
		GinkgoHelper()
		before := snapshot(ctx, namespace.Name)
		refused := finalize(ctx, namespace, append(flags, "--dry-run=false", "--confirm="+namespace.Name)...)
		Expect(refused.code).To(Equal(1))
		Expect(refused.stderr).To(And(
			ContainSubstring("error: refused"), ContainSubstring(reason)))
		Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
	}

	Describe("dry run", func() {
		It("is the default, prints the plan and changes nothing", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			before := snapshot(ctx, namespace.Name)

			listed := finalize(ctx, namespace, "--context=nslifecycle")
			Expect(listed.code).To(Equal(0))
			Expect(listed.stdout).To(And(
				ContainSubstring("kubectl nslifecycle --context=nslifecycle finalize %s --finalizer=%s\n", namespace.Name, testFinalizer),
				ContainSubstring("kubectl nslifecycle --context=nslifecycle finalize %s --metadata-finalizer=%s\n", namespace.Name, testFinalizer),
				ContainSubstring("kubectl nslifecycle --context=nslifecycle finalize %s --namespace-finalizer=%s\n", namespace.Name, testNamespaceFinalizer),
				ContainSubstring("kubectl nslifecycle --context=nslifecycle finalize %s --namespace-finalizer=kubernetes --orphan\n", namespace.Name),
			))

			for _, flags := range [][]string{
				{"--finalizer=" + testFinalizer},
				{"--metadata-finalizer=" + testFinalizer},
				{"--namespace-finalizer=" + testNamespaceFinalizer},
				{"--namespace-finalizer=kubernetes", "--orphan"},
			} {
				printed := finalize(ctx, namespace, append(flags, "--ignore-active-owner", "--confirm="+namespace.Name)...)
				Expect(printed.code).To(Equal(0))
				Expect(printed.stdout).To(ContainSubstring("Remove: "))
				Expect(printed.stderr).To(And(ContainSubstring("dry run"), ContainSubstring("--dry-run=false")))
			}
			Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
		})

		It("prints the plan as JSON", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			printed := finalize(ctx, namespace, "--namespace-finalizer=kubernetes", "-o", "json")
			Expect(printed.code).To(Equal(0), "a preview, with what the command requires")
			var plan struct {
				APIVersion, Kind, Namespace string
				Removal                     map[string]string
				Orphans                     []struct{ Resource, Name, UID string }
				Objections                  []string
				DryRun                      bool
			}
			Expect(json.Unmarshal([]byte(printed.stdout), &plan)).To(Succeed())
			Expect(plan.APIVersion).To(Equal("cli.nslifecycle.dev/v1alpha1"))
			Expect(plan.Kind).To(Equal("FinalizePlan"))
			Expect(plan.Namespace).To(Equal(namespace.Name))
			Expect(plan.Removal).To(Equal(map[string]string{"namespaceFinalizer": "kubernetes"}))
			Expect(plan.DryRun).To(BeTrue())
			var names []string
			for _, orphan := range plan.Orphans {
				names = append(names, orphan.Resource+"/"+orphan.Name)
			}
			Expect(names).To(Equal([]string{"configmaps/held", "configmaps/kept", "configmaps/second", "secrets/kept"}))
			Expect(plan.Objections).To(ContainElement(ContainSubstring("--orphan ")))
		})
	})

	Describe("refuses the removal", func() {
		It("if the namespace is not terminating or does not exist", func(ctx context.Context) {
			expectRefusal(ctx, makeNamespace(ctx, bareAdmin, "active"), "is not being deleted",
				"--namespace-finalizer=kubernetes", "--orphan", "--ignore-active-owner")
			missing := adminUser.run(ctx, "finalize", "missing", "--namespace-finalizer=kubernetes")
			Expect(missing).To(Equal(result{code: 1, stderr: "Error from server (NotFound): namespaces \"missing\" not found\n"}))
		})

		It("if the namespace is a system namespace", func(ctx context.Context) {
			for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
				namespace := &corev1.Namespace{}
				Expect(bareAdmin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
				expectRefusal(ctx, namespace, "system namespace", "--namespace-finalizer=kubernetes", "--orphan", "--ignore-active-owner")
			}
		})

		It("if the finalizer does not exist", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			expectRefusal(ctx, namespace, "does not have the namespace finalizer example.com/other", "--namespace-finalizer=example.com/other")
			expectRefusal(ctx, namespace, "does not have the finalizer "+testNamespaceFinalizer, "--metadata-finalizer="+testNamespaceFinalizer)
			expectRefusal(ctx, namespace, "has the finalizer example.com/other", "--finalizer=example.com/other")
			expectRefusal(ctx, namespace, "--resource=secrets", "--finalizer="+testFinalizer, "--resource=secrets")
		})

		It("if objects would be orphaned and --orphan is not set", func(ctx context.Context) {
			expectRefusal(ctx, makeStuckNamespace(ctx), "4 objects would be orphaned",
				"--namespace-finalizer=kubernetes", "--ignore-active-owner")
		})

		It("if the deletion is not known to be blocked", func(ctx context.Context) {
			expectRefusal(ctx, makeStuckNamespace(ctx), "not known to be blocked", "--namespace-finalizer="+testNamespaceFinalizer)
		})

		It("if the owner of the finalizer might be active", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			expectRefusal(ctx, namespace, "--ignore-active-owner", "--finalizer="+testFinalizer)
		})

		It("if some objects cannot be read", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			// This user cannot read Secrets.
			adminUser = newRestrictedUser(ctx, bare, unique("limited"), append(rulesToRead("configmaps"),
				rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces/finalize"}, Verbs: []string{"update"}})...)
			expectRefusal(ctx, namespace, "--allow-unread", "--namespace-finalizer="+testNamespaceFinalizer, "--ignore-active-owner")
			expectRefusal(ctx, namespace, "secrets, serviceaccounts", "--namespace-finalizer="+testNamespaceFinalizer, "--ignore-active-owner")
		})

		It("if the user lacks a permission, before the confirmation", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			adminUser = newRestrictedUser(ctx, bare, unique("reader"), rulesToRead("*")...)
			for flag, permission := range map[string]string{
				"--namespace-finalizer=" + testNamespaceFinalizer: `cannot update resource "namespaces/finalize"`,
				"--metadata-finalizer=" + testFinalizer:           `cannot patch resource "namespaces"`,
				"--finalizer=" + testFinalizer:                    `cannot patch resource "configmaps"`,
			} {
				expectRefusal(ctx, namespace, permission, flag, "--ignore-active-owner", "--allow-unread")
				expectRefusal(ctx, namespace, "cluster administrator", flag, "--ignore-active-owner", "--allow-unread")
			}
		})

		It("if an admission policy denies the removal", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			denyUpdates(ctx, namespace.Name)
			Eventually(func(g Gomega) {
				printed := finalize(ctx, namespace, "--finalizer="+testFinalizer, "--ignore-active-owner")
				g.Expect(printed.code).To(Equal(1))
				g.Expect(printed.stderr).To(ContainSubstring("updates are denied"))
			}).WithContext(ctx).Should(Succeed())
			expectRefusal(ctx, namespace, "dry run", "--finalizer="+testFinalizer, "--ignore-active-owner")
		})

		It("if the confirmation is missing or wrong", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			before := snapshot(ctx, namespace.Name)
			for flag, reason := range map[string]string{
				"--confirm=":      "use --confirm=" + namespace.Name,
				"--confirm=other": "--confirm=other ",
			} {
				refused := finalize(ctx, namespace, "--namespace-finalizer="+testNamespaceFinalizer, "--ignore-active-owner", "--dry-run=false",
					flag)
				Expect(refused.code).To(Equal(1))
				Expect(refused.stderr).To(ContainSubstring(reason))
			}
			Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
		})

		It("if arguments or flags are invalid", func(ctx context.Context) {
			for flags, reason := range map[[2]string]string{
				{"--namespace-finalizer=a", "--finalizer=b"}:     "were all set",
				{"--namespace-finalizer=a", "--resource=pods"}:   "--resource requires --finalizer",
				{"--namespace-finalizer=a", "--dry-run=perhaps"}: `"perhaps"`,
				{"--namespace-finalizer=a", "--output=wide"}:     "unknown output format",
				{"--namespace-finalizer=a", "second-namespace"}:  "exactly one namespace",
				{"--namespace-finalizer=a", "--confirmed=any"}:   "unknown flag",
			} {
				refused := adminUser.run(ctx, "finalize", "any", flags[0], flags[1])
				Expect(refused.code).To(Equal(1))
				Expect(refused.stderr).To(ContainSubstring(reason))
			}
		})
	})

	Describe("removal", func() {
		// force applies a removal and expects success.
		force := func(ctx context.Context, namespace *corev1.Namespace, flags ...string) result {
			GinkgoHelper()
			forced := finalize(ctx, namespace, append(flags, "--ignore-active-owner", "--dry-run=false",
				"--confirm="+namespace.Name)...)
			Expect(forced.code).To(Equal(0), forced.stderr)
			return forced
		}

		It("removes only the given finalizer from the selected objects", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			forced := force(ctx, namespace, "--finalizer="+testFinalizer, "--resource=configmaps/held")
			Expect(forced.stdout).To(And(
				ContainSubstring("Removed finalizer %s from 1 object.\n", testFinalizer),
				ContainSubstring("is still terminating"), ContainSubstring("kubectl nslifecycle explain "+namespace.Name),
			))
			held := configMapNamed(ctx, namespace, "held")
			Expect(held.Finalizers).To(ConsistOf("test.example.com/another"))
			Expect(configMapNamed(ctx, namespace, "second").Finalizers).To(ConsistOf(testFinalizer))

			force(ctx, namespace, "--finalizer=test.example.com/another")
			Expect(bareAdmin.Get(ctx, client.ObjectKeyFromObject(held), held)).To(MatchError(ContainSubstring("not found")))
			Expect(configMapNamed(ctx, namespace, "second").Finalizers).To(ConsistOf(testFinalizer))
			Expect(configMapNamed(ctx, namespace, "kept").DeletionTimestamp).To(BeNil())
		})

		It("removes only the given finalizer from the Namespace", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			force(ctx, namespace, "--metadata-finalizer="+testFinalizer)
			bareAdmin.Reads(ctx, namespace)
			Expect(namespace.Finalizers).To(ConsistOf("test.example.com/another"))
			Expect(namespace.Spec.Finalizers).To(ConsistOf(corev1.FinalizerKubernetes, corev1.FinalizerName(testNamespaceFinalizer)))

			force(ctx, namespace, "--namespace-finalizer="+testNamespaceFinalizer)
			bareAdmin.Reads(ctx, namespace)
			Expect(namespace.Finalizers).To(ConsistOf("test.example.com/another"))
			Expect(namespace.Spec.Finalizers).To(ConsistOf(corev1.FinalizerKubernetes))
		})

		It("allows the deletion of the namespace, and orphans its objects", func(ctx context.Context) {
			namespace := makeNamespace(ctx, bareAdmin, "orphaned")
			kept := makeConfigMap(ctx, bareAdmin, namespace.Name, "kept")
			makeSecret(ctx, namespace.Name)
			bareAdmin.Deletes(ctx, namespace)

			command := adminUser.command(dir, "finalize", namespace.Name, "--namespace-finalizer=kubernetes", "--orphan", "--ignore-active-owner",
				"--dry-run=false", "--confirm="+namespace.Name)
			output, err := command.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(output))
			Expect(string(output)).To(And(
				ContainSubstring("Namespace %s was deleted.", namespace.Name),
				MatchRegexp(`Orphaned: configmaps/kept; secrets/kept\..*kubectl nslifecycle orphans`),
			))
			Expect(bareAdmin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).
				To(MatchError(ContainSubstring("not found")))
			Expect(bareAdmin.Get(ctx, client.ObjectKeyFromObject(kept), kept)).To(Succeed(), "the ConfigMap must be orphaned")
		})

		It("requires --ignore-active-owner although no owner was found", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			Eventually(func(g Gomega) {
				refused := finalize(ctx, namespace, "--finalizer="+testFinalizer, "--dry-run=false",
					"--confirm="+namespace.Name)
				g.Expect(refused.code).NotTo(Equal(0))
				g.Expect(refused.stderr).To(ContainSubstring("is not proven to be absent (FinalizerOwnerNotFound"))
			}).WithContext(ctx).WithPolling(2 * time.Second).Should(Succeed())
			Expect(configMapNamed(ctx, namespace, "held").Finalizers).To(ContainElement(testFinalizer))
		})
	})

	Describe("prompt", func() {
		// ask runs the command on a terminal until it prompts.
		ask := func(ctx context.Context, namespace *corev1.Namespace, flags ...string) *terminal {
			GinkgoHelper()
			terminal := adminUser.onTerminal(dir, append([]string{"finalize", namespace.Name, "--ignore-active-owner",
				"--dry-run=false"}, flags...)...)
			terminal.expect(ctx, "type the name of the namespace: ")
			return terminal
		}

		It("rejects any answer other than the name of the namespace", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			before := snapshot(ctx, namespace.Name)
			terminal := ask(ctx, namespace, "--namespace-finalizer="+testNamespaceFinalizer)
			Expect(terminal.output()).To(ContainSubstring("\x1b["), "output to a terminal must have colors")
			terminal.enter("yes")
			Expect(terminal.wait(ctx)).To(Equal(1))
			Expect(terminal.output()).To(And(ContainSubstring("error: refused"), ContainSubstring(`"yes"`)))
			Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
		})

		It("applies the removal after the user types the name", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			terminal := ask(ctx, namespace, "--namespace-finalizer="+testNamespaceFinalizer)
			terminal.enter(namespace.Name)
			Expect(terminal.wait(ctx)).To(Equal(0))
			bareAdmin.Reads(ctx, namespace)
			Expect(namespace.Spec.Finalizers).To(ConsistOf(corev1.FinalizerKubernetes))
		})

		It("stops on Ctrl-C without changing anything", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			before := snapshot(ctx, namespace.Name)
			terminal := ask(ctx, namespace, "--namespace-finalizer="+testNamespaceFinalizer)
			terminal.interrupt()
			Expect(terminal.wait(ctx)).To(Equal(130))
			Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
		})

		DescribeTable("refuses the removal if, after the plan was printed,", func(ctx context.Context, flag, reason string,
			change func(ctx context.Context, namespace *corev1.Namespace)) {
			namespace := makeStuckNamespace(ctx)
			terminal := ask(ctx, namespace, flag, "--orphan")
			change(ctx, namespace)
			before := snapshot(ctx, namespace.Name)
			terminal.enter(namespace.Name)
			Expect(terminal.wait(ctx)).To(Equal(1))
			Expect(terminal.output()).To(And(ContainSubstring("has changed"), ContainSubstring(reason)))
			Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
		},
			Entry("the Namespace is modified", "--namespace-finalizer="+testNamespaceFinalizer, "the Namespace was modified", annotate),
			Entry("the Namespace is recreated", "--namespace-finalizer="+testNamespaceFinalizer, "the Namespace was recreated", recreate),
			Entry("an orphaned object is modified", "--namespace-finalizer=kubernetes", "configmaps/kept was modified",
				annotateConfigMap("kept")),
			Entry("an orphaned object is deleted", "--namespace-finalizer=kubernetes", "configmaps/kept was deleted", deleteKept),
			Entry("a target is modified", "--finalizer="+testFinalizer,
				"configmaps/held was modified", annotateConfigMap("held")),
		)
	})
})

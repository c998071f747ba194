// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// testToken belongs to an agent that does not exist.
const testToken = "test.example.com/agent"

// A namespace is stuck here as soon as it is deleted, but the diagnosis blames nobody
// before half a minute has passed: most specs say --ignore-active-owner instead of waiting.
var _ = Describe("finalize", func() {
	var (
		someone *user
		dir     string
	)

	BeforeEach(func() {
		someone = newUser(bare.Admin)
		dir = GinkgoT().TempDir()
	})

	// finalize runs the command, and makes no backup but where a spec says so.
	finalize := func(ctx context.Context, namespace *corev1.Namespace, flags ...string) result {
		GinkgoHelper()
		return someone.run(ctx, append([]string{"finalize", namespace.Name}, flags...)...)
	}

	// expectRefusal runs the command for real, with everything that it takes, and expects
	// that it says why not and that nothing has changed.
	expectRefusal := func(ctx context.Context, namespace *corev1.Namespace, reason string, flags ...string) {
		GinkgoHelper()
		before := snapshot(ctx, namespace.Name)
		refused := finalize(ctx, namespace, append(flags, "--dry-run=false", "--confirm="+namespace.Name,
			"--backup="+filepath.Join(dir, "refused.yaml"))...)
		Expect(refused.code).To(Equal(1))
		Expect(refused.stderr).To(And(
			ContainSubstring("error: refused, and nothing was changed: "), ContainSubstring(reason)))
		Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
		Expect(filepath.Join(dir, "refused.yaml")).NotTo(BeAnExistingFile())
	}

	Describe("a dry run", func() {
		It("is the default, shows everything, and changes nothing", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			before := snapshot(ctx, namespace.Name)

			offered := finalize(ctx, namespace)
			Expect(offered.code).To(Equal(0))
			Expect(offered.stdout).To(And(
				ContainSubstring("What could be removed by force, the least harmful first"),
				ContainSubstring("kubectl nslifecycle finalize %s --finalizer=%s\n", namespace.Name, testFinalizer),
				ContainSubstring("kubectl nslifecycle finalize %s --metadata-finalizer=%s\n", namespace.Name, testFinalizer),
				ContainSubstring("kubectl nslifecycle finalize %s --namespace-finalizer=%s\n", namespace.Name, testToken),
				ContainSubstring("kubectl nslifecycle finalize %s --namespace-finalizer=kubernetes --orphan\n", namespace.Name),
			))

			for _, flags := range [][]string{
				{"--finalizer=" + testFinalizer},
				{"--metadata-finalizer=" + testFinalizer},
				{"--namespace-finalizer=" + testToken},
				{"--namespace-finalizer=kubernetes", "--orphan"},
			} {
				shown := finalize(ctx, namespace, append(flags, "--ignore-active-owner", "--confirm="+namespace.Name)...)
				Expect(shown.code).To(Equal(0))
				Expect(shown.stdout).To(ContainSubstring("What it would do"))
				Expect(shown.stderr).To(HaveSuffix("Nothing was changed: this was a dry run. --dry-run=false does it.\n"))
			}
			Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
		})

		It("prints the whole plan as an object", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			shown := finalize(ctx, namespace, "--namespace-finalizer=kubernetes", "-o", "json")
			Expect(shown.code).To(Equal(1), "--orphan is missing")
			var plan struct {
				APIVersion, Kind, Namespace string
				Removal                     map[string]string
				Orphans                     []struct{ Resource, Name, UID string }
				Objections                  []string
				IsDryRun                    bool
			}
			Expect(json.Unmarshal([]byte(shown.stdout), &plan)).To(Succeed())
			Expect(plan.APIVersion).To(Equal("cli.nslifecycle.dev/v1alpha1"))
			Expect(plan.Kind).To(Equal("FinalizePlan"))
			Expect(plan.Namespace).To(Equal(namespace.Name))
			Expect(plan.Removal).To(Equal(map[string]string{"token": "kubernetes"}))
			Expect(plan.IsDryRun).To(BeTrue())
			var names []string
			for _, orphan := range plan.Orphans {
				names = append(names, orphan.Resource+"/"+orphan.Name)
			}
			Expect(names).To(Equal([]string{"configmaps/held", "configmaps/kept", "configmaps/second", "secrets/kept"}))
			Expect(plan.Objections).To(ContainElement(ContainSubstring("--orphan accepts that")))
		})
	})

	Describe("refuses", func() {
		It("a namespace that is not being deleted, or not there", func(ctx context.Context) {
			expectRefusal(ctx, makeNamespace(ctx, bareAdmin, "active"), "is not being deleted, so nothing blocks its deletion",
				"--namespace-finalizer=kubernetes", "--orphan", "--ignore-active-owner")
			missing := someone.run(ctx, "finalize", "missing", "--namespace-finalizer=kubernetes")
			Expect(missing).To(Equal(result{code: 1, stderr: "error: there is no namespace \"missing\"\n"}))
		})

		It("the namespaces that no cluster can do without", func(ctx context.Context) {
			for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
				namespace := &corev1.Namespace{}
				Expect(bareAdmin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
				expectRefusal(ctx, namespace, "no cluster can do without", "--namespace-finalizer=kubernetes", "--orphan", "--ignore-active-owner")
			}
		})

		It("tokens and finalizers that are not there", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			expectRefusal(ctx, namespace, "has no token example.com/other", "--namespace-finalizer=example.com/other")
			expectRefusal(ctx, namespace, "has no finalizer "+testToken, "--metadata-finalizer="+testToken)
			expectRefusal(ctx, namespace, "has finalizer example.com/other", "--finalizer=example.com/other")
			expectRefusal(ctx, namespace, "--resource=secrets", "--finalizer="+testFinalizer, "--resource=secrets")
		})

		It("to orphan anything unasked", func(ctx context.Context) {
			expectRefusal(ctx, makeStuckNamespace(ctx), "4 objects would be left without a namespace",
				"--namespace-finalizer=kubernetes", "--ignore-active-owner")
		})

		It("while it may go by itself", func(ctx context.Context) {
			expectRefusal(ctx, makeStuckNamespace(ctx), "nothing is known to be wrong", "--namespace-finalizer="+testToken)
		})

		It("where the owner of the finalizer is alive", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			expectRefusal(ctx, namespace, "--ignore-active-owner removes it all the same", "--finalizer="+testFinalizer)
		})

		It("what it cannot see all of", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			// Everything but Secrets.
			someone = newRestrictedUser(ctx, bare, unique("half-blind"), append(rulesToRead("configmaps"),
				rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces/finalize"}, Verbs: []string{"update"}})...)
			expectRefusal(ctx, namespace, "--allow-unread accepts that", "--namespace-finalizer="+testToken, "--ignore-active-owner")
			expectRefusal(ctx, namespace, "cannot list resource \"secrets\"", "--namespace-finalizer="+testToken, "--ignore-active-owner", "-v=1")
		})

		It("whom the API server does not allow it, before anybody is asked", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			someone = newRestrictedUser(ctx, bare, unique("reader"), rulesToRead("*")...)
			for flag, right := range map[string]string{
				"--namespace-finalizer=" + testToken:    `cannot update resource "namespaces/finalize"`,
				"--metadata-finalizer=" + testFinalizer: `cannot patch resource "namespaces"`,
				"--finalizer=" + testFinalizer:          `cannot patch resource "configmaps"`,
			} {
				expectRefusal(ctx, namespace, right, flag, "--ignore-active-owner", "--allow-unread")
				expectRefusal(ctx, namespace, "you lack this right", flag, "--ignore-active-owner", "--allow-unread")
			}
		})

		It("where a policy does not allow the finalizer to be removed", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			refuseUpdates(ctx, namespace.Name)
			Eventually(func(g Gomega) {
				shown := finalize(ctx, namespace, "--finalizer="+testFinalizer, "--ignore-active-owner")
				g.Expect(shown.code).To(Equal(1))
				g.Expect(shown.stderr).To(And(ContainSubstring("nobody changes this"),
					ContainSubstring("this rule does not allow it")))
			}).WithContext(ctx).Should(Succeed())
			expectRefusal(ctx, namespace, "the API server does not accept it", "--finalizer="+testFinalizer, "--ignore-active-owner")
		})

		It("without a confirmation", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			before := snapshot(ctx, namespace.Name)
			for flag, reason := range map[string]string{
				"--confirm=":      "there is no terminal to confirm on; in a script, confirm with --confirm=" + namespace.Name,
				"--confirm=other": "--confirm=other is not the name of the namespace",
			} {
				refused := finalize(ctx, namespace, "--namespace-finalizer="+testToken, "--ignore-active-owner", "--dry-run=false",
					"--backup="+filepath.Join(dir, "unconfirmed.yaml"), flag)
				Expect(refused.code).To(Equal(1))
				Expect(refused.stderr).To(ContainSubstring(reason))
			}
			Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
			Expect(filepath.Join(dir, "unconfirmed.yaml")).NotTo(BeAnExistingFile())
		})

		It("to overwrite a file", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			file := filepath.Join(dir, "precious.yaml")
			Expect(os.WriteFile(file, []byte("precious"), 0o600)).To(Succeed())
			before := snapshot(ctx, namespace.Name)
			refused := finalize(ctx, namespace, "--namespace-finalizer="+testToken, "--ignore-active-owner", "--dry-run=false",
				"--confirm="+namespace.Name, "--backup="+file)
			Expect(refused.code).To(Equal(1))
			Expect(refused.stderr).To(ContainSubstring("exists already, and is not overwritten"))
			Expect(os.ReadFile(file)).To(BeEquivalentTo("precious"))
			Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
		})

		It("flags that contradict each other or make no sense", func(ctx context.Context) {
			for flags, reason := range map[[2]string]string{
				{"--namespace-finalizer=a", "--finalizer=b"}:       "none of the others can be",
				{"--backup=a", "--no-backup"}:                      "none of the others can be",
				{"--namespace-finalizer=a", "--resource=pods"}:     "--finalizer, which is missing",
				{"--namespace-finalizer=a", "--dry-run=perhaps"}:   "unknown --dry-run=perhaps",
				{"--namespace-finalizer=a", "--output=wide"}:       "unknown output format",
				{"--namespace-finalizer=a", "second-namespace"}:    "one namespace at a time",
				{"--namespace-finalizer=a", "--confirmed=anybody"}: "unknown flag",
			} {
				refused := someone.run(ctx, "finalize", "any", flags[0], flags[1])
				Expect(refused.code).To(Equal(1))
				Expect(refused.stderr).To(ContainSubstring(reason))
			}
		})
	})

	Describe("does it", func() {
		// force does what finalize is for.
		force := func(ctx context.Context, namespace *corev1.Namespace, flags ...string) result {
			GinkgoHelper()
			forced := finalize(ctx, namespace, append(flags, "--ignore-active-owner", "--dry-run=false",
				"--confirm="+namespace.Name)...)
			Expect(forced.code).To(Equal(0), forced.stderr)
			return forced
		}

		It("removes one finalizer of the objects that are selected, and no other", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			forced := force(ctx, namespace, "--finalizer="+testFinalizer, "--resource=configmaps/held",
				"--backup="+filepath.Join(dir, "b.yaml"))
			Expect(forced.stdout).To(And(
				ContainSubstring("Removed finalizer %s from 1 object.\n", testFinalizer),
				ContainSubstring("is still being deleted"), ContainSubstring("kubectl nslifecycle explain "+namespace.Name),
			))
			held := configMapNamed(ctx, namespace, "held")
			Expect(held.Finalizers).To(ConsistOf("test.example.com/another"))
			Expect(configMapNamed(ctx, namespace, "second").Finalizers).To(ConsistOf(testFinalizer))

			force(ctx, namespace, "--finalizer=test.example.com/another", "--no-backup")
			Expect(bareAdmin.Get(ctx, client.ObjectKeyFromObject(held), held)).To(MatchError(ContainSubstring("not found")))
			Expect(configMapNamed(ctx, namespace, "second").Finalizers).To(ConsistOf(testFinalizer))
			Expect(configMapNamed(ctx, namespace, "kept").DeletionTimestamp).To(BeNil())
		})

		It("removes a finalizer of the Namespace, then a token, and no other", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			force(ctx, namespace, "--metadata-finalizer="+testFinalizer, "--no-backup")
			Expect(bareAdmin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
			Expect(namespace.Finalizers).To(ConsistOf("test.example.com/another"))
			Expect(namespace.Spec.Finalizers).To(ConsistOf(corev1.FinalizerKubernetes, corev1.FinalizerName(testToken)))

			force(ctx, namespace, "--namespace-finalizer="+testToken, "--no-backup")
			Expect(bareAdmin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
			Expect(namespace.Finalizers).To(ConsistOf("test.example.com/another"))
			Expect(namespace.Spec.Finalizers).To(ConsistOf(corev1.FinalizerKubernetes))
		})

		It("releases a namespace, and its backup brings everything back", func(ctx context.Context) {
			namespace := makeNamespace(ctx, bareAdmin, "restored")
			kept := makeConfigMap(ctx, bareAdmin, namespace.Name, "kept")
			secret := makeSecret(ctx, namespace.Name)
			Expect(bareAdmin.Delete(ctx, namespace)).To(Succeed())

			command := someone.command(dir, "finalize", namespace.Name, "--namespace-finalizer=kubernetes", "--orphan", "--ignore-active-owner",
				"--dry-run=false", "--confirm="+namespace.Name)
			output, err := command.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(output))
			Expect(string(output)).To(And(
				ContainSubstring("Namespace %s is gone.", namespace.Name),
				ContainSubstring("Left behind without a namespace: configmaps/kept; secrets/kept. "+
					"Find them: kubectl nslifecycle orphans"),
			))
			Expect(bareAdmin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).
				To(MatchError(ContainSubstring("not found")))
			Expect(bareAdmin.Get(ctx, client.ObjectKeyFromObject(kept), kept)).To(Succeed(), "it is an orphan")

			files, err := filepath.Glob(filepath.Join(dir, namespace.Name+"-backup-*Z.yaml"))
			Expect(err).NotTo(HaveOccurred())
			Expect(files).To(HaveLen(1))
			info, err := os.Stat(files[0])
			Expect(err).NotTo(HaveOccurred())
			Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))

			By("bringing it back")
			Expect(bareAdmin.Delete(ctx, kept)).To(Succeed())
			Expect(bareAdmin.Delete(ctx, secret)).To(Succeed())
			applied := someone.kubectl(ctx, nil, "apply", "--server-side", "-f", files[0])
			Expect(applied.code).To(Equal(0), applied.stderr)
			Expect(configMapNamed(ctx, namespace, "kept").Data).To(Equal(map[string]string{"key": "value"}))
			restored := &corev1.Secret{}
			Expect(bareAdmin.Get(ctx, client.ObjectKeyFromObject(secret), restored)).To(Succeed())
			Expect(restored.Data).To(Equal(secret.Data))
			Expect(restored.UID).NotTo(Equal(secret.UID))
		})

		It("takes a finding that the owner is gone for permission enough", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			Eventually(func(g Gomega) {
				forced := finalize(ctx, namespace, "--finalizer="+testFinalizer, "--dry-run=false",
					"--confirm="+namespace.Name, "--no-backup")
				g.Expect(forced.code).To(Equal(0), forced.stderr)
			}).WithContext(ctx).WithTimeout(90 * time.Second).WithPolling(2 * time.Second).Should(Succeed())
			Expect(configMapNamed(ctx, namespace, "held").Finalizers).To(ConsistOf("test.example.com/another"))
		})
	})

	Describe("asks", func() {
		// ask runs the command until it asks for the name.
		ask := func(ctx context.Context, namespace *corev1.Namespace, flags ...string) *terminal {
			GinkgoHelper()
			terminal := someone.onTerminal(dir, append([]string{"finalize", namespace.Name, "--ignore-active-owner",
				"--dry-run=false", "--no-backup"}, flags...)...)
			terminal.expect(ctx, "Type the name of the namespace to go on: ")
			return terminal
		}

		It("for the name, and takes no other for an answer", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			before := snapshot(ctx, namespace.Name)
			terminal := ask(ctx, namespace, "--namespace-finalizer="+testToken)
			Expect(terminal.shown()).To(ContainSubstring("\x1b["), "colours on a terminal")
			terminal.enter("yes")
			Expect(terminal.wait(ctx)).To(Equal(1))
			Expect(terminal.shown()).To(ContainSubstring(`"yes" is not the name of the namespace`))
			Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
		})

		It("for the name, and does it then", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			terminal := ask(ctx, namespace, "--namespace-finalizer="+testToken)
			terminal.enter(namespace.Name)
			Expect(terminal.wait(ctx)).To(Equal(0))
			Expect(bareAdmin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
			Expect(namespace.Spec.Finalizers).To(ConsistOf(corev1.FinalizerKubernetes))
		})

		It("and stops at Ctrl-C", func(ctx context.Context) {
			namespace := makeStuckNamespace(ctx)
			before := snapshot(ctx, namespace.Name)
			terminal := ask(ctx, namespace, "--namespace-finalizer="+testToken)
			terminal.interrupt()
			Expect(terminal.wait(ctx)).To(Equal(130))
			Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
		})

		DescribeTable("and refuses if meanwhile", func(ctx context.Context, flag, reason string,
			change func(ctx context.Context, namespace *corev1.Namespace)) {
			namespace := makeStuckNamespace(ctx)
			terminal := ask(ctx, namespace, flag, "--orphan")
			change(ctx, namespace)
			before := snapshot(ctx, namespace.Name)
			terminal.enter(namespace.Name)
			Expect(terminal.wait(ctx)).To(Equal(1))
			Expect(terminal.shown()).To(And(ContainSubstring("has changed since it was shown"), ContainSubstring(reason)))
			Expect(snapshot(ctx, namespace.Name)).To(Equal(before))
		},
			Entry("the Namespace is written to", "--namespace-finalizer="+testToken, "the Namespace was written to", annotate),
			Entry("the namespace is another one", "--namespace-finalizer="+testToken, "the Namespace was created anew", recreate),
			Entry("an object that would be orphaned is written to", "--namespace-finalizer=kubernetes", "configmaps/kept was written to",
				annotateConfigMap("kept")),
			Entry("an object that would be orphaned goes", "--namespace-finalizer=kubernetes", "configmaps/kept is gone", deleteKept),
			Entry("the object that would lose its finalizer is written to", "--finalizer="+testFinalizer,
				"configmaps/held was written to", annotateConfigMap("held")),
		)
	})
})

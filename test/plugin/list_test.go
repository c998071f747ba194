// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("list", func() {
	It("lists the state of every namespace and what it is waiting for", func(ctx context.Context) {
		active := makeNamespace(ctx, admin, "list")
		terminating := makeNamespace(ctx, admin, "list")
		held := makeConfigMap(ctx, admin, terminating.Name, "held", testFinalizer)
		DeferCleanup(func(ctx context.Context) { framework.RemoveFinalizers(ctx, admin, held) })
		admin.Deletes(ctx, terminating)
		plane.Register(ctx, "list", "first.list.example.com", "second.list.example.com")
		initializing := makeNamespace(ctx, admin, "list")

		adminUser := newUser(plane.Admin.Config)
		Eventually(func(g Gomega) {
			lines := rows(adminUser.run(ctx, "list", "-l", "test=list", "--no-headers").stdout)
			g.Expect(lines).To(HaveKeyWithValue(active.Name, MatchRegexp(`^Initialized +\d+m?s +<none> *$`)))
			g.Expect(lines).To(HaveKeyWithValue(initializing.Name,
				MatchRegexp(`^Initializing +\S+ +<none> +first\.list\.example\.com \(1 of 2\)`)))
			g.Expect(lines).To(HaveKeyWithValue(terminating.Name, MatchRegexp(`^Terminating +\S+ +\S+ +finalizer test\.example\.com/hold on 1 object`)))
		}).WithContext(ctx).Should(Succeed())

		By("filtering and printing JSON")
		listed := adminUser.run(ctx, "list", "--state=terminating", "-l", "test=list", "-o", "json")
		Expect(listed.code).To(BeZero())
		var list struct {
			APIVersion, Kind string
			Items            []struct {
				Metadata struct{ Name, UID string }
				State    string
				WaitsFor []string
			}
		}
		Expect(json.Unmarshal([]byte(listed.stdout), &list)).To(Succeed())
		Expect(list.Kind).To(Equal("NamespaceSummaryList"))
		Expect(list.Items).To(HaveLen(1))
		Expect(list.Items[0].Metadata.Name).To(Equal(terminating.Name))
		Expect(list.Items[0].Metadata.UID).To(BeEquivalentTo(terminating.UID))
		Expect(list.Items[0].WaitsFor).To(Equal([]string{"finalizer " + testFinalizer + " on 1 object", "1 configmaps"}))
		Expect(adminUser.run(ctx, "list", "-o", "yaml").stdout).To(ContainSubstring("state: Terminating"))
		Expect(adminUser.run(ctx, "list", "-o", "wide").stdout).To(ContainSubstring("REQUESTED BY"))
	}, NodeTimeout(testTimeout))

	It("works without the operator", func(ctx context.Context) {
		terminating := makeNamespace(ctx, bareAdmin, "plain")
		bareAdmin.Deletes(ctx, terminating)
		listed := newUser(bare.Admin.Config).run(ctx, "list")
		Expect(listed.code).To(BeZero())
		Expect(rows(listed.stdout)).To(HaveKeyWithValue(terminating.Name, ContainSubstring("the namespace controller")))
		finalize(ctx, bareAdmin, terminating.Name)
	}, NodeTimeout(testTimeout))

	It("works without permission to list templates", func(ctx context.Context) {
		namespace := makeNamespace(ctx, admin, "plain")
		reader := newRestrictedUser(ctx, plane, unique("reader"), rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list"},
		})
		listed := reader.run(ctx, "list")
		Expect(listed.code).To(BeZero())
		Expect(listed.stderr).To(BeEmpty())
		Expect(rows(listed.stdout)).To(HaveKeyWithValue(namespace.Name, HavePrefix("Initialized")))
		wide := reader.run(ctx, "list", "-o", "wide")
		Expect(wide.code).To(BeZero())
		Expect(wide.stderr).To(ContainSubstring("no permission to list them"))
		Expect(rows(wide.stdout)).To(HaveKeyWithValue(namespace.Name, HaveSuffix("<unknown>")))
	}, NodeTimeout(testTimeout))

	It("reports missing permissions and invalid arguments", func(ctx context.Context) {
		config, err := bare.User("unprivileged")
		Expect(err).NotTo(HaveOccurred())
		unprivileged := newUser(config)
		listed := unprivileged.run(ctx, "list")
		Expect(listed.code).To(Equal(1))
		Expect(listed.stdout).To(BeEmpty())
		Expect(listed.stderr).To(HavePrefix(`Error from server (Forbidden): namespaces is forbidden: User "unprivileged" cannot list`))

		for _, args := range [][]string{
			{"list", "--state=Deleted"}, {"list", "-o", "xml"}, {"list", "name", "--mine"}, {"lits"}, {"list", "--extra"},
		} {
			wrong := unprivileged.run(ctx, args...)
			Expect(wrong.code).To(Equal(1), strings.Join(args, " "))
			Expect(wrong.stderr).To(HavePrefix("error: "), strings.Join(args, " "))
		}
	}, NodeTimeout(testTimeout))

	It("reports that no namespace matches", func(ctx context.Context) {
		listed := newUser(bare.Admin.Config).run(ctx, "list", "-l", "test=nothing")
		Expect(listed.code).To(BeZero())
		Expect(listed.stdout).To(BeEmpty())
		Expect(listed.stderr).To(Equal("No namespaces found.\n"))
	}, NodeTimeout(testTimeout))
})

// rows maps the first word of each line of a table to the rest of the line.
func rows(table string) map[string]string {
	byName := map[string]string{}
	for line := range strings.Lines(table) {
		name, rest, _ := strings.Cut(line, " ")
		byName[name] = strings.TrimSpace(rest)
	}
	return byName
}

var _ = Describe("explain", func() {
	var adminUser *user

	BeforeEach(func() { adminUser = newUser(bare.Admin.Config) })

	It("reports an initialized namespace as healthy", func(ctx context.Context) {
		namespace := makeNamespace(ctx, bareAdmin, "active")
		explained := adminUser.run(ctx, "explain", namespace.Name)
		Expect(explained.code).To(Equal(0))
		Expect(explained.stdout).To(And(
			ContainSubstring("Namespace %s: Initialized for ", namespace.Name), MatchRegexp(`, healthy\n[^\n]+\n$`),
		))
		Expect(explained.stderr).To(BeEmpty())
	})

	It("reports a namespace whose deletion has just started as progressing", func(ctx context.Context) {
		namespace := makeNamespace(ctx, bareAdmin, "young")
		bareAdmin.Deletes(ctx, namespace)
		explained := adminUser.run(ctx, "explain", namespace.Name)
		Expect(explained.code).To(Equal(0))
		Expect(explained.stdout).To(And(
			ContainSubstring("Terminating for "), MatchRegexp(`, progressing\n[^\n]+\n$`),
		))
	})

	It("explains why a namespace is stuck, as text and as JSON", func(ctx context.Context) {
		namespace := makeNamespace(ctx, bareAdmin, "stuck")
		held := makeConfigMap(ctx, bareAdmin, namespace.Name, "held", testFinalizer)
		DeferCleanup(framework.RemoveFinalizers, bareAdmin, held)
		bareAdmin.Deletes(ctx, held, namespace)

		var explained result
		Eventually(func() int {
			explained = adminUser.run(ctx, "explain", namespace.Name, "--progress-deadline=1s", "--context=nslifecycle")
			return explained.code
		}).WithContext(ctx).Should(Equal(3))
		Expect(explained.stdout).To(And(
			ContainSubstring("Namespace %s: Terminating for ", namespace.Name), ContainSubstring(", blocked\n"),
			ContainSubstring("\n  Cause: FinalizerOwnerNotFound ("), ContainSubstring("Objects: configmaps/held\n"),
			ContainSubstring(testFinalizer),
			ContainSubstring("To preview the removal of the finalizer without its owner:\n"+
				"      kubectl nslifecycle --context=nslifecycle finalize %s --finalizer=%s\n", namespace.Name, testFinalizer),
			MatchRegexp(`\n  Lost if forced: \S+`),
		))
		Expect(explained.stderr).To(BeEmpty(), "a blocked namespace must not be reported as an error")

		explained = adminUser.run(ctx, "explain", namespace.Name, "--progress-deadline=1s", "--output=json")
		Expect(explained.code).To(Equal(3))
		var document struct {
			APIVersion, Kind string
			diagnosis.Diagnosis
		}
		Expect(json.Unmarshal([]byte(explained.stdout), &document)).To(Succeed())
		Expect(document.APIVersion).To(Equal("cli.nslifecycle.dev/v1alpha1"))
		Expect(document.Kind).To(Equal("Diagnosis"))
		Expect(document.Namespace).To(Equal(namespace.Name))
		Expect(document.UID).To(Equal(namespace.UID))
		Expect(document.State).To(Equal(diagnosis.StateTerminating))
		Expect(document.Result).To(Equal(diagnosis.Blocked))
		Expect(document.Findings).NotTo(BeEmpty())
	})

	It("does not report progress if the content cannot be read", func(ctx context.Context) {
		namespace := makeNamespace(ctx, bareAdmin, "unreadable")
		bareAdmin.Deletes(ctx, namespace)
		tenant := newRestrictedUser(ctx, bare, unique("tenant"), rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"},
		})
		explained := tenant.run(ctx, "explain", namespace.Name, "--progress-deadline=1h")
		Expect(explained.stdout).To(MatchRegexp(`^Namespace .*, unknown\n`))
		Expect(explained.stderr).To(MatchRegexp(`is incomplete: .*\bconfigmaps, .*: permission to list them is missing`))
		Expect(explained.code).To(Equal(1))
	})

	It("prints when a timeout deletes the namespace", func(ctx context.Context) {
		settings := v1alpha1.DefaultInitializerSettings()
		settings.TimeoutSeconds = ptr.To[int32](3600)
		plane.RegisterConfiguration(ctx, wrappers.MakeConfiguration(unique("timed")).Initializer("slow.timed.example.com", settings))
		namespace := makeNamespace(ctx, admin, "timed")
		planeAdmin := newUser(plane.Admin.Config)
		Eventually(func(g Gomega) {
			text := strings.Join(strings.Fields(planeAdmin.run(ctx, "explain", namespace.Name).stdout), " ")
			g.Expect(text).To(MatchRegexp(`If initializer slow\.timed\.example\.com has not completed at \S+ \(timeout 1h0m0s\), ` +
				`the initialization fails, and the operator deletes the namespace\.`))
		}).WithContext(ctx).Should(Succeed())
		plane.Finish(ctx, namespace.Name)
	}, NodeTimeout(testTimeout))

	It("fails if the namespace does not exist", func(ctx context.Context) {
		Expect(adminUser.run(ctx, "explain", "missing")).To(Equal(
			result{code: 1, stderr: "Error from server (NotFound): namespaces \"missing\" not found\n"}))
	})

	It("explains the current namespace, and all namespaces that are not initialized with --all", func(ctx context.Context) {
		active := makeNamespace(ctx, bareAdmin, "context")
		terminating := makeNamespace(ctx, bareAdmin, "terminating")
		bareAdmin.Deletes(ctx, terminating)
		Expect(adminUser.run(ctx, "explain", "-n", active.Name).stdout).To(
			HavePrefix("Namespace %s: Initialized", active.Name))
		all := adminUser.run(ctx, "explain", "--all")
		Expect(all.stdout).To(And(
			ContainSubstring("Namespace %s: Terminating", terminating.Name), Not(ContainSubstring(active.Name)),
		))
		both := adminUser.run(ctx, "explain", "--all", active.Name)
		Expect(both.code).To(Equal(1))
		Expect(both.stderr).To(And(ContainSubstring(active.Name), ContainSubstring("--all")))
	})

	It("prints the missing permission", func(ctx context.Context) {
		explained := newRestrictedUser(ctx, bare, unique("unprivileged")).run(ctx, "explain", "default")
		Expect(explained.code).To(Equal(1))
		Expect(explained.stdout).To(BeEmpty())
		Expect(explained.stderr).To(And(HavePrefix("Error from server (Forbidden): "), ContainSubstring("cannot get resource \"namespaces\"")))
	})
})

var _ = Describe("The ClusterRole for explain", Ordered, func() {
	const viewerRole = "nslifecycle-diagnosis-viewer-role"
	var role rbacv1.ClusterRole
	var viewer *user

	BeforeAll(func(ctx context.Context) {
		Expect(admin.Get(ctx, client.ObjectKey{Name: viewerRole}, &role)).To(Succeed())
		name := unique("viewer")
		config, err := plane.User(name)
		Expect(err).NotTo(HaveOccurred())
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewerRole},
		}
		admin.Creates(ctx, binding)
		DeferCleanup(func(ctx context.Context) { Expect(admin.Delete(ctx, binding)).To(Succeed()) })
		viewer = newUser(config)
	})

	It("allows to read everything that a diagnosis needs", func(ctx context.Context) {
		// The external finalizer makes the diagnosis search for its owner in the cluster.
		namespace := makeNamespace(ctx, admin, "viewed")
		held := makeConfigMap(ctx, admin, namespace.Name, "held", "viewer.example.com/hold")
		admin.Deletes(ctx, namespace)
		DeferCleanup(func(ctx context.Context) { framework.RemoveFinalizers(ctx, admin, held) })
		Eventually(func(g Gomega) {
			g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)).To(Succeed())
			g.Expect(namespace.Status.Conditions).To(ContainElement(And(
				HaveField("Type", corev1.NamespaceContentRemaining), HaveField("Status", corev1.ConditionTrue))))
		}).WithContext(ctx).Should(Succeed())

		var explained result
		Eventually(func(g Gomega) {
			explained = viewer.run(ctx, "explain", namespace.Name, "--progress-deadline=1s")
			g.Expect(explained.code).To(Equal(3))
			g.Expect(explained.stdout).To(ContainSubstring("viewer.example.com/hold"))
			g.Expect(explained.stdout + explained.stderr).NotTo(MatchRegexp("could not|cannot be read"))
		}).WithContext(ctx).Should(Succeed())
		Expect(viewer.run(ctx, "explain", "--all").stdout).To(ContainSubstring(namespace.Name))
	})

	It("includes all built-in types except Secrets", func(ctx context.Context) {
		found, err := resourcetypes.Discover(ctx, discovery.NewDiscoveryClientForConfigOrDie(bare.Admin.Config))
		Expect(err).NotTo(HaveOccurred())
		var missing []string
		for _, of := range found.Types {
			isAllowed := slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
				return slices.Contains(rule.APIGroups, of.Group) && slices.Contains(rule.Resources, of.Resource) &&
					slices.Contains(rule.Verbs, "list")
			})
			// Other specs install CustomResourceDefinitions.
			isCustom := strings.Contains(of.Group, ".") && !strings.HasSuffix(of.Group, ".k8s.io")
			if of.Can("list") && !isCustom && !isAllowed {
				missing = append(missing, of.String())
			}
		}
		Expect(missing).To(HaveExactElements("secrets"))
	})

	It("allows no changes", func(ctx context.Context) {
		for _, rule := range role.Rules {
			Expect(rule.Resources).NotTo(ContainElement(Or(Equal("*"), ContainSubstring("/"))))
			if slices.Contains(rule.Resources, "subjectaccessreviews") {
				Expect(rule.Resources).To(HaveLen(1))
				Expect(rule.Verbs).To(HaveExactElements("create"))
				continue
			}
			Expect(rule.Verbs).To(HaveExactElements("list"), "resources %v", rule.Resources)
		}
		namespace := makeNamespace(ctx, admin, "unchanged")
		object := makeConfigMap(ctx, admin, namespace.Name, "settings")
		for _, arguments := range [][]string{
			{"delete", "configmap", object.Name}, {"label", "configmap", object.Name, "a=b"}, {"create", "configmap", "other"},
			{"delete", "namespace", namespace.Name}, {"create", "secret", "generic", "other"}, {"get", "secrets"},
			{"nslifecycle", "delete", namespace.Name},
		} {
			done := viewer.kubectl(ctx, nil, append(arguments, "--namespace="+namespace.Name)...)
			Expect(done.code).NotTo(BeZero(), "%v", arguments)
			Expect(done.stderr).To(Or(ContainSubstring("forbidden"), ContainSubstring("Forbidden"), ContainSubstring("cannot")), "%v", arguments)
		}
		after := &corev1.ConfigMap{}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), after)).To(Succeed())
		Expect(after.ResourceVersion).To(Equal(object.ResourceVersion))
	})
})

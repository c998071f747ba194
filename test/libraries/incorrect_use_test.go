// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/pkg/initializer"
	"github.com/nslifecycle/nslifecycle/test/framework"
	. "github.com/nslifecycle/nslifecycle/test/framework/matchers"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

// without returns a copy of serving that lacks the given verbs.
func without(verbs ...string) rbacv1.PolicyRule {
	rule := *serving.DeepCopy()
	rule.Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return slices.Contains(verbs, verb) })
	return rule
}

// reading is the RBAC rule that allows an initializer to read the registered initializers.
var reading = rbacv1.PolicyRule{
	APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"namespaceinitializerconfigurations"},
	Verbs: []string{"list"},
}

// follow runs the kubectl commands at the end of a message as an administrator, and returns the
// number of commands. The created objects are deleted after the spec.
func follow(ctx context.Context, message string) int {
	GinkgoHelper()
	_, commands, found := strings.Cut(message, "as an administrator run: ")
	Expect(found).To(BeTrue(), message)
	count := 0
	for command := range strings.SplitSeq(commands, "; ") {
		fields := strings.Fields(command)
		Expect(fields[0]).To(Equal("kubectl"), command)
		_, err := cluster.Kubectl(ctx, cluster.Admin.Config, fields[1:]...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := cluster.Kubectl(ctx, cluster.Admin.Config, "delete", fields[2], fields[3])
			Expect(err).NotTo(HaveOccurred())
		})
		count++
	}
	return count
}

var _ = Describe("Incorrect use of pkg/initializer", func() {
	const name = "one.wronguse.example.com"

	It("reports a name that is not registered", func(ctx context.Context) {
		config := newAccount(ctx, framework.Unique("incorrect-use"), serving, reading)
		err := initializer.Check(ctx, config, name)
		var notRegistered *initializer.NotRegisteredError
		Expect(errors.As(err, &notRegistered)).To(BeTrue(), "%v", err)
		Expect(notRegistered.Name).To(Equal(name))
		Expect(err).To(MatchError(ContainSubstring("NamespaceInitializerConfiguration")))
		Expect(initializer.Check(ctx, newAccount(ctx, framework.Unique("incorrect-use"), serving), name)).
			To(Succeed(), "without the permission to list the registered initializers")
		logs := serve(config, name, nothing)
		Eventually(func() string { return string(logs.Contents()) }).WithContext(ctx).Should(ContainSubstring("is not registered yet"))

		// The initializer can be registered later.
		cluster.Register(ctx, framework.Unique("suite"), name)
		Expect(initializer.Check(ctx, config, name)).To(Succeed())
		expectReady(ctx, createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("registered"))).Name)
	}, SpecTimeout(5*time.Minute))

	DescribeTable("reports the missing verb and the commands that grant it",
		func(ctx context.Context, missing string) {
			cluster.Register(ctx, framework.Unique("suite"), name)
			account := framework.Unique("incorrect-use")
			config := newAccount(ctx, account, without(missing), publishing)
			err := initializer.Check(ctx, config, name)
			var missingErr *initializer.MissingPermissionsError
			Expect(errors.As(err, &missingErr)).To(BeTrue(), "%v", err)
			Expect(missingErr.Missing).To(Equal([]string{missing + " namespaces"}))
			Expect(err).To(MatchError(ContainSubstring(
				"user %q is not allowed to %s namespaces; as an administrator run: kubectl create clusterrole", userOf(account), missing)))

			var served calls
			logs := serve(config, name, func(_ context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
				served.record(namespace)
				return initializer.Result{}, nil
			}, soon)
			namespace := createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("rights")))
			Eventually(func() string { return string(logs.Contents()) }).WithContext(ctx).
				Should(And(ContainSubstring("lacks permissions"), ContainSubstring("as an administrator run: ")))
			message := missingErr.Message
			// With list alone, the initializer can observe the namespace: client-go streams the first list.
			if missing == "initialize" {
				// The condition also contains the commands.
				Eventually(func(g Gomega) {
					now := cluster.GetNamespace(g, ctx, namespace.Name)
					g.Expect(now).To(HaveCondition(conditionOf(name), corev1.ConditionFalse, "Retrying",
						"as an administrator run: kubectl create clusterrole initializer:"+name+
							" --verb=get,list,watch,patch,initialize --resource=namespaces"))
				}).WithContext(ctx).Should(Succeed())
				Expect(framework.PendingOf(cluster.GetNamespace(Default, ctx, namespace.Name))).To(Equal(name))
			}

			Expect(follow(ctx, message)).To(Equal(2))
			expectReady(ctx, namespace.Name)
			if missing == "initialize" {
				Expect(served.of(namespace.Name)).To(HaveLen(1), "the permission is checked before the call")
			}
			// With list, nothing shows that the API server has observed the new permissions.
			Eventually(initializer.Check).WithContext(ctx).WithArguments(config, name).Should(Succeed())
		},
		Entry("initialize", SpecTimeout(5*time.Minute), "initialize"),
		Entry("list", SpecTimeout(5*time.Minute), "list"),
	)

	It("does not require the permission to publish progress", func(ctx context.Context) {
		cluster.Register(ctx, framework.Unique("suite"), name)
		var served calls
		logs := serve(newAccount(ctx, framework.Unique("incorrect-use"), serving), name,
			func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
				initializer.Progress(ctx, "Working", "call %d", served.record(namespace))
				if len(served.of(namespace.Name)) <= 2 {
					return initializer.Result{}, errors.New("the first two calls fail")
				}
				return initializer.Result{Message: "done"}, nil
			}, soon)
		names := []string{
			createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("silent"))).Name,
			createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("silent"))).Name,
		}
		expectReady(ctx, names...)
		Expect(strings.Count(string(logs.Contents()), "permission to patch namespaces/status")).To(Equal(1))
	}, SpecTimeout(5*time.Minute))

	It("requires permissions at cluster scope", func(ctx context.Context) {
		cluster.Register(ctx, framework.Unique("suite"), name)
		account := framework.Unique("incorrect-use")
		config := newAccount(ctx, account, without("initialize"))
		namespace := createInitializing(ctx, wrappers.MakeNamespace(framework.Unique("local")))
		bound := &rbacv1.RoleBinding{
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nslifecycle-namespace-initializer"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: accounts, Name: account}},
		}
		bound.Namespace, bound.Name = namespace.Name, "initializer"
		Expect(admin.Get(ctx, client.ObjectKey{Name: bound.RoleRef.Name}, &rbacv1.ClusterRole{})).To(Succeed())
		admin.Creates(ctx, bound)
		framework.ExpectAllowedIn(ctx, config, namespace.Name, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbInitialize},
		})
		Expect(initializer.Check(ctx, config, name)).To(MatchError(ContainSubstring("not allowed to initialize namespaces")))
	}, SpecTimeout(5*time.Minute))

	It("accepts the same names as the API server", func(ctx context.Context) {
		for _, name := range []string{
			"a.b.c", "0.1.2", strings.Repeat("a.", 126) + "a", strings.Repeat("a.", 126) + "ab",
			strings.Repeat("a", 63) + ".b.c", strings.Repeat("a", 64) + ".b.c", "", "a.b", "a.b.c,d.e.f", "a..b", ".a.b.c",
			"a.b.c.", "A.b.c", "a-.b.c", "a.b.c\n", "a.b.c/d", "é.b.c",
		} {
			configuration := wrappers.MakeConfiguration(framework.Unique("names")).Initializers(name).Obj()
			Expect(admin.Create(ctx, configuration, client.DryRunAll) == nil).
				To(Equal(v1alpha1.ValidateInitializerName(name) == nil), name)
		}
	})
})

var _ = Describe("An initializer that uses pkg/initializer", func() {
	It("adds a finalizer before the first call, and preserves other fields", func(ctx context.Context) {
		const finalizer = corev1.FinalizerName("search.example.com/index")
		name := framework.Unique("finalizer") + ".corp.example.com"
		config := newAccount(ctx, framework.Unique("finalizer"), serving, requiredRules[1])
		finalizers := make(chan []corev1.FinalizerName, 10)
		before := framework.Unique("before") + ".corp.example.com"
		mgr, _ := newManager(config) // A manager can run several initializers.
		Expect(initializer.Add(mgr, name, func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
			finalizers <- cluster.GetNamespace(Default, ctx, namespace.Name).Spec.Finalizers
			return initializer.Result{}, nil
		}, initializer.WithFinalizer(finalizer))).To(Succeed())
		Expect(initializer.Add(mgr, before, nothing)).To(Succeed())
		run(mgr)
		cluster.Register(ctx, framework.Unique("package"), before, name)

		namespace := wrappers.MakeNamespace(framework.Unique("finalizer")).Label("team", "shop").Obj()
		Expect(admin.Create(ctx, namespace, client.FieldOwner("the-creator"))).To(Succeed())
		Eventually(finalizers).WithContext(ctx).Should(Receive(Equal([]corev1.FinalizerName{corev1.FinalizerKubernetes, finalizer})))
		Eventually(func(g Gomega) {
			now := cluster.GetNamespace(g, ctx, namespace.Name)
			g.Expect(now.Labels).NotTo(HaveKey(v1alpha1.LabelInitializing))
			g.Expect(now.Labels).To(HaveKeyWithValue("team", "shop"))
			// The cached Namespace has no managed fields, but the update must not remove them.
			g.Expect(now.ManagedFields).To(ContainElement(HaveField("Manager", "the-creator")))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(5*time.Minute))
})

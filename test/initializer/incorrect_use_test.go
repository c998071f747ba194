// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initializer

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
	. "github.com/nslifecycle/nslifecycle/test/matchers"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// without returns a copy of serving that lacks the given verbs.
func without(verbs ...string) rbacv1.PolicyRule {
	rule := *serving.DeepCopy()
	rule.Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return slices.Contains(verbs, verb) })
	return rule
}

// reading is the RBAC rule that allows an initializer to read the registered initializers.
var reading = rbacv1.PolicyRule{
	APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"namespaceinitializersets"},
	Verbs: []string{"get"},
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
		_, err := plane.Kubectl(ctx, plane.Admin, fields[1:]...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := plane.Kubectl(ctx, plane.Admin, "delete", fields[2], fields[3])
			Expect(err).NotTo(HaveOccurred())
		})
		count++
	}
	return count
}

// nothing is a function that succeeds immediately.
func nothing(context.Context, *corev1.Namespace) (initializer.Result, error) {
	return initializer.Result{}, nil
}

var _ = Describe("Incorrect use of pkg/initializer", func() {
	const name = "one.wronguse.example.com"

	It("is rejected by Add and Check", func(ctx context.Context) {
		config := newAccount(ctx, unique("incorrect-use"), serving)
		mgr, _ := newManager(config)
		for bad, message := range map[string]string{
			"":                   `the name of an initializer is required`,
			"limits":             "is not fully qualified",
			"Limits.example.com": "is not a DNS name",
			"a.b.c,d.e.f":        "contains a comma",
		} {
			Expect(initializer.Add(mgr, bad, nothing)).To(MatchError(ContainSubstring(message)))
			Expect(initializer.Check(ctx, config, bad)).To(MatchError(ContainSubstring(message)))
		}
		Expect(initializer.Add(mgr, name, nil)).To(MatchError(ContainSubstring("function is nil")))
		Expect(initializer.Add(mgr, name, nothing, initializer.WithWorkers(0))).To(MatchError(ContainSubstring("WithWorkers(0)")))
		Expect(initializer.Add(mgr, name, nothing, initializer.WithBackoff(2, 1))).To(MatchError(ContainSubstring("WithBackoff")))
		Expect(initializer.Add(mgr, name, nothing, initializer.WithFinalizer("kubernetes"))).To(HaveOccurred())
	})

	It("reports a name that is not registered", func(ctx context.Context) {
		config := newAccount(ctx, unique("incorrect-use"), serving, reading)
		err := initializer.Check(ctx, config, name)
		var unregistered *initializer.NotRegisteredError
		Expect(errors.As(err, &unregistered)).To(BeTrue(), "%v", err)
		Expect(unregistered.Name).To(Equal(name))
		Expect(err).To(MatchError(ContainSubstring("NamespaceInitializerConfiguration")))
		logs := serve(ctx, config, name, nothing)
		Eventually(func() string { return string(logs.Contents()) }).WithContext(ctx).Should(ContainSubstring("is not registered yet"))

		// The initializer can be registered later.
		register(ctx, name)
		Expect(initializer.Check(ctx, config, name)).To(Succeed())
		expectReady(ctx, create(ctx, wrappers.MakeNamespace(unique("registered"))).Name)
	}, SpecTimeout(5*time.Minute))

	DescribeTable("reports the missing verb and the commands that grant it",
		func(ctx context.Context, missing string) {
			register(ctx, name)
			account := unique("incorrect-use")
			config := newAccount(ctx, account, without(missing), publishing)
			err := initializer.Check(ctx, config, name)
			var missingErr *initializer.MissingPermissionsError
			Expect(errors.As(err, &missingErr)).To(BeTrue(), "%v", err)
			Expect(missingErr.Missing).To(Equal([]string{missing + " namespaces"}))
			Expect(err).To(MatchError(And(ContainSubstring(userOf(account)), ContainSubstring("not allowed to "+missing+" namespaces"))))

			logs := serve(ctx, config, name, nothing, soon)
			namespace := create(ctx, wrappers.MakeNamespace(unique("rights")))
			Eventually(func() string { return string(logs.Contents()) }).WithContext(ctx).
				Should(And(ContainSubstring("lacks permissions"), ContainSubstring("as an administrator run: ")))
			message := missingErr.Message
			// With list or watch alone, the initializer can observe the namespace: client-go streams the first list.
			if missing == "initialize" || missing == "patch" {
				// The condition also contains the commands.
				Eventually(func(g Gomega) {
					now := get(g, ctx, namespace.Name)
					g.Expect(now).To(HaveCondition(conditionOf(name), corev1.ConditionFalse, "Retrying", "as an administrator run: "))
				}).WithContext(ctx).Should(Succeed())
				Expect(pendingOf(get(Default, ctx, namespace.Name))).To(Equal(name))
			}

			Expect(follow(ctx, message)).To(Equal(2))
			expectReady(ctx, namespace.Name)
			Expect(initializer.Check(ctx, config, name)).To(Succeed())
		},
		Entry("initialize", SpecTimeout(5*time.Minute), "initialize"),
		Entry("patch", SpecTimeout(5*time.Minute), "patch"),
		Entry("list", SpecTimeout(5*time.Minute), "list"),
		Entry("watch", SpecTimeout(5*time.Minute), "watch"),
	)

	It("does not require the permission to publish progress", func(ctx context.Context) {
		register(ctx, name)
		var served calls
		logs := serve(ctx, newAccount(ctx, unique("incorrect-use"), serving), name,
			func(ctx context.Context, namespace *corev1.Namespace) (initializer.Result, error) {
				initializer.Progress(ctx, "Working", "call %d", served.record(namespace))
				if len(served.of(namespace.Name)) <= 2 {
					return initializer.Result{}, errors.New("the first two calls fail")
				}
				return initializer.Result{Message: "done"}, nil
			}, soon)
		names := []string{
			create(ctx, wrappers.MakeNamespace(unique("silent"))).Name,
			create(ctx, wrappers.MakeNamespace(unique("silent"))).Name,
		}
		expectReady(ctx, names...)
		Expect(strings.Count(string(logs.Contents()), "permission to patch namespaces/status")).To(Equal(1))
	}, SpecTimeout(5*time.Minute))

	It("requires permissions at cluster scope", func(ctx context.Context) {
		register(ctx, name)
		account := unique("incorrect-use")
		config := newAccount(ctx, account, without("initialize"))
		namespace := create(ctx, wrappers.MakeNamespace(unique("local")))
		bound := &rbacv1.RoleBinding{
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nslifecycle-namespace-initializer"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: accounts, Name: account}},
		}
		bound.Namespace, bound.Name = namespace.Name, "initializer"
		Expect(admin.Get(ctx, client.ObjectKey{Name: bound.RoleRef.Name}, &rbacv1.ClusterRole{})).To(Succeed())
		Expect(admin.Create(ctx, bound)).To(Succeed())
		framework.ExpectAllowedIn(ctx, config, namespace.Name, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{v1alpha1.VerbInitialize},
		})
		Expect(initializer.Check(ctx, config, name)).To(MatchError(ContainSubstring("not allowed to initialize namespaces")))
	}, SpecTimeout(5*time.Minute))
})

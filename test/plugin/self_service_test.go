// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/nslifecycle/nslifecycle/test/framework"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

var _ = Describe("A user who can only create, get and delete namespaces", func() {
	namespaces := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: verbs}
	}

	It("can run every command that a message proposes", func(ctx context.Context) {
		plane.Register(ctx, "service", "only.service.example.com")
		configMaps := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}
		developer := newRestrictedUser(ctx, plane, unique("developer"), namespaces("create", "get", "delete"), configMaps)
		Expect(developer.kubectl(ctx, nil, "get", "namespaces").stderr).To(ContainSubstring("cannot list"))
		// propose returns the arguments of the command in a message.
		propose := func(message string) []string {
			_, command, ok := strings.Cut(message, "run: kubectl ")
			Expect(ok).To(BeTrue(), message)
			command, _, _ = strings.Cut(command, ";")
			return strings.Fields(command)
		}
		name := unique("service")
		DeferCleanup(func(ctx context.Context) { remove(ctx, name) })

		By("waiting for the initialization")
		created := developer.run(ctx, "create", name)
		Expect(created.code).To(BeZero())
		early := developer.kubectl(ctx, nil, "create", "configmap", "early", "--namespace="+name)
		Expect(developer.kubectl(ctx, nil, propose(early.stderr)...).stdout).To(ContainSubstring("reason: Initializing"))
		waiting := developer.start(append(propose(created.stderr)[1:], "--timeout=10s")...).wait(ctx)
		Expect(waiting.code).To(Equal(1))
		Expect(waiting.stdout).To(ContainSubstring("only.service.example.com  running"))
		explained := developer.kubectl(ctx, nil, propose(waiting.stderr)...)
		Expect(explained.stdout).To(ContainSubstring("Namespace " + name + ": Initializing"))
		interrupted := developer.start("wait", name)
		Eventually(interrupted.stdout).Should(gbytes.Say("running"))
		interrupt(interrupted)
		waiting = interrupted.wait(ctx)
		Expect(waiting.code).To(Equal(130))
		ready := developer.start(propose(waiting.stderr)[1:]...)
		Eventually(ready.stdout).Should(gbytes.Say("running"))
		plane.Finish(ctx, name)
		Expect(ready.wait(ctx).code).To(BeZero())
		Expect(developer.run(ctx, "wait", name).stdout).To(ContainSubstring("namespace/" + name + " initialized"))

		By("listing the namespace")
		list := developer.run(ctx, "list")
		Expect(list.code).To(Equal(1))
		Expect(developer.kubectl(ctx, nil, propose(list.stderr)...).stdout).To(ContainSubstring(name + " "))

		By("waiting for the deletion")
		held := makeConfigMap(ctx, admin, name, "held", testFinalizer)
		DeferCleanup(func(ctx context.Context) { framework.RemoveFinalizers(ctx, admin, held) })
		Expect(developer.run(ctx, "wait", name, "--for=delete").stderr).To(ContainSubstring("is not being deleted"))
		deleted := developer.run(ctx, "delete", name, "--timeout=20s")
		Expect(deleted.code).To(Equal(1))
		Expect(deleted.stdout).To(ContainSubstring("waiting for finalizer " + testFinalizer))
		Expect(developer.run(ctx, "wait", name).stderr).To(ContainSubstring("is being deleted"))
		explained = developer.kubectl(ctx, nil, propose(deleted.stderr)...)
		Expect(explained.stdout).To(And(ContainSubstring("Namespace "+name+": Terminating"),
			ContainSubstring("finalizer "+testFinalizer+" on 1 object")))
		interrupted = developer.start("delete", name)
		Eventually(interrupted.stdout).Should(gbytes.Say("waiting for finalizer " + testFinalizer))
		interrupt(interrupted)
		deleting := developer.start(propose(interrupted.wait(ctx).stderr)[1:]...)
		Eventually(deleting.stdout).Should(gbytes.Say("waiting for finalizer " + testFinalizer))
		Expect(developer.run(ctx, "list", "--mine", "--no-headers").stdout).To(MatchRegexp("^" + name + " +Terminating "))
		framework.RemoveFinalizers(ctx, admin, held)
		finished := deleting.wait(ctx)
		Expect(finished.code).To(BeZero())
		Expect(finished.stdout).To(ContainSubstring(`namespace "` + name + `" deleted`))
		Expect(developer.run(ctx, "wait", name, "--for=delete").code).To(BeZero())
	}, NodeTimeout(testTimeout))

	It("can list the namespaces that they have created", func(ctx context.Context) {
		alice := unique("alice")
		developer := newRestrictedUser(ctx, plane, alice, namespaces("create", "get", "delete"))
		lister := newRestrictedUser(ctx, plane, unique("lister"), namespaces("create", "list"))
		mine := func(who *user, args ...string) []string {
			GinkgoHelper()
			listed := who.run(ctx, append([]string{"list", "--mine", "--no-headers"}, args...)...)
			Expect(listed.code).To(BeZero())
			var names []string
			for line := range strings.Lines(listed.stdout) {
				names = append(names, strings.Fields(line)[0])
			}
			return names
		}
		Expect(mine(developer)).To(BeEmpty())
		first, second, replaced := unique("mine"), unique("mine"), unique("mine")
		for _, name := range []string{first, second, replaced} {
			Expect(developer.run(ctx, "create", name, "--wait", "--labels=test="+name).code).To(BeZero())
			DeferCleanup(func(ctx context.Context) { remove(ctx, name) })
		}
		Expect(developer.run(ctx, "create", unique("mine"), "--dry-run=server").code).To(BeZero())
		Expect(mine(developer)).To(Equal([]string{first, second, replaced}))
		Expect(mine(developer, "--selector=test="+second)).To(Equal([]string{second}))
		Expect(mine(developer, "--state=Terminating")).To(BeEmpty())

		By("omitting namespaces that were deleted, or created by other users")
		Expect(developer.run(ctx, "delete", first).code).To(BeZero())
		remove(ctx, replaced)
		admin.Creates(ctx, wrappers.MakeNamespace(replaced).Obj())
		Expect(mine(developer)).To(Equal([]string{second}))
		other := newRestrictedUser(ctx, plane, unique("bob"), namespaces("create", "get"))
		others := other.runWith(ctx, []string{"HOME=" + developer.home}, "list", "--mine")
		Expect([]string{others.stdout, others.stderr}).To(HaveExactElements(BeEmpty(), HaveSuffix("No namespaces found.\n")))
		Expect(mine(developer)).To(Equal([]string{second}))

		By("filtering the list of users who can list namespaces")
		Expect(lister.run(ctx, "create", first).code).To(BeZero())
		Expect(mine(lister)).To(Equal([]string{first}), "the record contains it, no annotation")
		plane.Register(ctx, "mine", "only.mine.example.com")
		annotated := unique("mine")
		Expect(lister.kubectl(ctx, nil, "create", "namespace", annotated).code).To(BeZero())
		DeferCleanup(func(ctx context.Context) { remove(ctx, annotated) })
		Expect(mine(lister)).To(ConsistOf(first, annotated))
		Expect(lister.run(ctx, "list", "--mine").stderr).To(BeEmpty())

		By("working without the operator")
		config, err := bare.User(alice)
		Expect(err).NotTo(HaveOccurred())
		bare.AddUserWithRules(ctx, alice, namespaces("create", "get"))
		plain := newUser(config)
		name := makeNamespace(ctx, bareAdmin, "other").Name
		Expect(plain.run(ctx, "create", "plain-"+name).code).To(BeZero())
		Expect(mine(plain)).To(Equal([]string{"plain-" + name}))
		finalize(ctx, bareAdmin, "plain-"+name)
		Expect(mine(plain)).To(BeEmpty())
	}, NodeTimeout(testTimeout))
})

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

var _ = Describe("explain", func() {
	var someone *user

	BeforeEach(func() { someone = newUser(bare.Admin) })

	It("says of an active namespace that it is in use, and blames nobody", func(ctx context.Context) {
		namespace := makeNamespace(ctx, bareAdmin, "active")
		explained := someone.run(ctx, "explain", namespace.Name)
		Expect(explained.code).To(Equal(0))
		Expect(explained.stdout).To(And(
			ContainSubstring("Namespace %s: Active for ", namespace.Name), HaveSuffix(", healthy\nIn use.\n"),
		))
		Expect(explained.stderr).To(BeEmpty())
	})

	It("says of a namespace whose deletion has just begun that nothing is to blame", func(ctx context.Context) {
		namespace := makeNamespace(ctx, bareAdmin, "young")
		Expect(bareAdmin.Delete(ctx, namespace)).To(Succeed())
		explained := someone.run(ctx, "explain", namespace.Name)
		Expect(explained.code).To(Equal(0))
		Expect(explained.stdout).To(And(
			ContainSubstring("Terminating for "), ContainSubstring(", progressing\n"),
			HaveSuffix(" There is nothing to blame.\n"),
		))
	})

	It("shows why a namespace is stuck, to people and to programs", func(ctx context.Context) {
		namespace := makeNamespace(ctx, bareAdmin, "stuck")
		held := makeConfigMap(ctx, bareAdmin, namespace.Name, "held", testFinalizer)
		DeferCleanup(release, bareAdmin, held)
		Expect(bareAdmin.Delete(ctx, held)).To(Succeed())
		Expect(bareAdmin.Delete(ctx, namespace)).To(Succeed())

		var explained result
		Eventually(func() int {
			explained = someone.run(ctx, "explain", namespace.Name, "--progress-deadline=1s")
			return explained.code
		}).WithContext(ctx).Should(Equal(3))
		Expect(explained.stdout).To(And(
			ContainSubstring("Namespace %s: Terminating for ", namespace.Name), ContainSubstring(", blocked\n"),
			ContainSubstring("── FinalizerOwnerGone ("), ContainSubstring("Objects: configmaps/held\n"),
			ContainSubstring(testFinalizer),
			ContainSubstring("── kubectl nslifecycle finalize %s --finalizer=%s\n", namespace.Name, testFinalizer),
			ContainSubstring("── Forcing it would lose: "),
		))
		Expect(explained.stderr).To(BeEmpty(), "blocked is an answer, and no error")

		explained = someone.run(ctx, "explain", namespace.Name, "--progress-deadline=1s", "--output=json")
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
		Expect(document.Stage).To(Equal(diagnosis.StageTerminating))
		Expect(document.State).To(Equal(diagnosis.Blocked))
		Expect(document.Findings).NotTo(BeEmpty())
	})

	It("says that a namespace is not there", func(ctx context.Context) {
		Expect(someone.run(ctx, "explain", "missing")).To(Equal(
			result{code: 1, stderr: "error: there is no namespace \"missing\"\n"}))
	})

	It("explains the namespace of the context, and all that are not just active", func(ctx context.Context) {
		active := makeNamespace(ctx, bareAdmin, "context")
		dying := makeNamespace(ctx, bareAdmin, "dying")
		Expect(bareAdmin.Delete(ctx, dying)).To(Succeed())
		Expect(someone.run(ctx, "explain", "-n", active.Name).stdout).To(
			HavePrefix("Namespace %s: Active", active.Name))
		all := someone.run(ctx, "explain", "--all")
		Expect(all.stdout).To(And(
			ContainSubstring("Namespace %s: Terminating", dying.Name), Not(ContainSubstring(active.Name)),
		))
		both := someone.run(ctx, "explain", "--all", active.Name)
		Expect(both.code).To(Equal(1))
		Expect(both.stderr).To(ContainSubstring("not both"))
	})

	It("says which right is missing", func(ctx context.Context) {
		explained := newRestrictedUser(ctx, bare, unique("nobody")).run(ctx, "explain", "default")
		Expect(explained.code).To(Equal(1))
		Expect(explained.stdout).To(BeEmpty())
		Expect(explained.stderr).To(And(HavePrefix("error: "), ContainSubstring("cannot get resource \"namespaces\"")))
	})
})

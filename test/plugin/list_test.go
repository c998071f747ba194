// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("list", func() {
	It("lists the stage of every namespace and what it is waiting for", func(ctx context.Context) {
		active := makeNamespace(ctx, admin, "list")
		terminating := makeNamespace(ctx, admin, "list")
		held := makeConfigMap(ctx, admin, terminating.Name, "held", testFinalizer)
		DeferCleanup(func(ctx context.Context) { release(ctx, admin, held) })
		Expect(admin.Delete(ctx, terminating)).To(Succeed())
		register(ctx, "list", "first.list.example.com", "second.list.example.com")
		initializing := makeNamespace(ctx, admin, "list")

		adminUser := newUser(plane.Admin)
		Eventually(func(g Gomega) {
			lines := rows(adminUser.run(ctx, "list", "-l", "test=list", "--no-headers").stdout)
			g.Expect(lines).To(HaveKeyWithValue(active.Name, MatchRegexp(`^Active +\d+m?s *$`)))
			g.Expect(lines).To(HaveKeyWithValue(initializing.Name,
				MatchRegexp(`^Initializing +\S+ +first\.list\.example\.com \(1 of 2\)`)))
			g.Expect(lines).To(HaveKeyWithValue(terminating.Name, MatchRegexp(`^Terminating +\S+ +finalizer test\.example\.com/hold on 1`)))
		}).WithContext(ctx).Should(Succeed())

		By("filtering and printing JSON")
		listed := adminUser.run(ctx, "list", "--stage=terminating", "-l", "test=list", "-o", "json")
		Expect(listed.code).To(BeZero())
		var list struct {
			APIVersion, Kind string
			Items            []struct {
				Metadata struct{ Name, UID string }
				Stage    string
				WaitsFor []string
			}
		}
		Expect(json.Unmarshal([]byte(listed.stdout), &list)).To(Succeed())
		Expect(list.Kind).To(Equal("NamespaceSummaryList"))
		Expect(list.Items).To(HaveLen(1))
		Expect(list.Items[0].Metadata.Name).To(Equal(terminating.Name))
		Expect(list.Items[0].Metadata.UID).To(BeEquivalentTo(terminating.UID))
		Expect(list.Items[0].WaitsFor).To(Equal([]string{"finalizer " + testFinalizer + " on 1", "1 configmaps"}))
		Expect(adminUser.run(ctx, "list", "-o", "yaml").stdout).To(ContainSubstring("stage: Terminating"))
		Expect(adminUser.run(ctx, "list", "-o", "wide").stdout).To(ContainSubstring("REQUESTED BY"))
	}, NodeTimeout(testTimeout))

	It("works without the operator", func(ctx context.Context) {
		terminating := makeNamespace(ctx, bareAdmin, "plain")
		Expect(bareAdmin.Delete(ctx, terminating)).To(Succeed())
		listed := newUser(bare.Admin).run(ctx, "list")
		Expect(listed.code).To(BeZero())
		Expect(rows(listed.stdout)).To(HaveKeyWithValue(terminating.Name, ContainSubstring("the namespace controller")))
		finalize(ctx, bareAdmin, terminating.Name)
	}, NodeTimeout(testTimeout))

	It("reports missing permissions and invalid arguments", func(ctx context.Context) {
		unprivileged := newRestrictedUser(ctx, bare, "unprivileged")
		listed := unprivileged.run(ctx, "list")
		Expect(listed.code).To(Equal(1))
		Expect(listed.stdout).To(BeEmpty())
		Expect(listed.stderr).To(HavePrefix("error: "))
		Expect(listed.stderr).To(ContainSubstring(`User "unprivileged" cannot list`))

		for _, args := range [][]string{
			{"list", "--stage=Deleted"}, {"list", "-o", "xml"}, {"list", "extra"}, {"lits"}, {"list", "--extra"},
		} {
			wrong := unprivileged.run(ctx, args...)
			Expect(wrong.code).To(Equal(1), strings.Join(args, " "))
			Expect(wrong.stderr).To(HavePrefix("error: "), strings.Join(args, " "))
		}
	}, NodeTimeout(testTimeout))

	It("reports that no namespace matches", func(ctx context.Context) {
		listed := newUser(bare.Admin).run(ctx, "list", "-l", "test=nothing")
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

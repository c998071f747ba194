// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package stolentoken

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

const specTimeout = 10 * time.Minute

// variants are the installations, by the component that is added to config/default.
var variants = map[string]string{
	"default": "", "separate-finalization": "separate-finalization", "without-finalization": "without-finalization",
}

var _ = Describe("The token of a ServiceAccount of the operator", Ordered, func() {
	results := newReport()

	for _, variant := range []string{"default", "separate-finalization", "without-finalization"} {
		Context("with "+variant, Ordered, func() {
			var f *fixtures
			var stop func()
			attackers := map[string]*attacker{}

			BeforeAll(func(ctx context.Context) {
				cluster = framework.StartControlPlane(ctx)
				framework.SkipWithoutPolicies(ctx, cluster.Admin.Config, "no namespaces are created while the manager is stopped")
				installVariant(ctx, variants[variant])
				stop = startManagers(ctx)
				f = createClusterFixtures(ctx)
				expectReady(ctx)
			}, NodeTimeout(specTimeout))

			It("is used on the content of namespaces and on cluster-scoped objects while the managers run", func(ctx context.Context) {
				for _, account := range serviceAccounts(ctx) {
					f.createContent(ctx)
					attackers[account] = newAttacker(ctx, identity{systemNamespace, account}, f)
					before := takeSnapshot(ctx, f.types)
					attackers[account].tryContent(ctx)
					expectExplained(before, takeSnapshot(ctx, f.types), attackers[account].successes)
				}
			}, SpecTimeout(specTimeout))

			It("is used on Namespaces in all states", func(ctx context.Context) {
				stop()
				for _, account := range serviceAccounts(ctx) {
					before := takeSnapshot(ctx, f.types)
					attackers[account].tryNamespaces(ctx)
					after := takeSnapshot(ctx, f.types)
					for path := range after {
						if _, ok := before[path]; !ok {
							delete(after, path) // A Namespace for the attempts.
						}
					}
					expectExplained(before, after, attackers[account].successes)
					results.add(holder{account, variant}, attackers[account])
				}
			}, SpecTimeout(specTimeout))

			if variant == "without-finalization" {
				It("has less power than that of the namespace controller of Kubernetes", func(ctx context.Context) {
					results.sentence = tryNamespaceController(ctx, f)
				}, SpecTimeout(specTimeout))

				// Admission policies do not apply to admission policies, so the policy confine needs narrow roles.
				It("can delete the policy that confines it, if an administrator grants all permissions", func(ctx context.Context) {
					expectUnconfinedWithAllPermissions(ctx, f)
				}, SpecTimeout(specTimeout))
			}
		})
	}

	It("has exactly the power that SECURITY.md documents", func() {
		if len(results.results) == 0 {
			Skip("no variant was tested")
		}
		Expect(sets.List(results.missing)).To(BeEmpty(), "add entries to testdata/purposes.yaml for these permissions")
		Expect(results.unused()).To(BeEmpty(), "testdata/purposes.yaml contains permissions that no ServiceAccount has")
		expectDocumented(results.format())
	})
})

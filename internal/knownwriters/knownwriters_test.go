// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package knownwriters

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

var source = regexp.MustCompile(`^[\w-]+/[\w.-]+@([0-9a-f]{12}|v\d+\.\d+\.\d+):[\w./-]+( [\w./-]+)*$`)

func TestAll(t *testing.T) {
	all := All()
	accounts := map[types.NamespacedName]string{}
	for _, writer := range all {
		t.Run(writer.Name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(writer.ServiceAccounts).NotTo(BeEmpty())
			for _, account := range writer.ServiceAccounts {
				g.Expect(accounts).NotTo(HaveKey(account), "another writer has this ServiceAccount")
				accounts[account] = writer.Name
				g.Expect(validation.IsDNS1123Subdomain(account.Name)).To(BeEmpty())
				if account.Namespace != "" {
					g.Expect(validation.IsDNS1123Label(account.Namespace)).To(BeEmpty())
				}
				// The ClusterRoleBinding of the default holders contains the group of this namespace.
				if account.Namespace == "kube-system" {
					g.Expect(writer.HoldsVerb).To(BeTrue())
				}
			}
			for _, text := range []string{writer.Name, writer.Writes, writer.OnForbidden, writer.OnTooManyRequests} {
				g.Expect(text).NotTo(Or(BeEmpty(), ContainSubstring("|"), HaveSuffix(".")))
			}
			g.Expect(writer.Advice).To(BeElementOf(Grant, Wait, Exclude))
			if writer.Advice == Exclude {
				g.Expect(writer.Setting).NotTo(BeEmpty())
				g.Expect(writer.Kinds).NotTo(BeEmpty())
			} else {
				g.Expect(writer.Setting).To(BeEmpty())
				g.Expect(writer.Kinds).To(BeEmpty())
			}
			g.Expect(writer.Source).To(MatchRegexp(source.String()))
		})
	}
	NewWithT(t).Expect(slices.IsSortedFunc(all, func(a, b Writer) int {
		return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
	})).To(BeTrue())
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestUsers(t *testing.T) {
	const prefix = "system:serviceaccount:system:"
	all := []string{prefix + "nslifecycle-admission", prefix + "nslifecycle-controller-manager", prefix + "nslifecycle-finalization"}
	for name, test := range map[string]struct {
		self string
		want []string
	}{
		"a part in the cluster":      {self: prefix + ControllerManager, want: all},
		"all parts in one process":   {self: "admin", want: append([]string{"admin"}, all...)},
		"an account with other name": {self: prefix + "zz", want: append(all[:len(all):len(all)], prefix+"zz")},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Users("system", test.self)).To(Equal(test.want))
		})
	}
}

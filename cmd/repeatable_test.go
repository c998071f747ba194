// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/nslifecycle/nslifecycle/internal/manager"
)

func TestControllersFlag(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"the default": {want: "*"},
		"one list":    {args: []string{"--controllers=finalization"}, want: "finalization"},
		"several lists": {
			args: []string{"--controllers=*,-diagnosis", "--controllers=-finalization,-diagnosis", "--controllers=expiry"},
			want: "*,-diagnosis,-finalization,-diagnosis,expiry",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var opts options
			flags := flag.NewFlagSet(name, flag.ContinueOnError)
			opts.bind(flags)
			g.Expect(flags.Parse(test.args)).To(Succeed())
			want, err := manager.ParseControllers(test.want)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(opts.parse()).To(Succeed())
			g.Expect(opts.Controllers).To(Equal(want))
		})
	}
}

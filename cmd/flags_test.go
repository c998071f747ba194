// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
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
		// Patches of a Deployment can be combined: each of them adds a flag.
		"several lists": {
			args: []string{"--controllers=*,-diagnosis", "--controllers=-finalization,-diagnosis"},
			want: "*,-diagnosis,-finalization,-diagnosis",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			want, err := manager.ParseControllers(test.want)
			g.Expect(err).NotTo(HaveOccurred())
			opts, err := parseOptions(test.args)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(opts.Controllers).To(Equal(want))
		})
	}
}

func TestInvalidFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--log-level=2":                           `--log-level "2" is neither debug, info nor error`,
		"--log-format=console":                    `--log-format "console" is neither json nor text`,
		"--hold-max-writes=0":                     "at least 1",
		"--webhook-client-allowed-names=a,b":      "requires --webhook-client-ca-file",
		"--concurrent-namespace-finalizations":    "needs an argument",
		"--concurrent-namespace-finalizations=0":  "must be at least 1",
		"--concurrent-namespace-finalizations=-1": "must be at least 1",
		"--source-namespace=a.b":                  `--source-namespace "a.b" is not the name of a namespace`,
		"--source-namespace=":                     `--source-namespace "" is not the name of a namespace`,
		"--settling-time=5s":                      "unknown flag: --settling-time",
		"--controllers=namespaces": `unknown controller "namespaces": specify a comma-separated list of admission, diagnosis, ` +
			"finalization, initialization",
		"--controllers=*,-namespaces": `unknown controller "namespaces"`,
		"--controllers=":              `unknown controller ""`,
		"--controllers=*,-admission,-initialization,-finalization,-diagnosis": "enables no controller",
		"--namespace-finalizer=agent":                                         "such as example.com/agent",
		"--namespace-finalizer=a.example.com/a,kubernetes":                    "is not a valid namespace finalizer",
		"--namespace-finalizer=":                                              `"" is not a valid namespace finalizer`,
		"--finalization-grace-period=5":                                       `neither "Auto" nor a duration such as "5s"`,
		"--finalization-grace-period=-1s":                                     `neither "Auto" nor a duration`,
		"--finalization-grace-period=":                                        `neither "Auto" nor a duration`,
		"--diagnosis-progress-deadline=0s":                                    "--diagnosis-progress-deadline 0s is too short: use 1s or more",
	} {
		t.Run(flag, func(t *testing.T) {
			_, err := parseOptions([]string{flag})
			NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring(want), Not(ContainSubstring("\n")))))
		})
	}
}

func TestSystemNamespace(t *testing.T) {
	for pod, want := range map[string]string{"": "nslifecycle-system", "other": "other"} {
		t.Run(pod, func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("POD_NAMESPACE", pod)
			opts, err := parseOptions(nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(opts.SystemNamespace).To(Equal(want))
		})
	}
}

func TestNewLogger(t *testing.T) {
	for _, level := range []string{"debug", "info", "error"} {
		for _, format := range []string{formatJSON, formatText} {
			t.Run(level+" "+format, func(t *testing.T) {
				g := NewWithT(t)
				var out bytes.Buffer
				log, err := newLogger(&out, level, format)
				g.Expect(err).NotTo(HaveOccurred())
				log.V(1).Info("Debug message")
				log.Info("Info message", "name", "a\u202eb")
				log.Error(errors.New("failed"), "Error message")

				g.Expect(bytes.Contains(out.Bytes(), []byte("Debug message"))).To(Equal(level == "debug"))
				g.Expect(bytes.Contains(out.Bytes(), []byte("Info message"))).To(Equal(level != "error"))
				g.Expect(out.String()).To(And(ContainSubstring("Error message"), Not(ContainSubstring("\u202e"))))
				g.Expect(out.String()).NotTo(ContainSubstring("TestNewLogger"), "a stack")
				last := out.Bytes()[bytes.LastIndexByte(bytes.TrimSpace(out.Bytes()), '\n')+1:]
				g.Expect(json.Valid(last)).To(Equal(format == formatJSON))
			})
		}
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

func TestPrintedCommandsUseTheSameCluster(t *testing.T) {
	for name, test := range map[string]struct {
		args     []string
		command  string
		expected string
	}{
		"no flags": {
			command: "kubectl get pods", expected: "kubectl get pods",
		},
		"cluster and user": {
			args: []string{
				"--context=staging", "--kubeconfig", "/a/config", "-s", "https://a:6443", "--insecure-skip-tls-verify",
				"--as=jane", "--as-group=a", "--as-group=b",
			},
			command: "kubectl nslifecycle explain shop",
			expected: "kubectl nslifecycle --kubeconfig=/a/config --context=staging --server=https://a:6443 " +
				"--insecure-skip-tls-verify=true --as=jane --as-group=a --as-group=b explain shop",
		},
		"credentials, other flags, and flags without a value": {
			args:    []string{"--token=secret", "--proxy-url=http://a:b@c", "--namespace=x", "--request-timeout=5s", "--context="},
			command: "kubectl get pods", expected: "kubectl get pods",
		},
		"another user": {
			args: []string{"--context=staging", "--as=jane", "--as-group=a"}, command: "kubectl get kubectl --as=joe%s",
			expected: "kubectl --context=staging get kubectl --as=joe%s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			session := newSession(genericiooptions.NewTestIOStreamsDiscard())
			g.Expect(session.flagSet.Parse(test.args)).To(Succeed())
			g.Expect(session.withConnection(test.command)).To(Equal(test.expected))
		})
	}
}

func TestConnectRemedies(t *testing.T) {
	remedies := func() []diagnosis.Remedy {
		return []diagnosis.Remedy{
			diagnosis.Inspect("kubectl get pods"), diagnosis.Resolve("Install it."), diagnosis.ResolveWith("Then", "kubectl edit a b"),
		}
	}
	for name, test := range map[string]struct {
		context  string
		expected []string
	}{
		"safe": {context: "staging", expected: []string{
			"kubectl --context=staging get pods", "Install it.", "Then: kubectl --context=staging edit a b",
		}},
		"unsafe": {context: "a b", expected: []string{
			`Run kubectl with the arguments --context="a b" get pods; one of the names cannot be safely pasted into a shell`,
			"Install it.",
			`Then: Run kubectl with the arguments --context="a b" edit a b; one of the names cannot be safely pasted into a shell`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			session := newSession(genericiooptions.NewTestIOStreamsDiscard())
			g.Expect(session.flagSet.Set("context", test.context)).To(Succeed())
			result := &diagnosis.Diagnosis{Findings: []diagnosis.Finding{{Remedies: remedies()}}}
			session.connectRemedies(result)
			texts := []string{}
			for _, remedy := range result.Findings[0].Remedies {
				texts = append(texts, remedy.String())
			}
			g.Expect(texts).To(Equal(test.expected))
		})
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nscondition

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

func TestFind(t *testing.T) {
	g := NewWithT(t)
	namespace := &corev1.Namespace{Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{
		{Type: corev1.NamespaceDeletionDiscoveryFailure}, {Type: corev1.NamespaceContentRemaining},
		{Type: corev1.NamespaceFinalizersRemaining},
	}}}
	g.Expect(Find(namespace, corev1.NamespaceContentRemaining)).To(BeIdenticalTo(&namespace.Status.Conditions[1]))
	g.Expect(Find(namespace, "corp.com/Ready")).To(BeNil())
}

func TestShorten(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"not too long":                        {"12345678", "12345678"},
		"too long":                            {"123456789", "12345..."},
		"truncated inside a character":        {"1234é6789", "1234..."},
		"truncated after a character":         {"123é6789", "123é..."},
		"multi-byte characters, not too long": {"日本", "日本"},
		"a line break is escaped":             {"a\nb", `a\nb`},
		"escaped before it is truncated":      {"12\u202e6", `12\u2...`},
	} {
		if got := Shorten(test.text, 8); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package nsobject

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestProtectionMessage(t *testing.T) {
	const protected = "the operator deletes no namespace with the label nslifecycle.dev/deletion-protection; to allow its deletion, run: " +
		"kubectl label namespace shop nslifecycle.dev/deletion-protection-"
	tests := map[string]struct {
		labels map[string]string
		want   string
	}{
		"no label":      {},
		"another label": {labels: map[string]string{"example.com/deletion-protection": "enabled"}},
		"value enabled": {labels: map[string]string{"nslifecycle.dev/deletion-protection": "enabled"}, want: protected},
		"another value": {labels: map[string]string{"nslifecycle.dev/deletion-protection": "false"}, want: protected},
		"empty value":   {labels: map[string]string{"nslifecycle.dev/deletion-protection": ""}, want: protected},
		"longer key":    {labels: map[string]string{"nslifecycle.dev/deletion-protections": "enabled"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: test.labels}}
			g.Expect(IsProtected(namespace)).To(Equal(test.want != ""))
			g.Expect(ProtectionMessage(namespace)).To(Equal(test.want))
		})
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
)

// Commands, arguments and environment variables of containers can be confidential, so they are ignored.
func TestMakeWorkloadIgnoresArguments(t *testing.T) {
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Image: "registry.test/main", Command: []string{"command"}, Args: []string{"argument"},
		Env: []corev1.EnvVar{{Name: "variable", Value: "value"}},
	}}}}
	workload := makeWorkload(diagnosis.SourceDeployments, &metav1.ObjectMeta{Namespace: "shop", Name: "web"}, template, 1, 1)
	for _, secret := range []string{"command", "argument", "variable", "value"} {
		if text := fmt.Sprintf("%+v", workload); strings.Contains(text, secret) {
			t.Errorf("%s contains %q", text, secret)
		}
	}
}

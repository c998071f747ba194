// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// HasToken tells whether a token is in spec.finalizers of a Namespace.
func HasToken(namespace *corev1.Namespace, token corev1.FinalizerName) bool {
	return slices.Contains(namespace.Spec.Finalizers, token)
}

// WithoutToken returns the tokens of a Namespace but one, in their order.
func WithoutToken(namespace *corev1.Namespace, token corev1.FinalizerName) []corev1.FinalizerName {
	rest := []corev1.FinalizerName{}
	for _, other := range namespace.Spec.Finalizers {
		if other != token {
			rest = append(rest, other)
		}
	}
	return rest
}

// ParseToken returns a token of spec.finalizers, or an error that says what is wrong
// with it. As the API server has it, that is "kubernetes" or a qualified name with a
// domain.
func ParseToken(text string) (corev1.FinalizerName, error) {
	token := corev1.FinalizerName(text)
	if token == corev1.FinalizerKubernetes {
		return token, nil
	}
	problems := validation.IsQualifiedName(text)
	if len(problems) == 0 && !strings.Contains(text, "/") {
		problems = []string{"it needs a domain in front, such as example.com/agent"}
	}
	if len(problems) > 0 {
		return "", fmt.Errorf("%q is no finalizer token of a namespace, use %q or a qualified name: %s",
			text, corev1.FinalizerKubernetes, strings.Join(problems, "; "))
	}
	return token, nil
}

// WhyNotFinalize returns why a terminating Namespace is left alone, or nothing if it
// may be emptied. The own namespace is that of the running program, if it runs in one.
func WhyNotFinalize(namespace *corev1.Namespace, own string) string {
	switch namespace.Name {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
		return fmt.Sprintf("namespace %q is one that no cluster can do without", namespace.Name)
	case own:
		return fmt.Sprintf("nslifecycle runs in namespace %q itself and would remove itself half-way; "+
			"to end the namespace, run the manager outside of the cluster, with `make run`, "+
			"or switch on the namespace controller of kube-controller-manager", namespace.Name)
	default:
		return ""
	}
}

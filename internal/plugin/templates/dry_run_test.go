// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDependsOnUser(t *testing.T) {
	for message, want := range map[string]bool{
		`configmaps is forbidden: User "dev" cannot create resource "configmaps" in API group "" in the namespace "x"`:      true,
		`roles "a" is forbidden: user "dev" (groups=["x"]) is attempting to grant RBAC permissions not currently held`:      true,
		`configmaps "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: locked`:                true,
		`pods "a" is forbidden: violates PodSecurity "restricted:latest": privileged`:                                       false,
		`pods "a" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=1, limited: pods=1`:                  false,
		`admission webhook "validation.gatekeeper.sh" denied the request: [labels] you must provide labels: {"gatekeeper"}`: false,
	} {
		t.Run(message, func(t *testing.T) {
			err := &apierrors.StatusError{ErrStatus: metav1.Status{
				Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message,
			}}
			NewWithT(t).Expect(dependsOnUser(err)).To(Equal(want))
		})
	}
}

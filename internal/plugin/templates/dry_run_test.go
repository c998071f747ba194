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

func TestInfer(t *testing.T) {
	item := func(namespace string, change Change, objects ...ObjectChange) NamespaceChange {
		return NamespaceChange{Namespace: namespace, Change: change, Objects: objects}
	}
	quota := func(change, beforeTry Change) ObjectChange {
		return ObjectChange{Object: "quota", Change: change, beforeTry: beforeTry}
	}
	notes, old := ObjectChange{Object: "notes", Change: Created}, ObjectChange{Change: Deleted}
	g := NewWithT(t)
	result := &Comparison{
		Namespaces: map[Change]int{Failed: 2, Changed: 2, Created: 1}, Objects: map[Change]int{Failed: 2, Changed: 1, Created: 2, Deleted: 1},
		Items: []NamespaceChange{
			item("tried-1", Failed, quota(Failed, Changed)), item("tried-2", Failed, quota(Failed, Changed)),
			item("other-object", Changed, notes), item("same-object", Changed, quota(Changed, ""), old),
			item("other-change", Created, quota(Created, "")),
		},
	}
	result.Infer()
	g.Expect(nonZero(result.Namespaces)).To(Equal(map[Change]int{Failed: 2, LikelyFailed: 1, Changed: 1, Created: 1}))
	g.Expect(nonZero(result.Objects)).To(Equal(map[Change]int{Failed: 2, LikelyFailed: 1, Created: 2}), "nothing is deleted")
	g.Expect(result.Items[2]).To(And(HaveField("Namespace", "same-object"), HaveField("Change", LikelyFailed)))
	g.Expect(result.Items[2].Objects).To(ConsistOf(HaveField("Message", "not tried; the object fails in 2 namespaces that were tried")))
	g.Expect(result.MayFail()).To(BeFalse())

	mixed := &Comparison{
		Namespaces: map[Change]int{}, Objects: map[Change]int{},
		Items: []NamespaceChange{
			item("tried-1", Failed, quota(Failed, Changed)), item("tried-2", Changed, quota(Changed, Changed)),
			item("untried", Changed, quota(Changed, "")),
		},
	}
	mixed.Infer()
	g.Expect(mixed.Items[2].Change).To(Equal(Changed))
	g.Expect(mixed.MayFail()).To(BeTrue())
}

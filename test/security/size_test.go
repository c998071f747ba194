// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/framework"
)

// These specs take a long time because they search for the largest possible Namespace with large
// requests.
var _ = Describe("The size of a Namespace", Label("long"), func() {
	for name, enlarge := range map[string]func(*corev1.Namespace, string){
		"an owner reference": func(n *corev1.Namespace, filler string) {
			n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Filler", Name: filler, UID: "u"}}
		},
		"annotations": func(n *corev1.Namespace, filler string) {
			n.Annotations["example.com/filler"] = filler
		},
		"managed fields": func(n *corev1.Namespace, filler string) {
			n.ManagedFields = append(n.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: "filler", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
				Time: new(metav1.Now()), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + filler + `":{}}}}`),
			})
		},
	} {
		It("does not prevent a failure result or the deletion of the namespace: "+name, func(ctx context.Context) {
			namespace := cluster.CreateInitializing(ctx, "size")
			size := largest(ctx, namespace, enlarge)
			AddReportEntry("largest filler", fmt.Sprint(size))
			Expect(cluster.Initializer.Patch(ctx, namespace, resultPatch(failureResult))).To(Succeed())
			framework.ExpectDeleted(ctx, cluster.Admin, namespace)
		}, SpecTimeout(specTimeout))
	}
})

// failureResult is the result of an initializer that failed.
const failureResult = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"quota exceeded"}`

// largest makes a namespace as large as the API server allows for an ordinary user, and returns the
// size of the filler.
func largest(ctx context.Context, namespace *corev1.Namespace, enlarge func(*corev1.Namespace, string)) int {
	GinkgoHelper()
	low, high := 0, 1600<<10
	var rejection error
	for high-low > 8 {
		middle := (low + high) / 2
		now := cluster.GetNamespace(Default, ctx, namespace.Name)
		base := now.DeepCopy()
		enlarge(now, strings.Repeat("x", middle))
		err := cluster.Ordinary.Patch(ctx, now, client.MergeFrom(base), client.FieldOwner("filler"))
		if err == nil {
			low = middle
			continue
		}
		high, rejection = middle, err
	}
	AddReportEntry("rejection", fmt.Sprintf("%.300s", rejection))
	return low
}

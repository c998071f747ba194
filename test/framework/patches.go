// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MergePatch returns a JSON merge patch.
func MergePatch[T ~string | ~[]byte](body T) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(body))
}

// RemoveFinalizers removes all finalizers of an object that can be deleted already.
func RemoveFinalizers(ctx context.Context, user client.Client, object client.Object) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(user.Patch(ctx, object, MergePatch(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
}

// SetNamespaceFinalizers replaces spec.finalizers of a namespace, if it exists.
func SetNamespaceFinalizers(ctx context.Context, user client.Client, name string, finalizers ...corev1.FinalizerName) {
	GinkgoHelper()
	Eventually(func() error {
		namespace := &corev1.Namespace{}
		if err := user.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
			return client.IgnoreNotFound(err)
		}
		namespace.Spec.Finalizers = finalizers
		return client.IgnoreNotFound(user.SubResource("finalize").Update(ctx, namespace))
	}).WithContext(ctx).Should(Succeed())
}

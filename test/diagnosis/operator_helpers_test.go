// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/test/matchers"
)

func get(g Gomega, ctx context.Context, name string) *corev1.Namespace {
	namespace := &corev1.Namespace{}
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	return namespace
}

// expectDeleted waits until an object no longer exists.
func expectDeleted(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Eventually(func() error {
		return admin.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	}).WithContext(ctx).Should(Satisfy(apierrors.IsNotFound), "%T %s still exists", object, object.GetName())
}

// eventuallyNamespace waits until a namespace matches.
func eventuallyNamespace(ctx context.Context, name string, matcher types.GomegaMatcher) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(get(g, ctx, name)).To(matcher)
	}).WithContext(ctx).Should(Succeed())
}

var HaveCondition = matchers.HaveCondition

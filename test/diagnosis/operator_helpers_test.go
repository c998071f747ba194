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

// get returns a namespace as it is now.
func get(g Gomega, ctx context.Context, name string) *corev1.Namespace {
	namespace := &corev1.Namespace{}
	g.Expect(admin.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	return namespace
}

// expectGone waits until an object is no longer there.
func expectGone(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Eventually(func() error {
		return admin.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	}).WithContext(ctx).Should(Satisfy(apierrors.IsNotFound), "%T %s is still there", object, object.GetName())
}

// eventually waits until a namespace matches.
func eventually(ctx context.Context, name string, matcher types.GomegaMatcher) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(get(g, ctx, name)).To(matcher)
	}).WithContext(ctx).Should(Succeed())
}

// HaveCondition is that of all suites.
var HaveCondition = matchers.HaveCondition

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gcustom"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nslifecycle/nslifecycle/internal/nscondition"
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

// HaveCondition matches a *corev1.Namespace with a condition of this type, status and
// reason, whose message contains all of the texts.
func HaveCondition(
	conditionType corev1.NamespaceConditionType, status corev1.ConditionStatus, reason string, texts ...string,
) types.GomegaMatcher {
	return gcustom.MakeMatcher(func(namespace *corev1.Namespace) (bool, error) {
		condition := nscondition.Find(namespace, conditionType)
		if condition == nil || condition.Status != status || condition.Reason != reason {
			return false, nil
		}
		for _, text := range texts {
			if matches, err := ContainSubstring(text).Match(condition.Message); !matches || err != nil {
				return false, err
			}
		}
		return true, nil
	}).WithTemplate(
		"Expected namespace {{.Actual.Name}} {{.To}} have condition {{.Data}}, it has:\n{{format .Actual.Status.Conditions 1}}",
		fmt.Sprintf("%s=%s (%s) with %q", conditionType, status, reason, texts))
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package matchers contains the Gomega matchers that several suites share.
package matchers

import (
	"fmt"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gcustom"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// HaveCondition matches a *corev1.Namespace that has a condition with the given type, status and
// reason, and with a message that contains all of the given strings.
func HaveCondition(
	conditionType corev1.NamespaceConditionType, status corev1.ConditionStatus, reason string, texts ...string,
) types.GomegaMatcher {
	return gcustom.MakeMatcher(func(namespace *corev1.Namespace) (bool, error) {
		condition := nsobject.FindCondition(namespace, conditionType)
		if condition == nil || condition.Status != status || condition.Reason != reason {
			return false, nil
		}
		for _, text := range texts {
			if matches, err := gomega.ContainSubstring(text).Match(condition.Message); !matches || err != nil {
				return false, err
			}
		}
		return true, nil
	}).WithTemplate(
		"Expected namespace {{.Actual.Name}} {{.To}} have condition {{.Data}}; its conditions are:\n"+
			"{{format .Actual.Status.Conditions 1}}",
		fmt.Sprintf("%s=%s (%s) with %q", conditionType, status, reason, texts))
}

// BeInitializing matches a namespace whose Initializing condition has the given status and reason, and whose condition
// Ready was written with it.
func BeInitializing(status corev1.ConditionStatus, reason string) types.GomegaMatcher {
	ready := corev1.ConditionFalse
	if reason == v1alpha1.ReasonInitialized {
		ready = corev1.ConditionTrue
	}
	return gomega.And(HaveCondition(v1alpha1.ConditionInitializing, status, reason),
		HaveCondition(v1alpha1.ConditionReady, ready, reason))
}

// BeDeniedBy matches the error that the API server returns if the given policy denies a request.
// The message must contain all substrings.
func BeDeniedBy(policy string, substrings ...string) types.GomegaMatcher {
	all := []types.GomegaMatcher{
		gomega.HaveOccurred(),
		gomega.MatchError(gomega.ContainSubstring("ValidatingAdmissionPolicy 'nslifecycle-" + policy + "'")),
	}
	for _, substring := range substrings {
		all = append(all, gomega.MatchError(gomega.ContainSubstring(substring)))
	}
	return gomega.And(all...)
}

// BeForbiddenBy is like BeDeniedBy, but also requires status 403.
func BeForbiddenBy(policy string, substrings ...string) types.GomegaMatcher {
	return gomega.And(BeDeniedBy(policy, substrings...), gomega.Satisfy(apierrors.IsForbidden))
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

func TestActiveCondition(t *testing.T) {
	const leftOutMessage = "all configurations together may name 256 initializers, and those of configurations " +
		"that sort before this one leave no room; none of its initializers is in force: " +
		"remove some initializers, there or here"

	tests := map[string]struct {
		initializers []string
		leftOut      []string
		tooLarge     []string
		merged       []v1alpha1.EffectiveInitializer
		overruled    []v1alpha1.EffectiveInitializer
		reason       string
		message      string
		wantStatus   metav1.ConditionStatus
		wantReason   string
		wantMessage  string
	}{
		"in force": {
			initializers: []string{"rbac.corp.com"},
			reason:       v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEnforced,
			wantMessage: "every new namespace gets these initializers",
		},
		"in force, while another one is left out": {
			initializers: []string{"rbac.corp.com"},
			leftOut:      []string{"another"},
			reason:       v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEnforced,
			wantMessage: "every new namespace gets these initializers",
		},
		"in force where a selector selects": {
			initializers: []string{"rbac.corp.com", "quota.corp.com"},
			merged:       []v1alpha1.EffectiveInitializer{entry(rbac, nil), selecting(entry("quota.corp.com", nil), "team", "a")},
			reason:       v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEnforced,
			wantMessage: "every new namespace gets these initializers; those with a namespaceSelector only where it selects " +
				"the namespace",
		},
		"the selectors of others": {
			initializers: []string{"rbac.corp.com"},
			merged:       []v1alpha1.EffectiveInitializer{entry("rbac.corp.com", nil), selecting(entry("x", nil), "team", "a")},
			reason:       v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEnforced,
			wantMessage: "every new namespace gets these initializers",
		},
		"in force with the settings of another configuration": {
			initializers: []string{"rbac.corp.com"},
			overruled:    []v1alpha1.EffectiveInitializer{entry("rbac.corp.com", nil), entry("quota.corp.com", nil)},
			reason:       v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEnforced,
			wantMessage: "every new namespace gets these initializers; the settings here do not count for rbac.corp.com, " +
				`which has others in configuration "corp", quota.corp.com, which has others in configuration "corp"`,
		},
		"in force with the settings of many others": {
			initializers: []string{"rbac.corp.com"},
			overruled:    entries("corp", "a", "b", "c", "d", "e", "f", "g"),
			reason:       v1alpha1.ReasonEnforced, message: "yes",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEnforced,
			wantMessage: `yes; the settings here do not count for a, which has others in configuration "corp", ` +
				`b, which has others in configuration "corp", c, which has others in configuration "corp", ` +
				`d, which has others in configuration "corp", e, which has others in configuration "corp" and 2 more`,
		},
		"left out for its size": {
			initializers: []string{"rbac.corp.com"},
			leftOut:      []string{"mine"}, tooLarge: []string{"mine"},
			reason: v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonTooManyInitializers,
			wantMessage: "the initializers of all configurations together may have 512 KiB, and those of configurations that " +
				"sort before this one leave no room; none of its initializers is in force: shorten the selectors, there or here",
		},
		"in force without initializers": {
			reason: v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEmpty,
			wantMessage: "this configuration names no initializer, so it adds nothing to new namespaces",
		},
		"the API server does not act on the set yet": {
			initializers: []string{"rbac.corp.com"},
			reason:       v1alpha1.ReasonEnforcementPending, message: "not yet",
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonEnforcementPending, wantMessage: "not yet",
		},
		"a policy is missing, which an empty configuration says too": {
			reason: v1alpha1.ReasonPolicyMissing, message: "gate is missing",
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonPolicyMissing, wantMessage: "gate is missing",
		},
		"left out": {
			initializers: []string{"rbac.corp.com"},
			leftOut:      []string{"another", "mine"},
			reason:       v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonTooManyInitializers,
			wantMessage: leftOutMessage,
		},
		"left out, which installing a policy would not change": {
			initializers: []string{"rbac.corp.com"},
			leftOut:      []string{"mine"},
			reason:       v1alpha1.ReasonPolicyMissing, message: "gate is missing",
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonTooManyInitializers,
			wantMessage: leftOutMessage,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			configuration := wrappers.MakeConfiguration("mine").Generation(7).Initializers(test.initializers...).Obj()
			condition := ActiveCondition(configuration, Merged{
				Initializers: test.merged, LeftOut: test.leftOut, TooLarge: test.tooLarge,
				Overruled: map[string][]v1alpha1.EffectiveInitializer{"mine": test.overruled},
			}, test.reason, test.message)
			g.Expect(condition).To(Equal(metav1.Condition{
				Type:               v1alpha1.ConditionActive,
				Status:             test.wantStatus,
				ObservedGeneration: 7,
				Reason:             test.wantReason,
				Message:            test.wantMessage,
			}))
		})
	}
}

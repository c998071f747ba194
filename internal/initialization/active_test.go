// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package initialization

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

func TestActiveCondition(t *testing.T) {
	tests := map[string]struct {
		initializers []string
		excluded     []string
		tooLarge     []string
		merged       []internalv1alpha1.EffectiveInitializer
		overridden   []internalv1alpha1.EffectiveInitializer
		reason       string
		message      string
		wantStatus   metav1.ConditionStatus
		wantReason   string
		wantMessage  string
	}{
		"enforced": {
			initializers: []string{"rbac.corp.com"},
			reason:       v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEnforced,
			wantMessage: "every new namespace gets these initializers",
		},
		"enforced, while another configuration is excluded": {
			initializers: []string{"rbac.corp.com"},
			excluded:     []string{"another"},
			reason:       v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEnforced,
			wantMessage: "every new namespace gets these initializers",
		},
		"enforced with a selector": {
			initializers: []string{"rbac.corp.com", "quota.corp.com"},
			merged:       []internalv1alpha1.EffectiveInitializer{entry(rbac), selecting(entry("quota.corp.com"), "team", "a")},
			reason:       v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEnforced,
			wantMessage: "every new namespace gets these initializers" + messageSelectorsApply,
		},
		"only another configuration has selectors": {
			initializers: []string{"rbac.corp.com"},
			merged:       []internalv1alpha1.EffectiveInitializer{entry("rbac.corp.com"), selecting(entry("x"), "team", "a")},
			reason:       v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEnforced,
			wantMessage: "every new namespace gets these initializers",
		},
		"enforced with the settings of another configuration": {
			initializers: []string{"rbac.corp.com"},
			overridden:   []internalv1alpha1.EffectiveInitializer{entry("rbac.corp.com"), entry("quota.corp.com")},
			reason:       v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEnforced,
			wantMessage: "every new namespace gets these initializers" +
				overriddenMessage([]internalv1alpha1.EffectiveInitializer{entry(rbac), entry(quota)}),
		},
		"enforced with the settings of many other configurations": {
			initializers: []string{"rbac.corp.com"},
			overridden:   entries("corp", "a", "b", "c", "d", "e", "f", "g"),
			reason:       v1alpha1.ReasonEnforced, message: "yes",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEnforced,
			wantMessage: "yes" + overriddenMessage(entries("corp", "a", "b", "c", "d", "e", "f", "g")),
		},
		"excluded because it is too large": {
			initializers: []string{"rbac.corp.com"},
			excluded:     []string{"mine"}, tooLarge: []string{"mine"},
			reason: v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonTooManyInitializers,
			wantMessage: setTooLargeMessage(),
		},
		"enforced without initializers": {
			reason: v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionTrue, wantReason: v1alpha1.ReasonEmpty,
			wantMessage: messageNoInitializers,
		},
		"enforcement is pending": {
			initializers: []string{"rbac.corp.com"},
			reason:       v1alpha1.ReasonEnforcementPending, message: "pending",
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonEnforcementPending, wantMessage: "pending",
		},
		"an empty configuration reports a missing policy": {
			reason: v1alpha1.ReasonPolicyMissing, message: "gate is missing",
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonPolicyMissing, wantMessage: "gate is missing",
		},
		"excluded": {
			initializers: []string{"rbac.corp.com"},
			excluded:     []string{"another", "mine"},
			reason:       v1alpha1.ReasonEnforced, message: "every new namespace gets these initializers",
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonTooManyInitializers,
			wantMessage: tooManyInitializersMessage(),
		},
		"an excluded configuration does not report a missing policy": {
			initializers: []string{"rbac.corp.com"},
			excluded:     []string{"mine"},
			reason:       v1alpha1.ReasonPolicyMissing, message: "gate is missing",
			wantStatus: metav1.ConditionFalse, wantReason: v1alpha1.ReasonTooManyInitializers,
			wantMessage: tooManyInitializersMessage(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			configuration := wrappers.MakeConfiguration("mine").Generation(7).Initializers(test.initializers...).Obj()
			condition := ActiveCondition(configuration, Merged{
				Initializers: test.merged, Excluded: test.excluded, TooLarge: test.tooLarge,
				Overridden: map[string][]internalv1alpha1.EffectiveInitializer{"mine": test.overridden},
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

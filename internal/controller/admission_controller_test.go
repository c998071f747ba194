// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
)

// verification is a PolicyVerifier with a fixed result.
type verification struct {
	status policyverifier.PolicyStatus
	err    error
}

func (v verification) Verify(context.Context, *internalv1alpha1.NamespaceInitializerSet) (policyverifier.PolicyStatus, error) {
	return v.status, v.err
}

func TestAdmissionReconcile(t *testing.T) {
	enforced := policyverifier.PolicyStatus{
		Reason: v1alpha1.ReasonEnforced, Message: "every new namespace gets these initializers", RetryAfter: time.Minute,
	}
	missing := policyverifier.PolicyStatus{Reason: v1alpha1.ReasonPolicyMissing, Message: "gate", RetryAfter: time.Minute}
	changed := verifiedSet("rbac.corp.com")
	changed.Generation = 8
	for name, test := range map[string]struct {
		// set is nil if it does not exist.
		set        *internalv1alpha1.NamespaceInitializerSet
		result     verification
		patchError error
		wantWrite  string
		wantRetry  time.Duration
		wantError  error
	}{
		"no set":       {},
		"new set":      {set: policytest.Set("rbac.corp.com"), result: verification{status: enforced}, wantWrite: "7 0 True/Enforced/0", wantRetry: time.Minute},
		"no change":    {set: verifiedSet("rbac.corp.com"), result: verification{status: enforced}, wantRetry: time.Minute},
		"changed set":  {set: changed, result: verification{status: enforced}, wantWrite: "7 8 True/Enforced/8", wantRetry: time.Minute},
		"not enforced": {set: verifiedSet(), result: verification{status: missing}, wantWrite: "7 0 False/PolicyMissing/0", wantRetry: time.Minute},
		"unknown":      {set: verifiedSet(), result: verification{err: errOutage}, wantError: errOutage},
		"enforced, but a failure policy cannot be set": {
			set: policytest.Set(), result: verification{status: enforced, err: errOutage},
			wantWrite: "7 0 True/Enforced/0", wantError: errOutage,
		},
		"the cached set is stale": {
			set: policytest.Set(), result: verification{status: enforced}, patchError: errConflict,
			wantWrite: "7 0 True/Enforced/0", wantRetry: conflictRetry,
		},
		"the status cannot be written": {
			set: policytest.Set(), result: verification{status: enforced}, patchError: errOutage,
			wantWrite: "7 0 True/Enforced/0", wantError: errOutage,
		},
		"deleted in the meantime": {
			set: policytest.Set(), result: verification{status: enforced}, patchError: errNotFound,
			wantWrite: "7 0 True/Enforced/0", wantRetry: time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			write := ""
			reconciler := &AdmissionReconciler{
				Client: newFakeClient(interceptor.Funcs{
					Get: func(
						_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption,
					) error {
						if test.set == nil {
							return errNotFound
						}
						test.set.DeepCopyInto(object.(*internalv1alpha1.NamespaceInitializerSet))
						return nil
					},
					SubResourcePatch: func(
						_ context.Context, _ client.Client, _ string, object client.Object, patch client.Patch,
						_ ...client.SubResourcePatchOption,
					) error {
						body, err := bodyOf[internalv1alpha1.NamespaceInitializerSet](object, patch)
						g.Expect(err).NotTo(HaveOccurred())
						condition := body.Status.Conditions[0]
						g.Expect(condition.LastTransitionTime.Time).To(BeTemporally("==", now))
						write = fmt.Sprintf("%s %d %s/%s/%d", body.ResourceVersion, body.Status.ObservedGeneration,
							condition.Status, condition.Reason, condition.ObservedGeneration)
						return test.patchError
					},
				}),
				Policies: test.result, Clock: clocktesting.NewFakePassiveClock(now),
			}
			result, err := reconciler.Reconcile(t.Context(), requestFor(internalv1alpha1.EffectiveSetName))
			if test.wantError == nil {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(test.wantError))
			}
			g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.wantRetry}))
			g.Expect(write).To(Equal(test.wantWrite))
		})
	}
}

// verifiedSet returns the effective set after the admission controller has verified it.
func verifiedSet(names ...string) *internalv1alpha1.NamespaceInitializerSet {
	set := policytest.Set(names...)
	set.Status.ObservedGeneration, set.Status.Enforcement = set.Generation, internalv1alpha1.EnforcementEnforce
	set.Status.Conditions = []metav1.Condition{{
		Type: internalv1alpha1.ConditionEnforced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEnforced,
		Message: "every new namespace gets these initializers", LastTransitionTime: metav1.NewTime(now),
	}}
	protection, err := policyverifier.ProtectionCondition(context.Background(), policytest.NewClient(interceptor.Funcs{}))
	if err != nil {
		panic(err)
	}
	set.Status.Conditions = append(set.Status.Conditions, protection)
	return set
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	discoveryfake "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/install"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	"github.com/nslifecycle/nslifecycle/internal/admission/verify"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
)

func TestPublish(t *testing.T) {
	enforced := verify.Status{
		Reason: v1alpha1.ReasonEnforced, Message: "every new namespace gets these initializers", RetryAfter: time.Minute,
	}
	missing := verify.Status{Reason: v1alpha1.ReasonPolicyMissing, Message: "gate", RetryAfter: time.Minute}
	changed := verifiedSet("rbac.corp.com")
	changed.Generation = 8
	for name, test := range map[string]struct {
		set               *internalv1alpha1.NamespaceInitializerSet
		status            verify.Status
		error, patchError error
		wantWrite         string
		wantRetry         time.Duration
		wantError         error
	}{
		"new set":      {set: policytest.Set("rbac.corp.com"), status: enforced, wantWrite: "7 0 True/Enforced/0", wantRetry: time.Minute},
		"no change":    {set: verifiedSet("rbac.corp.com"), status: enforced, wantRetry: time.Minute},
		"changed set":  {set: changed, status: enforced, wantWrite: "7 8 True/Enforced/8", wantRetry: time.Minute},
		"not enforced": {set: verifiedSet(), status: missing, wantWrite: "7 0 False/PolicyMissing/0", wantRetry: time.Minute},
		"unknown":      {set: verifiedSet(), error: errOutage, wantError: errOutage},
		"enforced, but a failure policy cannot be set": {
			set: policytest.Set(), status: enforced, error: errOutage,
			wantWrite: "7 0 True/Enforced/0", wantError: errOutage,
		},
		"the cached set is stale": {
			set: policytest.Set(), status: enforced, patchError: errConflict,
			wantWrite: "7 0 True/Enforced/0", wantRetry: conflictRetry,
		},
		"the status cannot be written": {
			set: policytest.Set(), status: enforced, patchError: errOutage,
			wantWrite: "7 0 True/Enforced/0", wantError: errOutage,
		},
		"deleted in the meantime": {
			set: policytest.Set(), status: enforced, patchError: errNotFound,
			wantWrite: "7 0 True/Enforced/0", wantRetry: time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			write := ""
			reconciler := &AdmissionReconciler{
				Client: newFakeClient(interceptor.Funcs{
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
				Clock: clocktesting.NewFakePassiveClock(now),
			}
			protection := (&verify.Installed{}).ProtectionCondition()
			result, err := reconciler.publish(t.Context(), test.set, test.status, protection, test.error)
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
	set.Status.Conditions = append(set.Status.Conditions, (&verify.Installed{}).ProtectionCondition())
	return set
}

// TestAdmissionReconcile verifies when the failure policy of inject becomes Fail, and what the status of the set shows.
func TestAdmissionReconcile(t *testing.T) {
	const injected = "rbac.corp.com"
	audit := func(objects []client.Object) []client.Object {
		for _, object := range objects {
			if binding, ok := object.(*admissionv1.ValidatingAdmissionPolicyBinding); ok && strings.HasPrefix(object.GetName(), "gate") {
				binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
			}
		}
		return objects
	}
	none := func(objects []client.Object) []client.Object { return objects }
	for name, test := range map[string]struct {
		change    func([]client.Object) []client.Object
		response  policytest.DryRun
		age       time.Duration
		patch     error
		want      string
		wantError error
		wantFail  bool
		wantRetry time.Duration
	}{
		"confirmed":               {none, policytest.DryRun{Pending: injected}, time.Hour, nil, v1alpha1.ReasonEnforced, nil, true, time.Minute},
		"too young":               {none, policytest.DryRun{Pending: injected}, 55 * time.Second, nil, v1alpha1.ReasonEnforced, nil, false, 5 * time.Second},
		"not confirmed":           {none, policytest.DryRun{}, time.Hour, nil, v1alpha1.ReasonEnforcementPending, nil, false, 2 * time.Second},
		"refused by another rule": {none, policytest.DryRun{Err: policytest.ErrForbidden}, time.Hour, nil, v1alpha1.ReasonEnforced, nil, true, time.Minute},
		"refused by guard":        {none, policytest.DryRun{Err: policytest.ErrDeniedByGuard}, time.Hour, nil, v1alpha1.ReasonRejected, nil, false, 2 * time.Second},
		"an outage":               {none, policytest.DryRun{Err: errOutage}, time.Hour, nil, "", errOutage, false, 0},
		"audited":                 {audit, policytest.DryRun{Pending: injected}, time.Hour, nil, v1alpha1.ReasonAuditMode, nil, true, time.Minute},
		"a policy is missing": {
			func(objects []client.Object) []client.Object { return policytest.Without(objects, "nslifecycle-guard") },
			policytest.DryRun{Pending: injected}, time.Hour, nil, v1alpha1.ReasonPolicyMissing, nil, false, time.Minute,
		},
		"not authorized":     {none, policytest.DryRun{Pending: injected}, time.Hour, policytest.ErrForbidden, v1alpha1.ReasonEnforced, nil, false, time.Minute},
		"Fail cannot be set": {none, policytest.DryRun{Pending: injected}, time.Hour, errOutage, v1alpha1.ReasonEnforced, errOutage, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, ctx := NewWithT(t), t.Context()
				set := policytest.Set(injected)
				set.ResourceVersion, set.CreationTimestamp = "", metav1.NewTime(policytest.Now.Add(-test.age))
				reason, hasWebhooks := "", false
				api := newFakeClient(interceptor.Funcs{
					Create: (&policytest.DryRuns{Responses: []policytest.DryRun{test.response}}).Create,
					Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
						if test.patch != nil && patch.Type() == types.MergePatchType {
							return test.patch
						}
						return c.Patch(ctx, object, patch, options...)
					},
					SubResourcePatch: func(
						_ context.Context, _ client.Client, _ string, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption,
					) error {
						reason = object.(*internalv1alpha1.NamespaceInitializerSet).Status.Conditions[0].Reason
						return nil
					},
				}, append(test.change(policytest.Default(admissionv1.Ignore)), set,
					&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: internalv1alpha1.HoldConfiguration}})...)
				discovery := &discoveryfake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{{
					GroupVersion: "admissionregistration.k8s.io/v1",
					APIResources: []metav1.APIResource{{Name: "mutatingadmissionpolicies"}, {Name: "mutatingadmissionpolicybindings"}},
				}}}}
				clock := clocktesting.NewFakePassiveClock(policytest.Now)
				reconciler := &AdmissionReconciler{
					Client: api, Installer: &install.Installer{Client: api, Live: api, Discovery: discovery, ServerClock: servertime.NewClock(clock)},
					Verifier: &verify.Verifier{Namespaces: api}, Clock: clock, watched: map[string]bool{},
					setupWebhooks: func() error { hasWebhooks = true; return nil },
				}
				for _, object := range policies.MutatingObjects() {
					reconciler.watched[fmt.Sprintf("%T", object)] = true
				}
				result, err := reconciler.Reconcile(ctx, requestFor(internalv1alpha1.EffectiveSetName))
				if test.wantError == nil {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(test.wantError))
				}
				g.Expect(hasWebhooks).To(Equal(test.want != v1alpha1.ReasonPolicyMissing))
				g.Expect(reason).To(Equal(test.want))
				g.Expect(result.RequeueAfter).To(Equal(test.wantRetry))
				inject := &admissionv1.MutatingAdmissionPolicy{}
				g.Expect(api.Get(ctx, client.ObjectKey{Name: internalv1alpha1.InjectConfiguration}, inject)).To(Succeed())
				want := admissionv1.Ignore
				if test.wantFail {
					want = admissionv1.Fail
				}
				g.Expect(inject.Spec.FailurePolicy).To(HaveValue(Equal(want)))
			})
		})
	}
}

// A failed installation is reported, and nothing is verified.
func TestAdmissionNotInstalled(t *testing.T) {
	g := NewWithT(t)
	status, err := (&AdmissionReconciler{}).enforce(t.Context(), policytest.Set(), &install.Result{}, errOutage)
	g.Expect(err).To(MatchError(errOutage))
	g.Expect(status.Reason).To(Equal(verify.NotInstalled(&verify.Installed{}, errOutage).Reason))
}

func TestAdmissionWithoutSet(t *testing.T) {
	reconciler := &AdmissionReconciler{Client: newFakeClient(interceptor.Funcs{})}
	result, err := reconciler.Reconcile(t.Context(), requestFor(internalv1alpha1.EffectiveSetName))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(result).To(BeZero())
}

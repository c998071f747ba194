// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package installcheck

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
)

// The tests in test/installation and test/e2e run the other checks against a real API server.
func TestCheckLeader(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	lease := func(holder string, renewed time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "lease"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &metav1.MicroTime{Time: renewed},
			},
		}
	}
	for name, test := range map[string]struct {
		lease *coordinationv1.Lease
		want  string
	}{
		"no Lease":                  {want: messageNoLease("system", "lease")},
		"released Lease":            {lease: lease("", now), want: messageLeaderStopped},
		"Lease without a holder":    {lease: &coordinationv1.Lease{ObjectMeta: lease("", now).ObjectMeta}, want: messageLeaderStopped},
		"expired Lease":             {lease: lease("pod", now.Add(-16*time.Second)), want: messageLeaseExpired("pod", now.Add(-16*time.Second))},
		"valid Lease":               {lease: lease("pod", now.Add(-15*time.Second))},
		"clock behind the leader's": {lease: lease("pod", now.Add(time.Minute))},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
			if test.lease != nil {
				builder.WithObjects(test.lease)
			}
			checker := Checker{
				Client: builder.Build(), Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: "system", LeaseName: "lease",
			}
			results := checker.Run(t.Context())
			if len(results) != 1 {
				t.Fatalf("got %v, want only the result of the leader check", results)
			}
			err := Join(results)
			if test.want == "" && err != nil {
				t.Errorf("got %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			var out strings.Builder
			Print(&out, results)
			if isOK := strings.HasPrefix(out.String(), "ok    "+checkLeader+"\n"); isOK != (test.want == "") {
				t.Errorf("printed %q", out.String())
			}
		})
	}
}

// TestCheckEnforced verifies that the status of an earlier set is not used.
func TestCheckEnforced(t *testing.T) {
	for name, test := range map[string]struct {
		observed int64
		status   metav1.ConditionStatus
		reason   string
		want     string
		warns    bool
	}{
		"enforced":          {observed: 2, status: metav1.ConditionTrue},
		"audit mode":        {observed: 2, status: metav1.ConditionFalse, reason: v1alpha1.ReasonAuditMode, warns: true},
		"not enforced":      {observed: 2, status: metav1.ConditionFalse, want: "the API server lacks"},
		"earlier set":       {observed: 1, status: metav1.ConditionTrue, want: "--controllers=admission"},
		"without condition": {observed: 2, want: "--controllers=admission"},
	} {
		t.Run(name, func(t *testing.T) {
			set := &internalv1alpha1.NamespaceInitializerSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			set.Status.ObservedGeneration = test.observed
			if test.status != "" {
				set.Status.Conditions = []metav1.Condition{{
					Type: internalv1alpha1.ConditionEnforced, Status: test.status, Reason: test.reason,
					Message: "the API server lacks a policy",
				}}
			}
			warning, err := checkEnforced(set)
			if (warning != "") != test.warns {
				t.Errorf("got warning %q", warning)
			}
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

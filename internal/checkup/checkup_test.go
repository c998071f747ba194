// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package checkup

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
)

// The rest is asked of a real API server, in test/install and test/e2e.
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
		"no Lease":                        {want: `no manager has ever led in namespace "system"`},
		"a Lease that was released":       {lease: lease("", now), want: "the last leader has stopped"},
		"a Lease that has never been had": {lease: &coordinationv1.Lease{ObjectMeta: lease("", now).ObjectMeta}, want: "the last leader has stopped"},
		"a Lease that has run out":        {lease: lease("pod", now.Add(-16*time.Second)), want: "pod leads, but has not said so since 2026-11-21T11:59:44Z"},
		"a Lease that holds":              {lease: lease("pod", now.Add(-15*time.Second))},
		"a clock that is ahead":           {lease: lease("pod", now.Add(time.Minute))},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
			if test.lease != nil {
				builder.WithObjects(test.lease)
			}
			checkup := Checkup{
				Client: builder.Build(), Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: "system", LeaseName: "lease",
			}
			findings := checkup.Run(t.Context())
			if len(findings) != 1 {
				t.Fatalf("without initialization nothing but the leader counts, and not %v", findings)
			}
			err := Failed(findings)
			if test.want == "" && err != nil {
				t.Errorf("got %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v instead of %q", err, test.want)
			}
			var out strings.Builder
			Print(&out, findings)
			if isOK := strings.HasPrefix(out.String(), "ok    a manager is at work\n"); isOK != (test.want == "") {
				t.Errorf("printed %q", out.String())
			}
		})
	}
}

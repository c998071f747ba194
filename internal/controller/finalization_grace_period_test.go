// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
)

// slowWebhook is a webhook that can delay requests.
var slowWebhook = admissionv1.ValidatingWebhookConfiguration{
	ObjectMeta: metav1.ObjectMeta{Name: "slow"},
	Webhooks: []admissionv1.ValidatingWebhook{{Name: "slow.example.com", Rules: []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.OperationAll},
		Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}}}},
}

func TestFinalizationReconcileChoosesTheGracePeriod(t *testing.T) {
	one := []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	two := slices.Concat(one, []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Name: "b"}}})
	tests := map[string]struct {
		server    finalizationServer
		want      time.Duration
		wantLists int
	}{
		"one API server":          {server: finalizationServer{leases: one}, want: time.Second, wantLists: 1},
		"two API servers":         {server: finalizationServer{leases: two}, want: 5 * time.Second},
		"Leases cannot be listed": {server: finalizationServer{leases: one, leasesError: errOutage}, want: 5 * time.Second},
		"a webhook can delay requests": {
			server: finalizationServer{leases: one, webhooks: []admissionv1.ValidatingWebhookConfiguration{slowWebhook}},
			want:   5 * time.Second, wantLists: 1,
		},
		"webhooks cannot be listed": {
			server: finalizationServer{leases: one, webhooksError: errOutage}, want: 5 * time.Second, wantLists: 1,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			test.server.cached = terminating()
			reconciler := test.server.reconciler(events.NewFakeRecorder(10))
			test.server.gracePeriods.Config = finalization.GracePeriod{}
			result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(Equal(test.want))
			g.Expect(test.server.webhookLists).To(Equal(test.wantLists))
		})
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package graceperiod

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/internal/scheme"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// slowWebhook is a webhook that can delay requests.
var slowWebhook = admissionv1.ValidatingWebhookConfiguration{
	ObjectMeta: metav1.ObjectMeta{Name: "slow"},
	Webhooks: []admissionv1.ValidatingWebhook{{Name: "slow.example.com", Rules: []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.OperationAll},
		Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}}}},
}

func TestDelayingWebhooksGet(t *testing.T) {
	const none, some, failed = "none", "some", "failed"
	type call struct {
		// at is the time of the call, and seen is the time when the deletion was first seen. Both
		// are relative to the first call.
		at, seen time.Duration
		// response is the API server's response to a list request.
		response  string
		want      string
		wantLists int
	}
	tests := map[string][]call{
		"all namespaces share a list for one second": {
			{response: none, want: none, wantLists: 1},
			{at: time.Second, seen: time.Second, response: some, want: none},
			{at: time.Second + 1, seen: time.Second, response: some, want: some, wantLists: 1},
		},
		"one list is enough for each deletion": {
			{response: some, want: some, wantLists: 1},
			{at: time.Second, want: some, response: none},
			{at: time.Hour, want: some, response: none},
		},
		"a list from before the deletion is used for only one second": {
			{response: none, want: none, wantLists: 1},
			{at: 500 * time.Millisecond, seen: 500 * time.Millisecond, response: some, want: none},
			{at: 1500 * time.Millisecond, seen: 500 * time.Millisecond, response: some, want: some, wantLists: 1},
		},
		"an error is retried after a second": {
			{response: failed, want: failed, wantLists: 1},
			{at: time.Second, response: none, want: failed},
			{at: time.Second + 1, response: none, want: none, wantLists: 1},
		},
	}
	for name, calls := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var webhooks delayingWebhooks
			for i, call := range calls {
				lists := 0
				reader := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme.New()).Build(), interceptor.Funcs{
					List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
						validating, ok := list.(*admissionv1.ValidatingWebhookConfigurationList)
						if !ok {
							return nil
						}
						lists++
						switch call.response {
						case some:
							validating.Items = []admissionv1.ValidatingWebhookConfiguration{slowWebhook}
						case failed:
							return errors.New("the API server is unavailable")
						}
						return nil
					},
				})
				now := now.Add(call.at)
				names, err := webhooks.get(t.Context(), reader,
					clocktesting.NewFakePassiveClock(now), now.Add(call.seen-call.at), now)
				got := none
				switch {
				case err != nil:
					got = failed
				case len(names) > 0:
					got = some
				}
				g.Expect(got).To(Equal(call.want), "call %d", i)
				g.Expect(lists).To(Equal(call.wantLists), "call %d", i)
			}
		})
	}
}

func TestGracePeriodIsLoggedWhenItChanges(t *testing.T) {
	g := NewWithT(t)
	lines := 0
	ctx := log.IntoContext(t.Context(), funcr.New(func(string, string) { lines++ }, funcr.Options{}))
	leases := fake.NewClientBuilder().WithScheme(scheme.New()).Build()
	passive := clocktesting.NewFakePassiveClock(now)
	source := Source{Leases: leases, Live: leases, Clock: passive, ServerClock: servertime.NewClock(passive)}
	for _, wantLines := range []int{1, 1} {
		g.Expect(source.GracePeriod(ctx, now)).To(Equal(5 * time.Second))
		g.Expect(lines).To(Equal(wantLines))
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "apiserver-1",
			Labels: map[string]string{APIServerLeaseLabel: APIServerLeaseValue},
		},
		Spec: coordinationv1.LeaseSpec{
			RenewTime: ptr.To(metav1.NewMicroTime(now)), LeaseDurationSeconds: ptr.To[int32](3600),
		},
	}
	g.Expect(leases.Create(ctx, lease)).To(Succeed())
	for _, wantLines := range []int{2, 2} {
		g.Expect(source.GracePeriod(ctx, now)).To(Equal(time.Second))
		g.Expect(lines).To(Equal(wantLines))
	}
}

// A manager whose clock is ahead must not treat the Lease of a second API server as expired.
func TestGracePeriodUsesServerClock(t *testing.T) {
	g := NewWithT(t)
	var leases []client.Object
	for name, age := range map[string]time.Duration{"apiserver-1": 0, "apiserver-2": 10 * time.Second} {
		leases = append(leases, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: metav1.NamespaceSystem, Name: name,
				Labels: map[string]string{APIServerLeaseLabel: APIServerLeaseValue},
			},
			Spec: coordinationv1.LeaseSpec{
				RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-age))), LeaseDurationSeconds: ptr.To[int32](3600),
			},
		})
	}
	reader := fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(leases...).Build()
	ahead := now.Add(time.Hour - 5*time.Second)
	source := Source{
		Leases: reader, Live: reader, Clock: clocktesting.NewFakePassiveClock(ahead),
		ServerClock: servertime.NewClock(clocktesting.NewFakePassiveClock(now)),
	}
	g.Expect(source.GracePeriod(t.Context(), ahead)).To(Equal(5 * time.Second))
}

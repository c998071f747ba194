// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package graceperiod

import (
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestParseGracePeriod(t *testing.T) {
	tests := map[string]struct {
		want      GracePeriod
		wantError string
	}{
		"Auto":  {},
		"5s":    {want: GracePeriod{Fixed: ptr.To(5 * time.Second)}},
		"0":     {want: GracePeriod{Fixed: ptr.To(time.Duration(0))}},
		"100ms": {want: GracePeriod{Fixed: ptr.To(100 * time.Millisecond)}},
		"-1s":   {wantError: fmt.Sprintf(invalidGracePeriod, "-1s", automatic)},
		"5":     {wantError: fmt.Sprintf(invalidGracePeriod, "5", automatic)},
		"auto":  {wantError: fmt.Sprintf(invalidGracePeriod, "auto", automatic)},
		"":      {wantError: fmt.Sprintf(invalidGracePeriod, "", automatic)},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			period, err := ParseGracePeriod(text)
			if test.wantError != "" {
				g.Expect(err).To(MatchError(test.wantError))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(period).To(Equal(test.want))
		})
	}
}

func TestGracePeriodChoose(t *testing.T) {
	const duration = 3600
	lease := func(name string, renewed time.Time) coordinationv1.Lease {
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{
			RenewTime: ptr.To(metav1.NewMicroTime(renewed)), LeaseDurationSeconds: ptr.To(int32(duration)),
		}}
	}
	live, last := lease("apiserver-b", now), lease("apiserver-a", now.Add(-duration*time.Second+1))
	expired := lease("apiserver-c", now.Add(-duration*time.Second))
	neverRenewed := lease("apiserver-d", now)
	neverRenewed.Spec.RenewTime = nil
	withoutEnd := lease("apiserver-e", now.Add(-24*time.Hour))
	withoutEnd.Spec.LeaseDurationSeconds = nil

	tests := map[string]struct {
		gracePeriod GracePeriod
		leases      []coordinationv1.Lease
		err         error
		webhooks    []string
		webhookErr  error
		want        time.Duration
		wantReason  string
	}{
		"a fixed grace period": {
			gracePeriod: GracePeriod{Fixed: ptr.To(3 * time.Second)}, leases: []coordinationv1.Lease{live}, err: errors.New("x"),
			webhooks: []string{"a"},
			want:     3 * time.Second, wantReason: graceFixed,
		},
		"a fixed grace period of zero": {
			gracePeriod: GracePeriod{Fixed: ptr.To(time.Duration(0))}, wantReason: graceFixed,
		},
		"no API server": {
			want: 5 * time.Second, wantReason: graceNoLeases,
		},
		"one API server": {
			leases: []coordinationv1.Lease{live}, want: time.Second, wantReason: "there is one API server: apiserver-b",
		},
		"two API servers": {
			leases: []coordinationv1.Lease{live, last},
			want:   5 * time.Second, wantReason: "there are 2 API servers: apiserver-a, apiserver-b",
		},
		"one API server, and webhooks": {
			leases: []coordinationv1.Lease{live}, webhooks: []string{"b", "a"},
			want: 5 * time.Second, wantReason: "admission webhooks can delay requests: 2; the first is a",
		},
		"one API server, and webhooks that cannot be listed": {
			leases: []coordinationv1.Lease{live}, webhookErr: errors.New("x"),
			want: 5 * time.Second, wantReason: "the admission webhooks could not be listed: x",
		},
		"one of two API servers has stopped": {
			leases: []coordinationv1.Lease{expired, live}, want: time.Second, wantReason: "there is one API server: apiserver-b",
		},
		"the only API server has stopped": {
			leases: []coordinationv1.Lease{expired},
			want:   5 * time.Second, wantReason: graceNoLeases,
		},
		"another API server has a Lease without a renewal time": {
			leases: []coordinationv1.Lease{live, neverRenewed},
			want:   5 * time.Second, wantReason: "there are 2 API servers: apiserver-b, apiserver-d",
		},
		"another API server has a Lease without a duration": {
			leases: []coordinationv1.Lease{live, withoutEnd},
			want:   5 * time.Second, wantReason: "there are 2 API servers: apiserver-b, apiserver-e",
		},
		"the Leases cannot be listed": {
			err:  errors.New("x"),
			want: 5 * time.Second, wantReason: "the Leases of the API servers could not be listed: x",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			chosen, reason := test.gracePeriod.Choose(test.leases, test.err, now,
				func() ([]string, error) { return test.webhooks, test.webhookErr })
			g.Expect(chosen).To(Equal(test.want))
			g.Expect(reason).To(Equal(test.wantReason))
		})
	}
}

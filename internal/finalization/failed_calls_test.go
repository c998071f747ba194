// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
)

// The table of docs/design.md: when the last stage starts after an error of a DELETE request.
func TestLastStageAfterError(t *testing.T) {
	status := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message}}
	}
	const (
		atOnce = "at once"
		later  = "after failedCallDelay"
		never  = "never"
	)
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"a missing permission": {
			apierrors.NewForbidden(anyResource, "w", errors.New(`User "x" cannot delete resource "widgets" in API group ""`)), atOnce,
		},
		"a webhook denies":              {status(403, `admission webhook "w" denied the request: no`), atOnce},
		"a policy denies":               {status(422, `ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`), atOnce},
		"a webhook denies with 404":     {errDenied(404), atOnce},
		"a webhook denies with 409":     {errDenied(409), atOnce},
		"the API server rejects":        {apierrors.NewBadRequest("no"), atOnce},
		"no request was sent":           {metadataclient.ErrNotSent, atOnce},
		"a webhook refuses connections": {status(500, `Internal error occurred: failed calling webhook "w": dial tcp: connect: connection refused`), later},
		"a webhook exceeds its timeout": {status(500, `Internal error occurred: failed calling webhook "w": context deadline exceeded`), later},
		"a webhook denies because of an error of its own": {
			status(500, `admission webhook "w" denied the request: failed to read its configuration`), later,
		},
		"admission is not ready":                  {apierrors.NewForbidden(anyResource, "w", errors.New("not yet ready to handle request")), later},
		"a policy has no parameter yet":           {status(422, `ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: x`), later},
		"the token is not accepted":               {apierrors.NewUnauthorized("no"), later},
		"an aggregated API server is unavailable": {errUnavailable, later},
		"a bad gateway":                           {status(502, "bad gateway"), later},
		"an error of etcd":                        {errInternal, later},
		"a timeout":                               {errTimeout, never},
		"a timeout of the server":                 {errNoTime, never},
		"no response":                             {context.DeadlineExceeded, never},
		"the API server refuses connections":      {errOutage, never},
		"throttling":                              {apierrors.NewTooManyRequests("later", 1), never},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := newPasses(t, &contentServer{
				objects: map[string]objects{"widgets": {object("w")}, "configmaps": {object("c")}},
				errors:  map[string]error{"delete widgets/w": test.err},
			})
			got := never
			for pass, elapsed := range []time.Duration{0, failedCallDelay - time.Second, 2 * time.Second} {
				p.server.clock.advance(elapsed)
				if report, _ := p.pass(t, now); report.WaitReason == "" {
					got = map[int]string{0: atOnce, 1: "too early", 2: later}[pass]
					break
				}
			}
			g.Expect(got).To(Equal(test.want))
		})
	}
}

// An aggregated API server that is being updated may serve objects whose controllers need Secrets.
func TestLastStageAfterFailedDiscovery(t *testing.T) {
	g := NewWithT(t)
	p := newPasses(t, &contentServer{objects: map[string]objects{"configmaps": {object("c")}}})
	p.api.results = []discoveryResult{{lists: served(ordinary...), err: errUnavailable}}
	report, _ := p.pass(t, now)
	g.Expect(report.WaitReason).To(Equal(fmt.Sprintf(waitForCalls, discoveryCall, failedCallDelay, nextDependencies)))
	p.server.clock.advance(failedCallDelay)
	report, requests := p.pass(t, now)
	g.Expect(report.WaitReason).To(BeEmpty())
	g.Expect(requests).To(ContainElements(background("configmaps/c")))
}

func TestComputeCallFailures(t *testing.T) {
	const widgets = "widgets.example.com"
	failing := []*typeState{{Remaining: Remaining{Type: widgetsType}, isFailing: true}}
	unlisted := []*typeState{{Remaining: Remaining{Type: widgetsType}, listError: errUnavailable}}
	healthy := []*typeState{{Remaining: Remaining{Type: widgetsType}}}
	lasting, recent := now.Add(-failedCallDelay), now.Add(-failedCallDelay+time.Second)
	for name, test := range map[string]struct {
		known              callFailures
		isDiscoveryFailing bool
		types              []*typeState
		want               callFailures
		wantRecent         []string
	}{
		"no failure":                    {types: healthy, want: callFailures{}},
		"a first failure":               {types: failing, want: callFailures{widgets: now}, wantRecent: []string{widgets}},
		"a type whose server is absent": {types: unlisted, want: callFailures{widgets: now}, wantRecent: []string{widgets}},
		"a recent failure": {
			known: callFailures{widgets: recent}, types: failing, want: callFailures{widgets: recent}, wantRecent: []string{widgets},
		},
		"a failure that lasts":     {known: callFailures{widgets: lasting}, types: failing, want: callFailures{widgets: lasting}},
		"a success ends a failure": {known: callFailures{widgets: lasting}, types: healthy, want: callFailures{}},
		"each call by itself": {
			known: callFailures{widgets: lasting}, types: failing, isDiscoveryFailing: true,
			want: callFailures{widgets: lasting, discoveryCall: now}, wantRecent: []string{discoveryCall},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, recent := computeCallFailures(test.known, test.isDiscoveryFailing, test.types, now)
			g.Expect(got).To(Equal(test.want))
			g.Expect(recent).To(Equal(test.wantRecent))
		})
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier/policytest"
)

// compatServer is a fake API server that responds to dry runs and access reviews.
type compatServer struct {
	// created is the creation timestamp of Namespaces.
	created time.Time
	// plainError and forgedError are returned for dry runs without and with labels.
	plainError, forgedError error
	mayNotInject            bool
	reviewError             error
	dryRuns                 int
}

func (s *compatServer) create(
	_ context.Context, _ client.WithWatch, object client.Object, opts ...client.CreateOption,
) error {
	switch object := object.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		attributes := object.Spec.ResourceAttributes
		object.Status.Allowed = !s.mayNotInject && attributes.Verb == "inject" && attributes.Resource == "namespaces" &&
			attributes.Namespace == "" && attributes.Name == ""
		return s.reviewError
	case *corev1.Namespace:
		options := (&client.CreateOptions{}).ApplyOptions(opts)
		if len(options.DryRun) != 1 || options.DryRun[0] != metav1.DryRunAll {
			return errors.New("the request is not a dry run")
		}
		s.dryRuns++
		if !s.created.IsZero() {
			object.CreationTimestamp = metav1.NewTime(s.created)
		}
		if len(object.Labels) > 0 {
			return s.forgedError
		}
		return s.plainError
	}
	return errors.New("unexpected request")
}

func TestVerify(t *testing.T) {
	enforced := policyverifier.PolicyStatus{Reason: v1alpha1.ReasonEnforced, Message: msgEnforced}
	unconfirmed := policyverifier.PolicyStatus{
		Reason:     v1alpha1.ReasonEnforced,
		Message:    policyverifier.Unconfirmed(enforced, errForbidden).Message,
		RetryAfter: time.Minute,
	}
	lacking := Server{LacksMutatingPolicies: true}
	tests := map[string]struct {
		server    Server
		installed []client.Object
		api       compatServer
		since     time.Duration
		want      policyverifier.PolicyStatus
		wantError string
	}{
		"enforced": {
			server: lacking, installed: policytest.Compat(), api: compatServer{forgedError: errDeniedByGuard}, want: enforced,
		},
		"config/compat after an upgrade of the API server": {
			installed: policytest.Compat(), api: compatServer{forgedError: errDeniedByGuard},
			want: policyverifier.PolicyStatus{
				Reason:  v1alpha1.ReasonEnforced,
				Message: msgEnforced + msgUpgrade,
			},
		},
		"an initializer that is enforced after the current second": {
			server: lacking, installed: policytest.Compat(), api: compatServer{forgedError: errDeniedByGuard}, since: time.Second,
			want: policyverifier.PolicyStatus{
				Reason:     v1alpha1.ReasonEnforcementPending,
				Message:    msgNextSecond,
				RetryAfter: time.Second,
			},
		},
		"the guard policy is not enforced": {
			server: lacking, installed: policytest.Compat(),
			want: policyverifier.PolicyStatus{
				Reason:     v1alpha1.ReasonEnforcementPending,
				Message:    msgGuardPending,
				RetryAfter: 2 * time.Second,
			},
		},
		"another project's policy denies the label": {
			server: lacking, installed: policytest.Compat(), api: compatServer{forgedError: errForbidden}, want: unconfirmed,
		},
		"another project's policy denies all namespaces": {
			server: lacking, installed: policytest.Compat(),
			api: compatServer{plainError: errForbidden, forgedError: errForbidden}, want: unconfirmed,
		},
		"the guard policy denies all namespaces": {
			server: lacking, installed: policytest.Compat(), api: compatServer{plainError: errDeniedByGuard, forgedError: errDeniedByGuard},
			want: policyverifier.Refused(errDeniedByGuard),
		},
		"the operator is not authorized": {
			server: lacking, installed: policytest.Compat(), api: compatServer{forgedError: errDeniedByGuard, mayNotInject: true},
			want: policyverifier.PolicyStatus{
				Reason:     v1alpha1.ReasonRefused,
				Message:    msgUnauthorized,
				RetryAfter: 2 * time.Second,
			},
		},
		"the policies in config/default are installed": {
			server: lacking, installed: policytest.Default(admissionv1.Fail)[6:],
			want: policyverifier.PolicyStatus{
				Reason:  v1alpha1.ReasonPolicyMismatch,
				Message: msgNotInitialized + msgMismatch,
			},
		},
		"a policy is missing": {
			server: lacking, installed: policytest.Without(policytest.Compat(), "guard-binding"),
			want: policyverifier.PolicyStatus{
				Reason:  v1alpha1.ReasonPolicyMissing,
				Message: msgNotInitialized + msgMissing([]string{`a ValidatingAdmissionPolicyBinding for "guard"`}),
			},
		},
		"the policies in both directories are installed": {
			installed: append(policytest.Compat(), policytest.Default(admissionv1.Fail)[:6]...),
			want: policyverifier.PolicyStatus{
				Reason: v1alpha1.ReasonPolicyMismatch,
				Message: "policy \"guard\" is the variant in config/compat, which denies the changes that policy \"inject\" makes; " +
					"run: kubectl apply -k config/default",
			},
		},
		"the access review fails": {
			server: lacking, installed: policytest.Compat(), api: compatServer{reviewError: errOutage},
			wantError: `failed to check the permission for the verb "inject" on namespaces: ` + errOutage.Error(),
		},
		"the first dry run fails": {
			server: lacking, installed: policytest.Compat(), api: compatServer{plainError: errOutage},
			wantError: "failed to create a namespace as a dry run: " + errOutage.Error(),
		},
		"the second dry run fails": {
			server: lacking, installed: policytest.Compat(), api: compatServer{forgedError: errOutage},
			wantError: "failed to create a namespace as a dry run: " + errOutage.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			test.api.created = now
			verifier := newVerifier(interceptor.Funcs{Create: test.api.create}, test.installed...)
			verifier.Server = test.server
			status, err := verifier.Verify(t.Context(), enforcedSince(now.Add(test.since)))
			if test.wantError != "" {
				g.Expect(err).To(MatchError(test.wantError))
				g.Expect(status).To(BeZero())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(status).To(Equal(test.want))

			// The verification is repeated until the set is confirmed.
			isConfirmed := test.want.Reason == v1alpha1.ReasonEnforced && test.want.RetryAfter == 0
			before := test.api.dryRuns
			test.api.dryRuns = 0
			again, err := verifier.Verify(t.Context(), enforcedSince(now.Add(test.since)))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(Equal(test.want))
			if isConfirmed {
				before = 0
			}
			g.Expect(test.api.dryRuns).To(Equal(before), "dry runs")
		})
	}
}

func TestStamp(t *testing.T) {
	old := metav1.NewTime(now.Add(-time.Hour))
	known := []v1alpha1.EffectiveInitializer{{Name: "rbac.corp.com", InForceSince: &old}}
	fresh := []v1alpha1.EffectiveInitializer{{Name: "rbac.corp.com"}, {Name: "quota.corp.com"}}
	tests := map[string]struct {
		api         compatServer
		wanted      []v1alpha1.EffectiveInitializer
		want        []time.Time
		wantDryRuns int
		wantError   error
	}{
		"no new initializer": {wanted: fresh[:1], want: []time.Time{old.Time}},
		"a new initializer gets the next second of the API server's clock": {
			api: compatServer{created: now.Add(-5 * time.Second)}, wanted: fresh,
			want: []time.Time{old.Time, now.Add(-4 * time.Second)}, wantDryRuns: 1,
		},
		"the dry run is denied, so a new initializer gets the next second of the operator's clock": {
			api: compatServer{plainError: errForbidden}, wanted: fresh,
			want: []time.Time{old.Time, now.Add(time.Second)}, wantDryRuns: 1,
		},
		"the API server is unavailable": {
			api: compatServer{plainError: errOutage}, wanted: fresh, wantDryRuns: 1, wantError: errOutage,
		},
		"the API server returns no time": {wanted: fresh, wantDryRuns: 1, wantError: errNoCreationTimestamp},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			verifier := newVerifier(interceptor.Funcs{Create: test.api.create}, policytest.Compat()...)
			verifier.Server = Server{LacksMutatingPolicies: true}
			stamped, err := verifier.Stamp(t.Context(), test.wanted, known)
			g.Expect(test.api.dryRuns).To(Equal(test.wantDryRuns))
			if test.wantError != nil {
				g.Expect(errors.Is(err, test.wantError)).To(BeTrue(), "%v", err)
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			var times []time.Time
			for _, entry := range stamped {
				times = append(times, entry.InForceSince.Time)
			}
			g.Expect(times).To(Equal(test.want))
		})
	}
}

func TestCheckInstalled(t *testing.T) {
	old := Server{LacksMutatingPolicies: true}
	for name, test := range map[string]struct {
		server    Server
		installed []client.Object
		// wantOperator means that the operator injects the pending list.
		wantOperator bool
		want         string
	}{
		"config/default": {installed: policytest.Default(admissionv1.Fail)},
		"config/default without a binding": {
			installed: policytest.Without(policytest.Default(admissionv1.Fail), "inject-binding"),
			want:      `the API server lacks a MutatingAdmissionPolicyBinding for "inject", so`,
		},
		"no policies":                         {want: "the API server lacks MutatingAdmissionPolicy"},
		"config/compat on an old API server":  {server: old, installed: policytest.Compat(), wantOperator: true},
		"config/compat after an upgrade":      {installed: policytest.Compat(), wantOperator: true},
		"config/default on an old API server": {server: old, installed: policytest.Default(""), wantOperator: true, want: "config/compat"},
		"config/compat without a policy": {
			server: old, installed: policytest.Without(policytest.Compat(), "nslifecycle-gate"), wantOperator: true,
			want: `the API server lacks ValidatingAdmissionPolicy "gate"; run`,
		},
		"config/default without a policy for templates": {
			installed: policytest.Without(policytest.Default(admissionv1.Fail), "nslifecycle-template-objects"),
			want: `the API server lacks ValidatingAdmissionPolicy "template-objects", so it does not enforce the rules of ` +
				`NamespaceTemplates; run: kubectl apply -k config/default`,
		},
		"config/compat without a binding for templates": {
			server: old, installed: policytest.Without(policytest.Compat(), "authors-binding"), wantOperator: true,
			want: "run: kubectl apply -k config/compat",
		},
		"policies in both directories": {
			installed: append(policytest.Compat(), policytest.Default("")[:6]...),
			want:      "is the variant in config/compat",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			verifier := newVerifier(interceptor.Funcs{}, test.installed...)
			verifier.Server = test.server
			operatorInjects, err := verifier.CheckInstalled(t.Context())
			g.Expect(operatorInjects).To(Equal(test.wantOperator))
			if test.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(test.want)))
			}
		})
	}
}

func newVerifier(funcs interceptor.Funcs, installed ...client.Object) *Verifier {
	return NewVerifier(policytest.NewClient(funcs, installed...), clocktesting.NewFakePassiveClock(now), Server{})
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// compatServer plays the API server's part where the operator injects.
type compatServer struct {
	// created is when it says that a Namespace was created.
	created time.Time
	// plainError and forgedError answer dry runs without and with our label.
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
			return errors.New("this is not a dry run")
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
	return errors.New("this is not expected")
}

func TestAdmissionObserveWhereTheOperatorInjects(t *testing.T) {
	inForce := Verdict{Reason: v1alpha1.ReasonEnforced, Message: inForceByOperator}
	unconfirmed := Verdict{
		Reason:     v1alpha1.ReasonEnforced,
		Message:    inForceByOperator + "; a dry run could not confirm it: " + errForbidden.Error(),
		RetryAfter: time.Minute,
	}
	lacking := Server{LacksMutatingPolicies: true}
	tests := map[string]struct {
		server    Server
		installed []client.Object
		api       compatServer
		since     time.Duration
		want      Verdict
		wantError string
	}{
		"all is well": {
			server: lacking, installed: compatInstalled(), api: compatServer{forgedError: errOurs}, want: inForce,
		},
		"the API server could do it itself": {
			installed: compatInstalled(), api: compatServer{forgedError: errOurs},
			want: Verdict{
				Reason:  v1alpha1.ReasonEnforced,
				Message: inForceByOperator + "; this API server can do better: run: kubectl apply -k config/default",
			},
		},
		"an initializer comes into force with the next second": {
			server: lacking, installed: compatInstalled(), api: compatServer{forgedError: errOurs}, since: time.Second,
			want: Verdict{
				Reason:     v1alpha1.ReasonEnforcementPending,
				Message:    "the operator gives these initializers to namespaces that are created from the next second on",
				RetryAfter: time.Second,
			},
		},
		"guard is not enforced": {
			server: lacking, installed: compatInstalled(),
			want: Verdict{
				Reason:     v1alpha1.ReasonEnforcementPending,
				Message:    "the API server does not act on policy guard yet; this takes some seconds after an installation",
				RetryAfter: 2 * time.Second,
			},
		},
		"somebody else refuses what is forged": {
			server: lacking, installed: compatInstalled(), api: compatServer{forgedError: errForbidden}, want: unconfirmed,
		},
		"somebody else refuses everything": {
			server: lacking, installed: compatInstalled(),
			api: compatServer{plainError: errForbidden, forgedError: errForbidden}, want: unconfirmed,
		},
		"guard refuses everything": {
			server: lacking, installed: compatInstalled(), api: compatServer{plainError: errOurs, forgedError: errOurs},
			want: refusedByUs(errOurs),
		},
		"the operator may not inject": {
			server: lacking, installed: compatInstalled(), api: compatServer{forgedError: errOurs, mayNotInject: true},
			want: Verdict{
				Reason: v1alpha1.ReasonRefused,
				Message: `new namespaces are not initialized: the operator does not hold verb "inject" on namespaces; run: ` +
					"kubectl apply -k config/compat",
				RetryAfter: 2 * time.Second,
			},
		},
		"the policies are those for a newer API server": {
			server: lacking, installed: installedWith(admissionv1.Fail)[6:],
			want: Verdict{
				Reason: v1alpha1.ReasonPolicyMismatch,
				Message: "new namespaces are not initialized: policy guard is the one for API servers that serve " +
					"MutatingAdmissionPolicy v1, and this one does not; run: kubectl apply -k config/compat",
			},
		},
		"a policy is missing": {
			server: lacking, installed: withoutPolicy(compatInstalled(), "guard-binding"),
			want: Verdict{
				Reason: v1alpha1.ReasonPolicyMissing,
				Message: "new namespaces are not initialized: the API server lacks a ValidatingAdmissionPolicyBinding for " +
					`"guard"; run: kubectl apply -k config/compat`,
			},
		},
		"both kinds of policies are there": {
			installed: append(compatInstalled(), installedWith(admissionv1.Fail)[:6]...),
			want: Verdict{
				Reason: v1alpha1.ReasonPolicyMismatch,
				Message: "policy guard is the one of config/compat, which refuses what policy inject gives to new namespaces; " +
					"run: kubectl apply -k config/default",
			},
		},
		"whether it may inject could not be found out": {
			server: lacking, installed: compatInstalled(), api: compatServer{reviewError: errOutage},
			wantError: "asking the API server whether the operator may inject: " + errOutage.Error(),
		},
		"a dry run could not be made": {
			server: lacking, installed: compatInstalled(), api: compatServer{plainError: errOutage},
			wantError: "creating a namespace as a dry run: " + errOutage.Error(),
		},
		"nor the other one": {
			server: lacking, installed: compatInstalled(), api: compatServer{forgedError: errOutage},
			wantError: "creating a namespace as a dry run: " + errOutage.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			test.api.created = now
			admission := newAdmission(interceptor.Funcs{Create: test.api.create}, test.installed...)
			admission.Server = test.server
			verdict, err := admission.Observe(t.Context(), forceSince(now.Add(test.since)))
			if test.wantError != "" {
				g.Expect(err).To(MatchError(test.wantError))
				g.Expect(verdict).To(BeZero())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verdict).To(Equal(test.want))

			// What is proven is not asked for again, and nothing else is taken for granted.
			isProven := test.want.Reason == v1alpha1.ReasonEnforced && test.want.RetryAfter == 0
			before := test.api.dryRuns
			test.api.dryRuns = 0
			again, err := admission.Observe(t.Context(), forceSince(now.Add(test.since)))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(Equal(test.want))
			if isProven {
				before = 0
			}
			g.Expect(test.api.dryRuns).To(Equal(before), "dry runs")
		})
	}
}

func TestAdmissionStamp(t *testing.T) {
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
		"nothing is new": {wanted: fresh[:1], want: []time.Time{old.Time}},
		"the next second of the API server's clock": {
			api: compatServer{created: now.Add(-5 * time.Second)}, wanted: fresh,
			want: []time.Time{old.Time, now.Add(-4 * time.Second)}, wantDryRuns: 1,
		},
		"of the own clock where somebody refuses": {
			api: compatServer{plainError: errForbidden}, wanted: fresh,
			want: []time.Time{old.Time, now.Add(time.Second)}, wantDryRuns: 1,
		},
		"the API server does not answer": {
			api: compatServer{plainError: errOutage}, wanted: fresh, wantDryRuns: 1, wantError: errOutage,
		},
		"the API server does not tell its time": {wanted: fresh, wantDryRuns: 1, wantError: errNoTime},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			admission := newAdmission(interceptor.Funcs{Create: test.api.create})
			stamped, err := admission.Stamp(t.Context(), test.wanted, known)
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

func TestServerWatch(t *testing.T) {
	const policies = "admissionregistration.k8s.io/v1"
	mutatingServed := &metav1.APIResourceList{GroupVersion: policies, APIResources: []metav1.APIResource{
		{Name: "mutatingadmissionpolicies"}, {Name: "mutatingadmissionpolicybindings"},
	}}
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		api := &clienttesting.Fake{Resources: []*metav1.APIResourceList{{GroupVersion: policies}}}
		watch := &serverWatch{
			Discovery: &fake.FakeDiscovery{Fake: api}, Server: Server{LacksMutatingPolicies: true}, Interval: time.Minute,
		}
		g.Expect(watch.NeedLeaderElection()).To(BeFalse())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		g.Expect(watch.Start(ctx)).To(Succeed(), "nothing has changed")
		g.Expect(ctx.Err()).To(HaveOccurred())

		api.Resources = []*metav1.APIResourceList{mutatingServed}
		err := watch.Start(t.Context())
		g.Expect(err).To(MatchError(errServerChanged))
		g.Expect(err).To(MatchError(HaveSuffix(Server{}.String())))
	})
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
)

var (
	errOutage    = policytest.ErrUnavailable
	errForbidden = policytest.ErrForbidden

	deniedByTemplates = policytest.Denied(policies.ValidatingKind, "nslifecycle-templates", "not allowed to use template")
	deniedByInject    = policytest.Denied("policy", "nslifecycle-inject", "paramKind is not yet synced to use for admission")
	deniedByImpostor  = policytest.Denied(policies.ValidatingKind, "labels", `"inject.nslifecycle.dev" and 'nslifecycle-guard' denied request: no`)
)

func TestVerify(t *testing.T) {
	const list = "rbac.corp.com,quota.corp.com"
	pending := Status{
		Reason:     v1alpha1.ReasonEnforcementPending,
		Message:    messageNotYet,
		RetryAfter: 2 * time.Second,
	}
	unconfirmed := func(err error) Status {
		return Status{
			Reason: v1alpha1.ReasonEnforced, Message: messageEnforced + messageUnconfirmed(err), RetryAfter: UnconfirmedRetryInterval,
			MayFail: true,
		}
	}
	enforced := Status{Reason: v1alpha1.ReasonEnforced, Message: messageEnforced, RetryAfter: serverInterval, MayFail: true}

	tests := map[string]struct {
		isEmpty   bool
		responses []policytest.DryRun

		want      Status
		wantError string
		// wantOnce means that a single dry run is expected.
		wantOnce bool
	}{
		"a new namespace gets the pending list": {
			responses: []policytest.DryRun{{Pending: list}},
			want:      enforced, wantOnce: true,
		},
		"with an empty set, a new namespace gets no pending list": {
			isEmpty: true, responses: []policytest.DryRun{{}},
			want: enforced, wantOnce: true,
		},
		"a new namespace gets the pending list after a few dry runs": {
			responses: []policytest.DryRun{{}, {Pending: "rbac.corp.com"}, {Pending: list}},
			want:      enforced,
		},
		"a new namespace gets no pending list": {
			responses: []policytest.DryRun{{}},
			want:      pending,
		},
		"a new namespace gets the previous pending list": {
			isEmpty: true, responses: []policytest.DryRun{{Pending: list}},
			want: pending,
		},
		"a new namespace gets the pending list in another order": {
			responses: []policytest.DryRun{{Pending: "quota.corp.com,rbac.corp.com"}},
			want:      pending,
		},
		"another project's policy forbids new namespaces": {
			responses: []policytest.DryRun{{Err: errForbidden}},
			want:      unconfirmed(errForbidden), wantOnce: true,
		},
		"another project's policy rejects new namespaces as invalid": {
			responses: []policytest.DryRun{{Err: apierrors.NewBadRequest("no")}},
			want:      unconfirmed(apierrors.NewBadRequest("no")), wantOnce: true,
		},
		"the guard policy denies new namespaces": {
			responses: []policytest.DryRun{{Err: policytest.ErrDeniedByGuard}},
			want: Status{
				Reason:     v1alpha1.ReasonRejected,
				Message:    messageRefused(policytest.ErrDeniedByGuard),
				RetryAfter: 2 * time.Second,
			},
			wantOnce: true,
		},
		"a policy of this project that does not inject denies new namespaces": {
			responses: []policytest.DryRun{{Err: deniedByTemplates}},
			want:      unconfirmed(deniedByTemplates), wantOnce: true,
		},
		"inject cannot be evaluated": {
			responses: []policytest.DryRun{{Err: deniedByInject}},
			want: Status{
				Reason: v1alpha1.ReasonRejected, Message: messageRefused(deniedByInject), RetryAfter: 2 * time.Second,
			},
			wantOnce: true,
		},
		"another project's policy names one of this project": {
			responses: []policytest.DryRun{{Err: deniedByImpostor}},
			want:      unconfirmed(deniedByImpostor), wantOnce: true,
		},
		"the API server is unavailable": {
			responses: []policytest.DryRun{{Err: errOutage}},
			wantError: "failed to create a namespace as a dry run: " + errOutage.Error(), wantOnce: true,
		},
		"the API server is unavailable, with an empty set": {
			isEmpty: true, responses: []policytest.DryRun{{Err: errOutage}},
			wantError: "failed to create a namespace as a dry run: " + errOutage.Error(), wantOnce: true,
		},
		"the request times out, with an empty set": {
			isEmpty: true, responses: []policytest.DryRun{{Err: context.DeadlineExceeded}},
			want: pending, wantOnce: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// Verify waits on a fake clock.
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := &policytest.DryRuns{Responses: test.responses}
				set := policytest.Set("rbac.corp.com", "quota.corp.com")
				if test.isEmpty {
					set.Initializers = nil
				}
				status, err := newVerifier(server.Create).Verify(t.Context(), set, installed(t, policytest.Default("")...))
				g.Expect(status).To(Equal(test.want))
				if test.wantError == "" {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(ContainSubstring(test.wantError)))
				}
				wantDryRuns := BeNumerically(">", 1)
				if test.wantOnce {
					wantDryRuns = BeNumerically("==", 1)
				}
				g.Expect(server.Count).To(wantDryRuns, "dry runs")
			})
		})
	}
}

func TestVerifyWithoutPolicies(t *testing.T) {
	g := NewWithT(t)
	server := &policytest.DryRuns{Responses: []policytest.DryRun{{}}}
	found := installed(t, policytest.Without(policytest.Default(admissionv1.Fail), "nslifecycle-guard")...)
	g.Expect(newVerifier(server.Create).Verify(t.Context(), policytest.Set("rbac.corp.com"), found)).To(Equal(Status{
		Reason:  v1alpha1.ReasonPolicyMissing,
		Message: messageMissing([]string{`ValidatingAdmissionPolicy "guard"`}), RetryAfter: serverInterval,
	}))
	g.Expect(server.Count).To(BeZero(), "dry runs")
}

func TestVerifyWithWebhooks(t *testing.T) {
	failing := apierrors.NewInternalError(errors.New(`failed calling webhook "inject.nslifecycle.dev": no endpoints`))
	enforced := func(message string, retryAfter time.Duration, mayWebhooksFail bool) Status {
		return Status{
			Reason: v1alpha1.ReasonEnforced, Message: messageEnforced + message, RetryAfter: retryAfter, MayFail: true,
			WebhooksMayFail: mayWebhooksFail,
		}
	}
	for name, test := range map[string]struct {
		hasNoWebhooks, servesMutating bool
		// isEmpty is true for a set without initializers.
		isEmpty  bool
		response policytest.DryRun
		want     Status
	}{
		"the webhook selects no dry runs": {isEmpty: true, want: enforced("", serverInterval, false)},
		"a policy or the webhook injects": {
			servesMutating: true, response: policytest.DryRun{Pending: "rbac.corp.com"}, want: enforced("", serverInterval, false),
		},
		"the webhook injects": {
			response: policytest.DryRun{Pending: "rbac.corp.com"}, want: enforced("", serverInterval, true),
		},
		"the webhook does not inject": {
			want: Status{Reason: v1alpha1.ReasonEnforcementPending, Message: messagePending(false), RetryAfter: retryInterval},
		},
		"the webhook does not answer": {
			response: policytest.DryRun{Err: failing},
			want:     Status{Reason: v1alpha1.ReasonRejected, Message: messageRefused(failing), RetryAfter: retryInterval},
		},
		"a webhook of another project rejects the dry run, maybe before the webhook is called": {
			response: policytest.DryRun{Err: errForbidden}, want: enforced(messageUnconfirmed(errForbidden), time.Minute, false),
		},
		"a policy rejects the dry run after the webhook was called": {
			response: policytest.DryRun{Err: deniedByTemplates}, want: enforced(messageUnconfirmed(deniedByTemplates), time.Minute, true),
		},
		"the webhooks select no requests": {
			hasNoWebhooks: true,
			want: Status{
				Reason: v1alpha1.ReasonPolicyMissing, Message: messageMissing([]string{messageNoWebhook}), RetryAfter: serverInterval,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := &policytest.DryRuns{Responses: []policytest.DryRun{test.response}}
				found := installed(t, policytest.Default(admissionv1.Fail)...)
				if !test.hasNoWebhooks {
					found.Webhooks = "uid"
				}
				if found.ServesMutating = test.servesMutating; !test.servesMutating {
					found.policies = slices.DeleteFunc(found.policies, func(o Object) bool { return o.kind == policies.MutatingKind })
				}
				set := policytest.Set("rbac.corp.com")
				if test.isEmpty {
					set.Initializers = nil
				}
				g.Expect(newVerifier(server.Create).Verify(t.Context(), set, found)).To(Equal(test.want))
			})
		})
	}
}

func TestNotInstalled(t *testing.T) {
	g := NewWithT(t)
	found := installed(t, policytest.Default(admissionv1.Fail)...)
	g.Expect(NotInstalled(found, errOutage)).To(BeZero())
	g.Expect(NotInstalled(found, errForbidden)).To(Equal(Status{
		Reason: v1alpha1.ReasonEnforcementPending, Message: messageNotInjecting(errForbidden),
	}))
}

func TestWarning(t *testing.T) {
	templates := policytest.Set()
	templates.Templates = []internalv1alpha1.EffectiveTemplate{{Name: "team"}}
	confining := policytest.Set("rbac.corp.com")
	confining.Initializers[0].Confinement = v1alpha1.ConfinementInitializingNamespaces
	confining.Initializers[0].Subjects = []v1alpha1.Subject{{Kind: v1alpha1.SubjectServiceAccount, Namespace: "corp", Name: "bot"}}
	for name, test := range map[string]struct {
		missing string
		set     *internalv1alpha1.NamespaceInitializerSet
		want    string
	}{
		"no templates":           {"nslifecycle-templates", policytest.Set("rbac.corp.com"), ""},
		"templates":              {"nslifecycle-templates", templates, messageTemplatesUnprotected([]string{`ValidatingAdmissionPolicy "templates"`})},
		"no confined subject":    {"nslifecycle-initializer-authors", policytest.Set("rbac.corp.com"), ""},
		"a confined subject":     {"nslifecycle-initializer-authors", confining, messageConfinementUnprotected([]string{`ValidatingAdmissionPolicy "initializer-authors"`})},
		"no limits":              {"nslifecycle-confine", templates, "; " + messageUnlimited([]string{`ValidatingAdmissionPolicy "confine"`})},
		"limits are not bound":   {"confine-binding", templates, "; " + messageUnlimited([]string{`a ValidatingAdmissionPolicyBinding for "confine"`})},
		"nothing is missing":     {"", templates, ""},
		"settings without users": {"nslifecycle-unused-settings", templates, ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := installed(t, policytest.Without(policytest.Default(admissionv1.Fail), test.missing)...)
			NewWithT(t).Expect(found.warning(test.set)).To(Equal(test.want))
		})
	}
}

func TestVerifyReturnsWhenContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		ctx, cancel := context.WithTimeout(t.Context(), probeTimeout/2)
		defer cancel()
		server := &policytest.DryRuns{Responses: []policytest.DryRun{{}}}
		found := installed(t, policytest.Default(admissionv1.Fail)...)
		status, err := newVerifier(server.Create).Verify(ctx, policytest.Set("rbac.corp.com"), found)
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		g.Expect(status).To(BeZero())
	})
}

// The result of a dry run that was sent before the timeout is used. Otherwise, no dry run would
// ever succeed on a slow API server.
func TestVerifyWithSlowAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		delay   time.Duration
		pending string
		want    string
	}{
		"a slow API server that enforces the set":         {delay: probeTimeout * 2, pending: "rbac.corp.com", want: v1alpha1.ReasonEnforced},
		"a slow API server that does not enforce the set": {delay: probeTimeout * 2 / 3, want: v1alpha1.ReasonEnforcementPending},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := &policytest.DryRuns{Responses: []policytest.DryRun{{Pending: test.pending}}}
				slow := func(
					ctx context.Context, cl client.WithWatch, object client.Object, opts ...client.CreateOption,
				) error {
					select {
					case <-time.After(test.delay):
						return server.Create(ctx, cl, object, opts...)
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				found := installed(t, policytest.Default(admissionv1.Fail)...)
				status, err := newVerifier(slow).Verify(t.Context(), policytest.Set("rbac.corp.com"), found)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(status.Reason).To(Equal(test.want))
			})
		})
	}
}

func TestVerifyConfirmsEachVersionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := &policytest.DryRuns{Responses: []policytest.DryRun{{Pending: "rbac.corp.com"}}}
		verifier, set, objects := newVerifier(server.Create), policytest.Set("rbac.corp.com"), policytest.Default(admissionv1.Fail)
		expect := func(dryRuns int, reason string) {
			t.Helper()
			for _, want := range []int{dryRuns, 0} {
				server.Count = 0
				status, err := verifier.Verify(t.Context(), set, installed(t, objects...))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(status.Reason).To(Equal(reason))
				g.Expect(server.Count).To(Equal(want), "dry runs")
			}
		}
		expect(1, v1alpha1.ReasonEnforced)
		set.ResourceVersion = "8" // The status of the set has changed.
		expect(0, v1alpha1.ReasonEnforced)
		set.Generation++
		expect(1, v1alpha1.ReasonEnforced)
		set.UID = "another-uid"
		expect(1, v1alpha1.ReasonEnforced)
		objects[0].SetUID("another-uid") // The policy inject, and its binding.
		expect(1, v1alpha1.ReasonEnforced)
		objects[1].SetUID("another-uid")
		expect(1, v1alpha1.ReasonEnforced)

		// While a policy is missing, no set is confirmed.
		all := slices.Clone(objects)
		objects = policytest.Without(objects, "nslifecycle-gate")
		expect(0, v1alpha1.ReasonPolicyMissing)
		objects = all
		expect(1, v1alpha1.ReasonEnforced)
	})
}

func TestVerifyRetriesUnconfirmedSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := &policytest.DryRuns{Responses: []policytest.DryRun{{Err: errForbidden}, {Pending: "rbac.corp.com"}}}
		verifier, found := newVerifier(server.Create), installed(t, policytest.Default(admissionv1.Fail)...)
		for _, message := range []string{messageEnforced + messageUnconfirmed(errForbidden), messageEnforced} {
			status, err := verifier.Verify(t.Context(), policytest.Set("rbac.corp.com"), found)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(status.Message).To(Equal(message))
		}
		g.Expect(server.Count).To(Equal(2), "dry runs")
	})
}

type createFunc = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error

func newVerifier(create createFunc) *Verifier {
	return &Verifier{Namespaces: policytest.NewClient(interceptor.Funcs{Create: create})}
}

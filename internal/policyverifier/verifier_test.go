// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package policyverifier

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/mutation"
	"github.com/nslifecycle/nslifecycle/internal/policyapply"
	"github.com/nslifecycle/nslifecycle/test/framework/policytest"
)

var (
	now          = policytest.Now
	errOutage    = policytest.ErrUnavailable
	errForbidden = policytest.ErrForbidden

	deniedByTemplates = policytest.Denied(validatingKind, "nslifecycle-templates", "not allowed to use template")
	deniedByInject    = policytest.Denied("policy", "nslifecycle-inject", "paramKind is not yet synced to use for admission")
	deniedByImpostor  = policytest.Denied(validatingKind, "labels", `"inject.nslifecycle.dev" and 'nslifecycle-guard' denied request: no`)
)

func TestVerify(t *testing.T) {
	const (
		list = "rbac.corp.com,quota.corp.com"
		// old is the age of the set after which the failure policy is set to Fail.
		old = time.Minute
	)
	pending := PolicyStatus{
		Reason:     v1alpha1.ReasonEnforcementPending,
		Message:    msgNotYet,
		RetryAfter: 2 * time.Second,
	}
	unconfirmed := func(err error, retryAfter time.Duration) PolicyStatus {
		return PolicyStatus{
			Reason:     v1alpha1.ReasonEnforced,
			Message:    msgEnforced + msgUnconfirmed(err),
			RetryAfter: retryAfter,
		}
	}
	enforced := PolicyStatus{Reason: v1alpha1.ReasonEnforced, Message: msgEnforced, RetryAfter: serverInterval}

	tests := map[string]struct {
		failurePolicy admissionv1.FailurePolicyType
		isEmpty       bool
		age           time.Duration
		responses     []policytest.DryRun
		// patchError is the error that the patch of the inject policy returns.
		patchError error

		want        PolicyStatus
		wantError   string
		wantPatched bool
		// wantOnce means that a single dry run is expected.
		wantOnce bool
	}{
		"a new namespace gets the pending list": {
			failurePolicy: admissionv1.Fail, responses: []policytest.DryRun{{Pending: list}},
			want: enforced, wantOnce: true,
		},
		"with an empty set, a new namespace gets no pending list": {
			failurePolicy: admissionv1.Fail, isEmpty: true, responses: []policytest.DryRun{{}},
			want: enforced, wantOnce: true,
		},
		"a new namespace gets the pending list after a few dry runs": {
			failurePolicy: admissionv1.Fail, responses: []policytest.DryRun{{}, {Pending: "rbac.corp.com"}, {Pending: list}},
			want: enforced,
		},
		"a new namespace gets no pending list": {
			failurePolicy: admissionv1.Ignore, age: old, responses: []policytest.DryRun{{}},
			want: pending,
		},
		"a new namespace gets the previous pending list": {
			failurePolicy: admissionv1.Fail, isEmpty: true, responses: []policytest.DryRun{{Pending: list}},
			want: pending,
		},
		"a new namespace gets the pending list in another order": {
			failurePolicy: admissionv1.Fail, responses: []policytest.DryRun{{Pending: "quota.corp.com,rbac.corp.com"}},
			want: pending,
		},
		"another project's policy forbids new namespaces": {
			failurePolicy: admissionv1.Fail, responses: []policytest.DryRun{{Err: errForbidden}},
			want: unconfirmed(errForbidden, time.Minute), wantOnce: true,
		},
		"another project's policy rejects new namespaces as invalid": {
			failurePolicy: admissionv1.Fail, responses: []policytest.DryRun{{Err: apierrors.NewBadRequest("no")}},
			want: unconfirmed(apierrors.NewBadRequest("no"), time.Minute), wantOnce: true,
		},
		"the guard policy denies new namespaces": {
			failurePolicy: admissionv1.Ignore, age: old, responses: []policytest.DryRun{{Err: policytest.ErrDeniedByGuard}},
			want: PolicyStatus{
				Reason:     v1alpha1.ReasonRejected,
				Message:    msgRefused(policytest.ErrDeniedByGuard),
				RetryAfter: 2 * time.Second,
			},
			wantOnce: true,
		},
		"a policy of this project that does not inject denies new namespaces": {
			failurePolicy: admissionv1.Ignore, age: old, responses: []policytest.DryRun{{Err: deniedByTemplates}},
			want: unconfirmed(deniedByTemplates, time.Minute), wantPatched: true, wantOnce: true,
		},
		"inject cannot be evaluated": {
			failurePolicy: admissionv1.Fail, responses: []policytest.DryRun{{Err: deniedByInject}},
			want: PolicyStatus{
				Reason: v1alpha1.ReasonRejected, Message: msgRefused(deniedByInject), RetryAfter: 2 * time.Second,
			},
			wantOnce: true,
		},
		"another project's policy names one of this project": {
			failurePolicy: admissionv1.Fail, responses: []policytest.DryRun{{Err: deniedByImpostor}},
			want: unconfirmed(deniedByImpostor, time.Minute), wantOnce: true,
		},
		"the API server is unavailable": {
			failurePolicy: admissionv1.Ignore, age: old, responses: []policytest.DryRun{{Err: errOutage}},
			wantError: "failed to create a namespace as a dry run: " + errOutage.Error(), wantOnce: true,
		},
		"the API server is unavailable, with an empty set": {
			failurePolicy: admissionv1.Fail, isEmpty: true, responses: []policytest.DryRun{{Err: errOutage}},
			wantError: "failed to create a namespace as a dry run: " + errOutage.Error(), wantOnce: true,
		},
		"the request times out, with an empty set": {
			failurePolicy: admissionv1.Fail, isEmpty: true, responses: []policytest.DryRun{{Err: context.DeadlineExceeded}},
			want: pending, wantOnce: true,
		},

		// The failure policy of the inject policy.
		"the set is too young for Fail": {
			failurePolicy: admissionv1.Ignore, age: old - 5*time.Second, responses: []policytest.DryRun{{Pending: list}},
			want:     PolicyStatus{Reason: v1alpha1.ReasonEnforced, Message: msgEnforced, RetryAfter: 5 * time.Second},
			wantOnce: true,
		},
		"the set is old enough for Fail": {
			failurePolicy: admissionv1.Ignore, age: old, responses: []policytest.DryRun{{Pending: list}},
			want: enforced, wantPatched: true, wantOnce: true,
		},
		"failurePolicy is not set": {
			age: old, responses: []policytest.DryRun{{Pending: list}},
			want: enforced, wantPatched: true, wantOnce: true,
		},
		"another project's policy does not prevent Fail": {
			failurePolicy: admissionv1.Ignore, age: old, responses: []policytest.DryRun{{Err: errForbidden}},
			want: unconfirmed(errForbidden, time.Minute), wantPatched: true, wantOnce: true,
		},
		"the earlier of two retries is used": {
			failurePolicy: admissionv1.Ignore, age: old - 5*time.Second, responses: []policytest.DryRun{{Err: errForbidden}},
			want: unconfirmed(errForbidden, 5*time.Second), wantOnce: true,
		},
		"the operator is not authorized to set Fail": {
			failurePolicy: admissionv1.Ignore, age: old, responses: []policytest.DryRun{{Pending: list}}, patchError: errForbidden,
			want: PolicyStatus{
				Reason:     v1alpha1.ReasonEnforced,
				Message:    msgEnforced + msgFailurePolicyForbidden("nslifecycle-inject") + msgNotApplied,
				RetryAfter: time.Minute,
			},
			wantOnce: true,
		},
		"the set is enforced, but setting Fail returns an error": {
			failurePolicy: admissionv1.Ignore, age: old, responses: []policytest.DryRun{{Pending: list}}, patchError: errOutage,
			want: enforced, wantOnce: true,
			wantError: `failed to set failurePolicy of "nslifecycle-inject" to Fail: ` + errOutage.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// Verify waits on a fake clock.
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := &policytest.DryRuns{Responses: test.responses}
				funcs := interceptor.Funcs{Create: server.Create}
				if test.patchError != nil {
					funcs.Patch = policytest.FailingPatch(test.patchError)
				}
				verifier := newVerifier(funcs, policytest.Default(test.failurePolicy)...)
				set := policytest.Set("rbac.corp.com", "quota.corp.com")
				if test.isEmpty {
					set.Initializers = nil
				}
				set.CreationTimestamp = metav1.NewTime(now.Add(-test.age))

				status, err := verifier.Verify(t.Context(), set)
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

				var inject admissionv1.MutatingAdmissionPolicy
				g.Expect(verifier.Get(t.Context(), client.ObjectKey{Name: "nslifecycle-inject"}, &inject)).To(Succeed())
				want := test.failurePolicy
				if test.wantPatched {
					want = admissionv1.Fail
				}
				g.Expect(*inject.Spec.FailurePolicy).To(Equal(want))
			})
		})
	}
}

func TestEnsureFail(t *testing.T) {
	names := map[string]string{
		"nslifecycle-templates":                  internalv1alpha1.PolicyTemplates,
		"nslifecycle-waiting-subjects":           internalv1alpha1.PolicyWaitingSubjects,
		"nslifecycle-waiting-subjects-resources": internalv1alpha1.PolicyWaitingSubjects,
		"nslifecycle-initializer-subjects":       internalv1alpha1.PolicyInitializerSubjects,
		"nslifecycle-gate":                       internalv1alpha1.PolicyGate,
	}
	templates := func(set *internalv1alpha1.NamespaceInitializerSet) {
		set.Templates = []internalv1alpha1.EffectiveTemplate{{Name: "team"}}
	}
	waiting := []v1alpha1.Subject{{Kind: v1alpha1.SubjectUser, Name: "ops@corp.com"}}
	tests := map[string]struct {
		age        time.Duration
		set        func(*internalv1alpha1.NamespaceInitializerSet)
		patchError error
		want       PolicyStatus
		wantFail   []string
	}{
		"with neither templates nor subjects": {age: policyapply.RecognizedAfter, set: func(*internalv1alpha1.NamespaceInitializerSet) {}},
		"the set is too young": {
			age: policyapply.RecognizedAfter - 5*time.Second, set: templates, want: PolicyStatus{RetryAfter: 5 * time.Second},
		},
		"with a template": {age: policyapply.RecognizedAfter, set: templates, wantFail: []string{"nslifecycle-templates"}},
		"with a waiting subject": {
			age: policyapply.RecognizedAfter, set: func(set *internalv1alpha1.NamespaceInitializerSet) { set.WaitingSubjects = waiting },
			wantFail: []string{
				"nslifecycle-initializer-subjects", "nslifecycle-waiting-subjects", "nslifecycle-waiting-subjects-resources",
			},
		},
		"with the subject of an initializer": {
			age: policyapply.RecognizedAfter, set: func(set *internalv1alpha1.NamespaceInitializerSet) { set.Initializers[1].Subjects = waiting },
			wantFail: []string{"nslifecycle-initializer-subjects"},
		},
		"not authorized": {
			age: policyapply.RecognizedAfter, set: templates, patchError: errForbidden,
			want: PolicyStatus{Message: msgFailurePolicyForbidden("nslifecycle-templates"), RetryAfter: time.Minute},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var policies []client.Object
			for name, label := range names {
				policy := policytest.ValidatingPolicy(name, label)
				policy.Spec.FailurePolicy = ptr.To(admissionv1.Ignore)
				policies = append(policies, policy)
			}
			var funcs interceptor.Funcs
			if test.patchError != nil {
				funcs.Patch = policytest.FailingPatch(test.patchError)
			}
			verifier := newVerifier(funcs, policies...)
			set := policytest.Set("rbac.corp.com", "quota.corp.com")
			test.set(set)
			set.CreationTimestamp = metav1.NewTime(now.Add(-test.age))
			found, err := list(t.Context(), verifier)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verifier.ensureFail(t.Context(), set, found, PolicyStatus{})).To(Equal(test.want))

			var list admissionv1.ValidatingAdmissionPolicyList
			g.Expect(verifier.Client.List(t.Context(), &list)).To(Succeed())
			var failing []string
			for _, policy := range list.Items {
				if *policy.Spec.FailurePolicy == admissionv1.Fail {
					failing = append(failing, policy.Name)
				}
			}
			g.Expect(failing).To(ConsistOf(test.wantFail))
		})
	}
}

func TestVerifyWithoutPolicies(t *testing.T) {
	g := NewWithT(t)
	server := &policytest.DryRuns{Responses: []policytest.DryRun{{}}}
	verifier := newVerifier(interceptor.Funcs{Create: server.Create}, policytest.Without(policytest.Default(admissionv1.Fail), "nslifecycle-guard")...)
	g.Expect(verifier.Verify(t.Context(), policytest.Set("rbac.corp.com"))).To(Equal(PolicyStatus{
		Reason:  v1alpha1.ReasonPolicyMissing,
		Message: msgMissing([]string{`ValidatingAdmissionPolicy "guard"`}), RetryAfter: serverInterval,
	}))
	g.Expect(server.Count).To(BeZero(), "dry runs")
}

func TestVerifyWithWebhooks(t *testing.T) {
	const webhooks = "uid"
	failing := apierrors.NewInternalError(errors.New(`failed calling webhook "inject.nslifecycle.dev": no endpoints`))
	for name, test := range map[string]struct {
		state mutation.State
		// isEmpty is true for a set without initializers.
		isEmpty  bool
		response policytest.DryRun
		want     PolicyStatus
		wantFail bool
	}{
		"the webhook selects no dry runs": {
			state: mutation.State{Webhooks: webhooks}, isEmpty: true,
			want: PolicyStatus{Reason: v1alpha1.ReasonEnforced, Message: msgEnforced, RetryAfter: serverInterval},
		},
		"a policy or the webhook injects": {
			state:    mutation.State{Webhooks: webhooks, ServesPolicies: true},
			response: policytest.DryRun{Pending: "rbac.corp.com"},
			want:     PolicyStatus{Reason: v1alpha1.ReasonEnforced, Message: msgEnforced, RetryAfter: serverInterval},
		},
		"the webhook injects": {
			state: mutation.State{Webhooks: webhooks}, response: policytest.DryRun{Pending: "rbac.corp.com"},
			want:     PolicyStatus{Reason: v1alpha1.ReasonEnforced, Message: msgEnforced, RetryAfter: serverInterval},
			wantFail: true,
		},
		"the webhook does not inject": {
			state: mutation.State{Webhooks: webhooks},
			want:  PolicyStatus{Reason: v1alpha1.ReasonEnforcementPending, Message: msgPending(mutation.State{}), RetryAfter: retryInterval},
		},
		"the webhook does not answer": {
			state: mutation.State{Webhooks: webhooks}, response: policytest.DryRun{Err: failing},
			want: PolicyStatus{Reason: v1alpha1.ReasonRejected, Message: msgRefused(failing), RetryAfter: retryInterval},
		},
		"a webhook of another project rejects the dry run, maybe before the webhook is called": {
			state: mutation.State{Webhooks: webhooks}, response: policytest.DryRun{Err: errForbidden},
			want: PolicyStatus{
				Reason: v1alpha1.ReasonEnforced, Message: msgEnforced + msgUnconfirmed(errForbidden), RetryAfter: time.Minute,
			},
		},
		"a policy rejects the dry run after the webhook was called": {
			state: mutation.State{Webhooks: webhooks}, response: policytest.DryRun{Err: deniedByTemplates},
			want: PolicyStatus{
				Reason: v1alpha1.ReasonEnforced, Message: msgEnforced + msgUnconfirmed(deniedByTemplates), RetryAfter: time.Minute,
			},
			wantFail: true,
		},
		"the webhooks select no requests": {
			want: PolicyStatus{
				Reason: v1alpha1.ReasonPolicyMissing, Message: msgMissing([]string{msgNoWebhook}), RetryAfter: serverInterval,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := &policytest.DryRuns{Responses: []policytest.DryRun{test.response}}
				installed := slices.DeleteFunc(policytest.Default(admissionv1.Fail), func(object client.Object) bool {
					if test.state.ServesPolicies {
						return false
					}
					_, isValidating := object.(*admissionv1.ValidatingAdmissionPolicy)
					_, isBinding := object.(*admissionv1.ValidatingAdmissionPolicyBinding)
					return !isValidating && !isBinding
				})
				verifier := newVerifier(interceptor.Funcs{Create: server.Create}, installed...)
				mutations := &policytest.Mutation{State: test.state}
				verifier.Mutation = mutations
				set := policytest.Set("rbac.corp.com")
				if test.isEmpty {
					set.Initializers = nil
				}
				status, err := verifier.Verify(t.Context(), set)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(status).To(Equal(test.want))
				g.Expect(mutations.Failed).To(Equal(test.wantFail))
			})
		})
	}
}

func TestVerifyWithoutPoliciesForTemplates(t *testing.T) {
	g := NewWithT(t)
	installed := policytest.Without(policytest.Default(admissionv1.Fail), "nslifecycle-templates")
	server := &policytest.DryRuns{Responses: []policytest.DryRun{{}}}
	unauthorized := policytest.FailingApply(errForbidden)
	verifier := newVerifier(interceptor.Funcs{Create: server.Create, Apply: unauthorized}, installed...)
	set := policytest.Set()
	status, err := verifier.Verify(t.Context(), set)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status).To(Equal(PolicyStatus{
		Reason: v1alpha1.ReasonEnforced, Message: msgEnforced + msgNotApplied, RetryAfter: serverInterval,
	}))

	set.Templates = []internalv1alpha1.EffectiveTemplate{{Name: "team"}}
	status, err = verifier.Verify(t.Context(), set)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Reason).To(Equal(v1alpha1.ReasonEnforced))
	g.Expect(status.Message).To(HavePrefix(msgEnforced + `; the API server lacks ValidatingAdmissionPolicy "templates"`))
}

func TestVerifyWithoutPolicyForOperator(t *testing.T) {
	for name, lack := range map[string]string{
		"nslifecycle-confine": `ValidatingAdmissionPolicy "confine"`,
		"confine-binding":     `a ValidatingAdmissionPolicyBinding for "confine"`,
	} {
		g := NewWithT(t)
		installed := policytest.Without(policytest.Default(admissionv1.Fail), name)
		server := &policytest.DryRuns{Responses: []policytest.DryRun{{}}}
		verifier := newVerifier(interceptor.Funcs{Create: server.Create}, installed...)
		status, err := verifier.Verify(t.Context(), policytest.Set())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status.Reason).To(Equal(v1alpha1.ReasonEnforced))
		g.Expect(status.Message).To(HavePrefix(msgEnforced + "; the API server lacks " + lack))
		g.Expect(MissingLimits(t.Context(), verifier.Client)).To(ContainSubstring(lack))
	}
}

func TestVerifyWithoutPolicyForConfinement(t *testing.T) {
	g := NewWithT(t)
	installed := policytest.Without(policytest.Default(admissionv1.Fail), "nslifecycle-initializer-authors")
	set := policytest.Set("rbac.corp.com")
	found, err := list(t.Context(), newVerifier(interceptor.Funcs{}, installed...))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.warning(set)).To(BeEmpty(), "no subject is confined")
	set.Initializers[0].Confinement = v1alpha1.ConfinementInitializingNamespaces
	set.Initializers[0].Subjects = []v1alpha1.Subject{{Kind: v1alpha1.SubjectServiceAccount, Namespace: "corp", Name: "bot"}}
	g.Expect(found.warning(set)).To(Equal(msgConfinementUnprotected([]string{`ValidatingAdmissionPolicy "initializer-authors"`})))
}

func TestMissingLimits(t *testing.T) {
	g := NewWithT(t)
	g.Expect(MissingLimits(t.Context(), policytest.NewClient(interceptor.Funcs{}, policytest.Default("")...))).To(BeEmpty())
	_, err := MissingLimits(t.Context(), policytest.NewClient(interceptor.Funcs{List: policytest.FailingList}))
	g.Expect(err).To(MatchError(errOutage))
}

func TestVerifyCannotListPolicies(t *testing.T) {
	g := NewWithT(t)
	verifier := newVerifier(interceptor.Funcs{List: policytest.FailingList})
	status, err := verifier.Verify(t.Context(), policytest.Set("rbac.corp.com"))
	g.Expect(err).To(MatchError(errOutage))
	g.Expect(status).To(BeZero())
}

func TestVerifyReturnsWhenContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		ctx, cancel := context.WithTimeout(t.Context(), probeTimeout/2)
		defer cancel()
		server := &policytest.DryRuns{Responses: []policytest.DryRun{{}}}
		verifier := newVerifier(interceptor.Funcs{Create: server.Create}, policytest.Default(admissionv1.Fail)...)
		status, err := verifier.Verify(ctx, policytest.Set("rbac.corp.com"))
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
				verifier := newVerifier(interceptor.Funcs{Create: slow}, policytest.Default(admissionv1.Fail)...)
				status, err := verifier.Verify(t.Context(), policytest.Set("rbac.corp.com"))
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
		verifier := newVerifier(interceptor.Funcs{}, policytest.Default(admissionv1.Fail)...)
		apiServer := verifier.Client.(client.WithWatch)
		verifier.Client = interceptor.NewClient(apiServer, interceptor.Funcs{Create: server.Create})
		set := policytest.Set("rbac.corp.com")
		expect := func(dryRuns int, reason string) {
			t.Helper()
			server.Count = 0
			status, err := verifier.Verify(t.Context(), set)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(status.Reason).To(Equal(reason))
			g.Expect(server.Count).To(Equal(dryRuns), "dry runs")
		}
		install := func(object client.Object, uid types.UID) {
			t.Helper()
			g.Expect(client.IgnoreNotFound(apiServer.Delete(t.Context(), object))).To(Succeed())
			object.SetResourceVersion("")
			object.SetUID(uid)
			g.Expect(apiServer.Create(t.Context(), object)).To(Succeed())
		}

		expect(1, v1alpha1.ReasonEnforced)
		expect(0, v1alpha1.ReasonEnforced)

		// The status of the set has changed.
		set.ResourceVersion = "8"
		expect(0, v1alpha1.ReasonEnforced)
		set.Generation++
		expect(1, v1alpha1.ReasonEnforced)
		expect(0, v1alpha1.ReasonEnforced)
		set.UID = "another-uid"
		expect(1, v1alpha1.ReasonEnforced)
		expect(0, v1alpha1.ReasonEnforced)

		inject := policytest.Default(admissionv1.Fail)[0]
		install(inject, "another-uid")
		expect(1, v1alpha1.ReasonEnforced)
		expect(0, v1alpha1.ReasonEnforced)
		binding := policytest.MutatingBinding("inject-binding", internalv1alpha1.PolicyInject, inject.GetName())
		install(binding, "another-uid")
		expect(1, v1alpha1.ReasonEnforced)
		expect(0, v1alpha1.ReasonEnforced)

		// While a policy is missing, no set is confirmed.
		gate := policytest.ValidatingPolicy("nslifecycle-gate", internalv1alpha1.PolicyGate)
		g.Expect(apiServer.Delete(t.Context(), gate)).To(Succeed())
		expect(0, v1alpha1.ReasonPolicyMissing)
		install(gate, "another-uid")
		expect(1, v1alpha1.ReasonEnforced)
		expect(0, v1alpha1.ReasonEnforced)
	})
}

func TestVerifyRetriesUnconfirmedSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := &policytest.DryRuns{Responses: []policytest.DryRun{{Err: errForbidden}}}
		verifier := newVerifier(interceptor.Funcs{Create: server.Create}, policytest.Default(admissionv1.Fail)...)
		_, err := verifier.Verify(t.Context(), policytest.Set("rbac.corp.com"))
		g.Expect(err).NotTo(HaveOccurred())

		server.Responses, server.Count = []policytest.DryRun{{Pending: "rbac.corp.com"}}, 0
		status, err := verifier.Verify(t.Context(), policytest.Set("rbac.corp.com"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(status).To(Equal(PolicyStatus{
			Reason: v1alpha1.ReasonEnforced, Message: msgEnforced, RetryAfter: serverInterval,
		}))
		g.Expect(server.Count).To(Equal(1), "dry runs")
	})
}

func newVerifier(funcs interceptor.Funcs, installed ...client.Object) *Verifier {
	fake := policytest.NewClient(funcs, installed...)
	return &Verifier{
		Client: fake, Live: fake, Clock: clocktesting.NewFakePassiveClock(now),
		Mutation: &policytest.Mutation{State: mutation.State{ServesPolicies: true}},
	}
}

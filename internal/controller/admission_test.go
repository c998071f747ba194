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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

var (
	// errOutage is an error that says nothing about the request.
	errOutage = errors.New("the API server is out for lunch")

	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New("not this one"))
	errOurs      = apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New(
		"ValidatingAdmissionPolicy 'nslifecycle-guard' with binding 'nslifecycle-guard' denied request: no"))
	errConflict = apierrors.NewConflict(schema.GroupResource{Resource: "namespaces"}, "x", errors.New("it has changed"))
	errGone     = apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "x")
	// errRecreated is what the API server says of a patch with the UID of an object that was
	// deleted and created again.
	errRecreated = apierrors.NewInvalid(schema.GroupKind{Kind: "Namespace"}, "x", field.ErrorList{
		field.Invalid(field.NewPath("metadata", "uid"), "x-uid", "field is immutable"),
	})
)

const inForceMessage = "every new namespace gets these initializers"

// dryRuns plays the API server's part when Namespaces are created as dry runs.
type dryRuns struct {
	// answers are given one after the other, the last one again and again.
	answers []dryRun
	// count is the number of Namespaces that were created.
	count int
}

// dryRun is the list of pending initializers that a new Namespace gets, or an error.
type dryRun struct {
	pending string
	err     error
}

func (d *dryRuns) create(
	_ context.Context, _ client.WithWatch, object client.Object, opts ...client.CreateOption,
) error {
	options := (&client.CreateOptions{}).ApplyOptions(opts)
	namespace, isNamespace := object.(*corev1.Namespace)
	if !isNamespace || len(options.DryRun) != 1 || options.DryRun[0] != metav1.DryRunAll ||
		namespace.Name != "" || namespace.GenerateName != "nslifecycle-probe-" {
		return errors.New("this is not a dry run for a namespace with a generated name")
	}
	answer := d.answers[min(d.count, len(d.answers)-1)]
	d.count++
	if answer.pending != "" {
		namespace.Annotations = map[string]string{v1alpha1.AnnotationPendingInitializers: answer.pending}
	}
	return answer.err
}

func TestAdmissionObserve(t *testing.T) {
	const (
		list = "rbac.corp.com,quota.corp.com"
		// The set's age from which on the inject policy may fail.
		old = time.Minute
	)
	notYet := Verdict{
		Reason:     v1alpha1.ReasonEnforcementPending,
		Message:    "the API server does not act on the set yet; this takes up to 30 s after an installation",
		RetryAfter: 2 * time.Second,
	}
	unconfirmed := func(err error, retryAfter time.Duration) Verdict {
		return Verdict{
			Reason:     v1alpha1.ReasonEnforced,
			Message:    inForceMessage + "; a dry run could not confirm it: " + err.Error(),
			RetryAfter: retryAfter,
		}
	}
	inForce := Verdict{Reason: v1alpha1.ReasonEnforced, Message: inForceMessage}

	tests := map[string]struct {
		failurePolicy admissionv1.FailurePolicyType
		isEmpty       bool
		age           time.Duration
		answers       []dryRun
		// patchError is what the API server answers to a patch of the inject policy.
		patchError error

		want        Verdict
		wantError   string
		wantPatched bool
		// wantOnce tells that a single dry run was enough.
		wantOnce bool
	}{
		"a new namespace gets the list": {
			failurePolicy: admissionv1.Fail, answers: []dryRun{{pending: list}},
			want: inForce, wantOnce: true,
		},
		"a new namespace gets nothing, as it should": {
			failurePolicy: admissionv1.Fail, isEmpty: true, answers: []dryRun{{}},
			want: inForce, wantOnce: true,
		},
		"a new namespace gets the list after a moment": {
			failurePolicy: admissionv1.Fail, answers: []dryRun{{}, {pending: "rbac.corp.com"}, {pending: list}},
			want: inForce,
		},
		"a new namespace gets nothing": {
			failurePolicy: admissionv1.Ignore, age: old, answers: []dryRun{{}},
			want: notYet,
		},
		"a new namespace still gets the list as it was": {
			failurePolicy: admissionv1.Fail, isEmpty: true, answers: []dryRun{{pending: list}},
			want: notYet,
		},
		"a new namespace gets the list in another order": {
			failurePolicy: admissionv1.Fail, answers: []dryRun{{pending: "quota.corp.com,rbac.corp.com"}},
			want: notYet,
		},
		"somebody else's policy forbids new namespaces": {
			failurePolicy: admissionv1.Fail, answers: []dryRun{{err: errForbidden}},
			want: unconfirmed(errForbidden, time.Minute), wantOnce: true,
		},
		"somebody else's policy finds new namespaces invalid": {
			failurePolicy: admissionv1.Fail, answers: []dryRun{{err: apierrors.NewBadRequest("no")}},
			want: unconfirmed(apierrors.NewBadRequest("no"), time.Minute), wantOnce: true,
		},
		"a policy of this project refuses new namespaces": {
			failurePolicy: admissionv1.Ignore, age: old, answers: []dryRun{{err: errOurs}},
			want: Verdict{
				Reason: v1alpha1.ReasonRefused,
				Message: "the API server refuses new namespaces by a policy of this project, as a dry run has shown: " +
					errOurs.Error(),
				RetryAfter: 2 * time.Second,
			},
			wantOnce: true,
		},
		"it could not be found out": {
			failurePolicy: admissionv1.Ignore, age: old, answers: []dryRun{{err: errOutage}},
			wantError: "creating a namespace as a dry run: " + errOutage.Error(), wantOnce: true,
		},
		"it could not be found out for an empty set": {
			failurePolicy: admissionv1.Fail, isEmpty: true, answers: []dryRun{{err: errOutage}},
			wantError: "creating a namespace as a dry run: " + errOutage.Error(), wantOnce: true,
		},
		"the API server takes too long over an empty set": {
			failurePolicy: admissionv1.Fail, isEmpty: true, answers: []dryRun{{err: context.DeadlineExceeded}},
			want: notYet, wantOnce: true,
		},

		// The failure policy of inject.
		"the set is too young for Fail": {
			failurePolicy: admissionv1.Ignore, age: old - 5*time.Second, answers: []dryRun{{pending: list}},
			want:     Verdict{Reason: v1alpha1.ReasonEnforced, Message: inForceMessage, RetryAfter: 5 * time.Second},
			wantOnce: true,
		},
		"the set is old enough for Fail": {
			failurePolicy: admissionv1.Ignore, age: old, answers: []dryRun{{pending: list}},
			want: inForce, wantPatched: true, wantOnce: true,
		},
		"the policy does not say what to do on failure": {
			age: old, answers: []dryRun{{pending: list}},
			want: inForce, wantPatched: true, wantOnce: true,
		},
		"somebody else's policy does not stand in the way of Fail": {
			failurePolicy: admissionv1.Ignore, age: old, answers: []dryRun{{err: errForbidden}},
			want: unconfirmed(errForbidden, time.Minute), wantPatched: true, wantOnce: true,
		},
		"the earlier reason to look again counts": {
			failurePolicy: admissionv1.Ignore, age: old - 5*time.Second, answers: []dryRun{{err: errForbidden}},
			want: unconfirmed(errForbidden, 5*time.Second), wantOnce: true,
		},
		"the operator may not set Fail": {
			failurePolicy: admissionv1.Ignore, age: old, answers: []dryRun{{pending: list}}, patchError: errForbidden,
			want: Verdict{
				Reason: v1alpha1.ReasonEnforced,
				Message: inForceMessage + "; an API server that has just been restarted may let a namespace through without " +
					`them, because the operator may not set failurePolicy of MutatingAdmissionPolicy "nslifecycle-inject" ` +
					"to Fail: set it yourself",
				RetryAfter: time.Minute,
			},
			wantOnce: true,
		},
		"setting Fail fails, which says nothing against the set": {
			failurePolicy: admissionv1.Ignore, age: old, answers: []dryRun{{pending: list}}, patchError: errOutage,
			want: inForce, wantOnce: true,
			wantError: `setting failurePolicy of MutatingAdmissionPolicy "nslifecycle-inject" to Fail: ` + errOutage.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// The time that Observe waits for the API server does not really pass.
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := &dryRuns{answers: test.answers}
				funcs := interceptor.Funcs{Create: server.create}
				if test.patchError != nil {
					funcs.Patch = failingPatch(test.patchError)
				}
				admission := newAdmission(funcs, installedWith(test.failurePolicy)...)
				set := newSet("rbac.corp.com", "quota.corp.com")
				if test.isEmpty {
					set.Initializers = nil
				}
				set.CreationTimestamp = metav1.NewTime(now.Add(-test.age))

				verdict, err := admission.Observe(t.Context(), set)
				g.Expect(verdict).To(Equal(test.want))
				if test.wantError == "" {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(test.wantError))
				}
				wantDryRuns := BeNumerically(">", 1)
				if test.wantOnce {
					wantDryRuns = BeNumerically("==", 1)
				}
				g.Expect(server.count).To(wantDryRuns, "dry runs")

				var inject admissionv1.MutatingAdmissionPolicy
				g.Expect(admission.Get(t.Context(), client.ObjectKey{Name: "nslifecycle-inject"}, &inject)).To(Succeed())
				want := test.failurePolicy
				if test.wantPatched {
					want = admissionv1.Fail
				}
				g.Expect(*inject.Spec.FailurePolicy).To(Equal(want))
			})
		})
	}
}

func TestAdmissionObserveWithoutPolicies(t *testing.T) {
	g := NewWithT(t)
	server := &dryRuns{answers: []dryRun{{}}}
	admission := newAdmission(interceptor.Funcs{Create: server.create}, installedWith(admissionv1.Fail)[:9]...)
	g.Expect(admission.Observe(t.Context(), newSet("rbac.corp.com"))).To(Equal(Verdict{
		Reason: v1alpha1.ReasonPolicyMissing,
		Message: `the API server lacks ValidatingAdmissionPolicy "guard", so new namespaces are not initialized as ` +
			"configured; run: kubectl apply -k config/default",
	}))
	g.Expect(server.count).To(BeZero(), "dry runs")
}

func TestAdmissionObserveCannotListPolicies(t *testing.T) {
	g := NewWithT(t)
	admission := newAdmission(interceptor.Funcs{List: failingList})
	verdict, err := admission.Observe(t.Context(), newSet("rbac.corp.com"))
	g.Expect(err).To(MatchError(errOutage))
	g.Expect(verdict).To(BeZero())
}

func TestAdmissionObserveStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		ctx, cancel := context.WithTimeout(t.Context(), settleTimeout/2)
		defer cancel()
		server := &dryRuns{answers: []dryRun{{}}}
		admission := newAdmission(interceptor.Funcs{Create: server.create}, installedWith(admissionv1.Fail)...)
		verdict, err := admission.Observe(ctx, newSet("rbac.corp.com"))
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		g.Expect(verdict).To(BeZero())
	})
}

// A dry run that is under way when the time is up still counts: cut short it would say
// nothing, and a slow API server could never prove anything.
func TestAdmissionObserveWithASlowServer(t *testing.T) {
	for name, test := range map[string]struct {
		delay   time.Duration
		pending string
		want    string
	}{
		"that acts":     {delay: settleTimeout * 2, pending: "rbac.corp.com", want: v1alpha1.ReasonEnforced},
		"that does not": {delay: settleTimeout * 2 / 3, want: v1alpha1.ReasonEnforcementPending},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				server := &dryRuns{answers: []dryRun{{pending: test.pending}}}
				slow := func(
					ctx context.Context, cl client.WithWatch, object client.Object, opts ...client.CreateOption,
				) error {
					select {
					case <-time.After(test.delay):
						return server.create(ctx, cl, object, opts...)
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				admission := newAdmission(interceptor.Funcs{Create: slow}, installedWith(admissionv1.Fail)...)
				verdict, err := admission.Observe(t.Context(), newSet("rbac.corp.com"))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(verdict.Reason).To(Equal(test.want))
			})
		})
	}
}

func TestAdmissionObserveProvesOnlyWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := &dryRuns{answers: []dryRun{{pending: "rbac.corp.com"}}}
		admission := newAdmission(interceptor.Funcs{}, installedWith(admissionv1.Fail)...)
		apiServer := admission.Client.(client.WithWatch)
		admission.Client = interceptor.NewClient(apiServer, interceptor.Funcs{Create: server.create})
		set := newSet("rbac.corp.com")
		expect := func(dryRuns int, reason string) {
			t.Helper()
			server.count = 0
			verdict, err := admission.Observe(t.Context(), set)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verdict.Reason).To(Equal(reason))
			g.Expect(server.count).To(Equal(dryRuns), "dry runs")
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

		set.ResourceVersion = "8"
		expect(1, v1alpha1.ReasonEnforced)
		expect(0, v1alpha1.ReasonEnforced)
		set.UID = "another-uid"
		expect(1, v1alpha1.ReasonEnforced)
		expect(0, v1alpha1.ReasonEnforced)

		inject := installedWith(admissionv1.Fail)[0]
		install(inject, "another-uid")
		expect(1, v1alpha1.ReasonEnforced)
		expect(0, v1alpha1.ReasonEnforced)
		binding := mutatingBinding("inject-binding", v1alpha1.PolicyInject, inject.GetName())
		install(binding, "another-uid")
		expect(1, v1alpha1.ReasonEnforced)
		expect(0, v1alpha1.ReasonEnforced)

		// While a policy is away, whichever it is, nothing is taken for granted.
		gate := validatingPolicy("nslifecycle-gate", v1alpha1.PolicyGate)
		g.Expect(apiServer.Delete(t.Context(), gate)).To(Succeed())
		expect(0, v1alpha1.ReasonPolicyMissing)
		install(gate, "another-uid")
		expect(1, v1alpha1.ReasonEnforced)
		expect(0, v1alpha1.ReasonEnforced)
	})
}

func TestAdmissionObserveKeepsTryingWhatIsNotProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		server := &dryRuns{answers: []dryRun{{err: errForbidden}}}
		admission := newAdmission(interceptor.Funcs{Create: server.create}, installedWith(admissionv1.Fail)...)
		_, err := admission.Observe(t.Context(), newSet("rbac.corp.com"))
		g.Expect(err).NotTo(HaveOccurred())

		server.answers, server.count = []dryRun{{pending: "rbac.corp.com"}}, 0
		verdict, err := admission.Observe(t.Context(), newSet("rbac.corp.com"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(verdict).To(Equal(Verdict{Reason: v1alpha1.ReasonEnforced, Message: inForceMessage}))
		g.Expect(server.count).To(Equal(1), "dry runs")
	})
}

func newAdmission(funcs interceptor.Funcs, installed ...client.Object) *Admission {
	return &Admission{
		Client: newFakeClient(funcs, installed...),
		Clock:  clocktesting.NewFakePassiveClock(now),
	}
}

// newSet is the effective set as the API server has it, of configuration "one".
func newSet(names ...string) *v1alpha1.NamespaceInitializerSet {
	set := &v1alpha1.NamespaceInitializerSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.EffectiveSetName, UID: "set-uid", ResourceVersion: "7",
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
		},
		SystemNamespace: "nslifecycle-system",
	}
	for _, name := range names {
		set.Initializers = append(set.Initializers,
			v1alpha1.EffectiveInitializer{Name: name, Configuration: "one"})
	}
	return set
}

func failingList(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
	return errOutage
}

func failingPatch(err error) func(
	context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption,
) error {
	return func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return err
	}
}

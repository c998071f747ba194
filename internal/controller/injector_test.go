// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

// compatInstalled is what config/compat installs.
func compatInstalled() []client.Object {
	guard := validatingPolicy("nslifecycle-guard", v1alpha1.PolicyGuard)
	guard.Labels[v1alpha1.LabelInjection] = v1alpha1.InjectionByOperator
	return []client.Object{
		validatingPolicy("nslifecycle-gate", v1alpha1.PolicyGate),
		validatingBinding("gate-binding", v1alpha1.PolicyGate, "nslifecycle-gate"),
		validatingBinding("gate-resources-binding", v1alpha1.PolicyGate, "nslifecycle-gate"),
		guard,
		validatingBinding("guard-binding", v1alpha1.PolicyGuard, "nslifecycle-guard"),
	}
}

func withoutPolicy(installed []client.Object, name string) []client.Object {
	return slices.DeleteFunc(installed, func(object client.Object) bool { return object.GetName() == name })
}

// forceSince is the set of one initializer that is in force since then.
func forceSince(since time.Time) *v1alpha1.NamespaceInitializerSet {
	set := newSet("rbac.corp.com")
	set.Initializers[0].InForceSince = &metav1.Time{Time: since}
	return set
}

// withToken gives the one initializer of a set a finalizer and a selector.
func withToken(set *v1alpha1.NamespaceInitializerSet, token string) *v1alpha1.NamespaceInitializerSet {
	set.Initializers[0].Finalizer = token
	set.Initializers[0].NamespaceSelector = &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "a"}}
	return set
}

func ofTeam(team string, tokens ...corev1.FinalizerName) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) {
		namespace.Labels = map[string]string{"team": team}
		namespace.Spec.Finalizers = tokens
	}
}

// put is the API server's part in a PUT to a subresource.
func (s *namespaceServer) put(
	_ context.Context, _ client.Client, subResource string, object client.Object, opts ...client.SubResourceUpdateOption,
) error {
	options := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts)
	namespace := object.(*corev1.Namespace)
	s.writes = append(s.writes, fmt.Sprintf("PUT of %s/%s by %s: uid=%s resourceVersion=%s %v %v %v",
		object.GetName(), subResource, options.FieldManager, object.GetUID(), object.GetResourceVersion(),
		namespace.Spec.Finalizers, namespace.Labels, namespace.Annotations))
	return s.patchError
}

func TestReconcileWhereTheOperatorInjects(t *testing.T) {
	const (
		injection = `application/merge-patch+json of x by nslifecycle: {"metadata":{"annotations":{` +
			`"nslifecycle.dev/initializers":"rbac.corp.com","nslifecycle.dev/injected-at":"2026-03-01T12:00:00Z",` +
			`"nslifecycle.dev/pending-initializers":"rbac.corp.com"},"labels":{"nslifecycle.dev/initializing":"true"},` +
			`"resourceVersion":"7","uid":"x-uid"}}`
		put = "PUT of x/finalize by nslifecycle: uid=x-uid resourceVersion=7 [kubernetes a.b/c] " +
			"map[nslifecycle.dev/initializing:true team:a] map[nslifecycle.dev/initializers:rbac.corp.com " +
			"nslifecycle.dev/injected-at:2026-03-01T12:00:00Z nslifecycle.dev/pending-initializers:rbac.corp.com]"
		pendingStatus = "application/strategic-merge-patch+json of x/status by nslifecycle: uid=x-uid " +
			"Initializing=True/Pending rbac.corp.com/Initialized=False/Pending"
		notRequired = "application/strategic-merge-patch+json of x/status by nslifecycle: uid=x-uid " +
			"Initializing=False/NotRequired"
		pendingEvent = "Normal Initializing waiting for initializer rbac.corp.com (1 of 1)"
		openEvent    = "Warning NotInitialized The namespace is open and should not be, because the operator cannot give it " +
			"its initializers yet: "
		missing = `the API server lacks ValidatingAdmissionPolicy "gate"; run: kubectl apply -k config/compat`
		misfit  = "policy guard is the one for API servers that serve MutatingAdmissionPolicy v1, and this one does not; run: " +
			"kubectl apply -k config/compat"
	)
	lacking := Server{LacksMutatingPolicies: true}
	tests := map[string]struct {
		server    Server
		installed []client.Object
		set       *v1alpha1.NamespaceInitializerSet
		setError  error
		change    func(*corev1.Namespace)
		answers   namespaceServer

		wantWrites, wantEvents []string
		wantRetry              time.Duration
		wantError              string
	}{
		"it gives a new namespace its list, and says so": {
			server: lacking, installed: compatInstalled(), set: forceSince(now),
			wantWrites: []string{injection, pendingStatus}, wantEvents: []string{pendingEvent},
		},
		"an initializer that came later is none of its business": {
			server: lacking, installed: compatInstalled(), set: forceSince(now.Add(time.Second)),
			wantWrites: []string{notRequired},
		},
		"it gives a namespace list and token in one request": {
			server: lacking, installed: compatInstalled(), set: withToken(forceSince(now), "a.b/c"),
			change:     ofTeam("a", corev1.FinalizerKubernetes),
			wantWrites: []string{put, pendingStatus}, wantEvents: []string{pendingEvent},
		},
		"the namespace has the token": {
			server: lacking, installed: compatInstalled(), set: withToken(forceSince(now), "a.b/c"),
			change:     ofTeam("a", "a.b/c"),
			wantWrites: []string{injection, pendingStatus}, wantEvents: []string{pendingEvent},
		},
		"the initializer does not select the namespace": {
			server: lacking, installed: compatInstalled(), set: withToken(forceSince(now), "a.b/c"), change: ofTeam("b"),
			wantWrites: []string{notRequired},
		},
		"the namespace has changed since, and would get a token": {
			server: lacking, installed: compatInstalled(), set: withToken(forceSince(now), "a.b/c"),
			change: ofTeam("a", corev1.FinalizerKubernetes), answers: namespaceServer{patchError: errConflict},
			wantWrites: []string{put},
		},
		"the operator may not put tokens on": {
			server: lacking, installed: compatInstalled(), set: withToken(forceSince(now), "a.b/c"),
			change: ofTeam("a", corev1.FinalizerKubernetes), answers: namespaceServer{patchError: errForbidden},
			wantWrites: []string{put}, wantEvents: []string{openEvent + errForbidden.Error()},
			wantError: `giving namespace "x" its initializers: ` + errForbidden.Error(),
		},
		"there is no set yet": {
			server: lacking, installed: compatInstalled(), wantWrites: []string{notRequired},
		},
		"it has seen the namespace": {
			server: lacking, installed: compatInstalled(), set: forceSince(now),
			change: func(namespace *corev1.Namespace) {
				namespace.Status.Conditions = []corev1.NamespaceCondition{{
					Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonNotRequired,
					Message: "the namespace has no initializers",
				}}
			},
		},
		"the namespace is being deleted": {
			server: lacking, installed: compatInstalled(), set: forceSince(now),
			change: func(namespace *corev1.Namespace) { namespace.DeletionTimestamp = &metav1.Time{Time: now} },
		},
		"nobody would protect the list": {
			server: lacking, installed: withoutPolicy(compatInstalled(), "nslifecycle-gate"), set: forceSince(now),
			wantEvents: []string{openEvent + missing}, wantRetry: 2 * time.Second,
		},
		"the policies are those for a newer API server": {
			server: lacking, installed: installedWith(admissionv1.Fail)[4:], set: forceSince(now),
			wantEvents: []string{openEvent + misfit}, wantRetry: 2 * time.Second,
		},
		"the policies do not fit, and nothing is registered": {
			server: lacking, installed: installedWith(admissionv1.Fail)[4:], set: newSet(),
			wantWrites: []string{notRequired},
		},
		"the set cannot be read": {
			server: lacking, installed: compatInstalled(), setError: errOutage,
			wantError: `reading NamespaceInitializerSet "effective": ` + errOutage.Error(),
		},
		"the namespace has changed since": {
			server: lacking, installed: compatInstalled(), set: forceSince(now), answers: namespaceServer{patchError: errConflict},
			wantWrites: []string{injection},
		},
		"it is another namespace of that name": {
			server: lacking, installed: compatInstalled(), set: forceSince(now), answers: namespaceServer{patchError: errRecreated},
			wantWrites: []string{injection},
		},
		"guard refuses": {
			server: lacking, installed: compatInstalled(), set: forceSince(now), answers: namespaceServer{patchError: errOurs},
			wantWrites: []string{injection}, wantEvents: []string{openEvent + errOurs.Error()},
			wantError: `giving namespace "x" its initializers: ` + errOurs.Error(),
		},
		"the API server could, and was not told to": {
			installed: compatInstalled(), set: forceSince(now),
			wantWrites: []string{injection, pendingStatus}, wantEvents: []string{pendingEvent},
		},
		"the API server does": {
			installed: installedWith(admissionv1.Fail), set: forceSince(now),
			wantWrites: []string{notRequired},
		},
		"the API server does, whichever guard there is": {
			installed: append(compatInstalled(), installedWith(admissionv1.Fail)[:4]...), set: forceSince(now),
			wantWrites: []string{notRequired},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Obj()
			namespace.CreationTimestamp = metav1.NewTime(now)
			if test.change != nil {
				test.change(namespace)
			}
			server := test.answers
			server.namespace = namespace
			recorder := events.NewFakeRecorder(10)
			clock := clocktesting.NewFakePassiveClock(now)
			sets := newFakeClient(interceptor.Funcs{})
			if test.set != nil {
				test.set.ResourceVersion = ""
				g.Expect(sets.Create(t.Context(), test.set)).To(Succeed())
			}
			if test.setError != nil {
				sets = newFakeClient(interceptor.Funcs{Get: failingGet(test.setError)})
			}
			admission := newAdmission(interceptor.Funcs{}, test.installed...)
			admission.Server = test.server
			reconciler := &NamespaceReconciler{
				Client: server.client(), Live: server.client(), Recorder: recorder, Clock: clock, SystemNamespace: systemNamespace,
				Injector: &Injector{
					Client: server.client(), Live: sets, Admission: admission, Recorder: recorder, Clock: clock,
					SystemNamespace: systemNamespace,
				},
			}
			result, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
			if test.wantError == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(test.wantError))
			}
			g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.wantRetry}))
			g.Expect(server.writes).To(Equal(test.wantWrites))
			close(recorder.Events)
			var recorded []string
			for event := range recorder.Events {
				recorded = append(recorded, event)
			}
			g.Expect(recorded).To(Equal(test.wantEvents))
		})
	}
}

// What is based on an old namespace must not be written: that it needs no initializers, or
// once more what the manager has told already.
func TestConditionsNameTheResourceVersion(t *testing.T) {
	for name, server := range map[string]Server{
		"where the operator injects":   {LacksMutatingPolicies: true},
		"where the API server injects": {},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Obj()
			var body struct{ Metadata metav1.ObjectMeta }
			api := newFakeClient(interceptor.Funcs{
				Get: (&namespaceServer{namespace: namespace}).get,
				SubResourcePatch: func(
					_ context.Context, _ client.Client, _ string, object client.Object, patch client.Patch,
					_ ...client.SubResourcePatchOption,
				) error {
					data, err := patch.Data(object)
					return errors.Join(err, json.Unmarshal(data, &body))
				},
			})
			admission := newAdmission(interceptor.Funcs{}, compatInstalled()...)
			if !server.LacksMutatingPolicies {
				admission = newAdmission(interceptor.Funcs{}, installedWith(admissionv1.Fail)...)
			}
			admission.Server = server
			reconciler := &NamespaceReconciler{
				Client: api, Recorder: events.NewFakeRecorder(1),
				Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: systemNamespace,
				Injector: &Injector{Live: newFakeClient(interceptor.Funcs{}), Admission: admission},
			}
			_, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(body.Metadata.UID).To(BeEquivalentTo("x-uid"))
			g.Expect(body.Metadata.ResourceVersion).To(Equal("7"))
		})
	}
}

// Without policy complete the operator opens a namespace, which is nothing to be warned of.
func TestCompletionWhereTheOperatorInjects(t *testing.T) {
	for name, test := range map[string]struct {
		injectedAt string
		want       int
	}{
		"by the operator":   {injectedAt: "2026-03-01T12:00:00Z"},
		"by the API server": {want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			namespace := wrappers.MakeNamespace("x").Initializers("rbac.corp.com").Pending("").ResourceVersion("7").Label("app", "web").Label(
				v1alpha1.LabelInitializing, "true").Obj()
			if test.injectedAt != "" {
				namespace.Annotations[v1alpha1.AnnotationInjectedAt] = test.injectedAt
			}
			server := &namespaceServer{namespace: namespace}
			recorder := events.NewFakeRecorder(10)
			reconciler := &NamespaceReconciler{
				Client: server.client(), Live: server.client(), Recorder: recorder, Clock: clocktesting.NewFakePassiveClock(now),
			}
			_, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(server.writes).To(ConsistOf(ContainSubstring(`"nslifecycle.dev/initializing":null`)))
			g.Expect(recorder.Events).To(HaveLen(test.want))
		})
	}
}

func TestInjectorCannotListPolicies(t *testing.T) {
	g := NewWithT(t)
	injector := &Injector{Admission: newAdmission(interceptor.Funcs{List: failingList})}
	_, err := injector.Inject(t.Context(), wrappers.MakeNamespace("x").Obj())
	g.Expect(errors.Is(err, errOutage)).To(BeTrue())
}

func failingGet(err error) func(
	context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption,
) error {
	return func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return err
	}
}

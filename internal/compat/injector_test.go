// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier/policytest"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const systemNamespace = "nslifecycle-system"

var (
	now              = policytest.Now
	errOutage        = policytest.ErrUnavailable
	errForbidden     = policytest.ErrForbidden
	errDeniedByGuard = policytest.ErrDeniedByGuard

	errConflict = apierrors.NewConflict(schema.GroupResource{Resource: "namespaces"}, "x", errors.New("it has changed"))
	// errRecreated is the error for a patch with the UID of an object that was deleted and created
	// again.
	errRecreated = apierrors.NewInvalid(schema.GroupKind{Kind: "Namespace"}, "x", field.ErrorList{
		field.Invalid(field.NewPath("metadata", "uid"), "x-uid", "field is immutable"),
	})
)

// enforcedSince returns the set with one initializer that has been enforced since the given time.
func enforcedSince(since time.Time) *v1alpha1.NamespaceInitializerSet {
	set := policytest.Set("rbac.corp.com")
	set.Initializers[0].InForceSince = &metav1.Time{Time: since}
	return set
}

// withFinalizer adds a namespace finalizer and a selector to the initializer of a set.
func withFinalizer(set *v1alpha1.NamespaceInitializerSet, finalizer string) *v1alpha1.NamespaceInitializerSet {
	set.Initializers[0].Finalizer = finalizer
	set.Initializers[0].NamespaceSelector = &v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"team": "a"}}
	return set
}

func ofTeam(team string, finalizers ...corev1.FinalizerName) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) {
		namespace.Labels = map[string]string{"team": team}
		namespace.Spec.Finalizers = finalizers
	}
}

// writeRecorder records writes to Namespaces.
type writeRecorder struct {
	namespace *corev1.Namespace
	err       error
	writes    []string
}

func (r *writeRecorder) client() client.Client {
	return policytest.NewClient(interceptor.Funcs{Get: r.get, Patch: r.patch, SubResourceUpdate: r.put})
}

func (r *writeRecorder) get(
	_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption,
) error {
	recreated := r.namespace.DeepCopy()
	recreated.UID = "another-uid" // A retry after a conflict would be recorded with this UID.
	recreated.DeepCopyInto(object.(*corev1.Namespace))
	return nil
}

func (r *writeRecorder) patch(
	_ context.Context, _ client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption,
) error {
	body, err := patch.Data(object)
	if err != nil {
		return err
	}
	options := (&client.PatchOptions{}).ApplyOptions(opts)
	r.writes = append(r.writes, fmt.Sprintf("%s of %s by %s: %s", patch.Type(), object.GetName(), options.FieldManager, body))
	return r.err
}

func (r *writeRecorder) put(
	_ context.Context, _ client.Client, subResource string, object client.Object, opts ...client.SubResourceUpdateOption,
) error {
	options := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts)
	namespace := object.(*corev1.Namespace)
	r.writes = append(r.writes, fmt.Sprintf("PUT of %s/%s by %s: uid=%s resourceVersion=%s %v %v %v",
		object.GetName(), subResource, options.FieldManager, object.GetUID(), object.GetResourceVersion(),
		namespace.Spec.Finalizers, namespace.Labels, namespace.Annotations))
	return r.err
}

func TestInject(t *testing.T) {
	const (
		injection = `application/merge-patch+json of x by nslifecycle: {"metadata":{"annotations":{` +
			`"nslifecycle.dev/initializers":"rbac.corp.com","nslifecycle.dev/injected-at":"2026-03-01T12:00:00Z",` +
			`"nslifecycle.dev/pending-initializers":"rbac.corp.com"},"labels":{"nslifecycle.dev/initializing":"true"},` +
			`"resourceVersion":"7","uid":"x-uid"}}`
		put = "PUT of x/finalize by nslifecycle: uid=x-uid resourceVersion=7 [kubernetes a.b/c] " +
			"map[nslifecycle.dev/initializing:true team:a] map[nslifecycle.dev/initializers:rbac.corp.com " +
			"nslifecycle.dev/injected-at:2026-03-01T12:00:00Z nslifecycle.dev/pending-initializers:rbac.corp.com]"
	)
	lacking := Server{LacksMutatingPolicies: true}
	tests := map[string]struct {
		server    Server
		installed []client.Object
		set       *v1alpha1.NamespaceInitializerSet
		setError  error
		change    func(*corev1.Namespace)
		// writeError is the error that the write returns.
		writeError error

		wantWrites []string
		// wantEvents are substrings of the notes of Events with reason NotInitialized.
		wantEvents []string
		wantRetry  time.Duration
		wantError  string
	}{
		"a new namespace": {
			server: lacking, installed: policytest.Compat(), set: enforcedSince(now),
			wantWrites: []string{injection},
		},
		"an initializer that is enforced from the next second on": {
			server: lacking, installed: policytest.Compat(), set: enforcedSince(now.Add(time.Second)),
		},
		"an initializer with a namespace finalizer": {
			server: lacking, installed: policytest.Compat(), set: withFinalizer(enforcedSince(now), "a.b/c"),
			change:     ofTeam("a", corev1.FinalizerKubernetes),
			wantWrites: []string{put},
		},
		"the namespace has the namespace finalizer": {
			server: lacking, installed: policytest.Compat(), set: withFinalizer(enforcedSince(now), "a.b/c"),
			change:     ofTeam("a", "a.b/c"),
			wantWrites: []string{injection},
		},
		"the initializer does not select the namespace": {
			server: lacking, installed: policytest.Compat(), set: withFinalizer(enforcedSince(now), "a.b/c"), change: ofTeam("b"),
		},
		"the write that adds a namespace finalizer returns a conflict": {
			server: lacking, installed: policytest.Compat(), set: withFinalizer(enforcedSince(now), "a.b/c"),
			change: ofTeam("a", corev1.FinalizerKubernetes), writeError: errConflict,
			wantWrites: []string{put},
		},
		"the operator is not authorized to add namespace finalizers": {
			server: lacking, installed: policytest.Compat(), set: withFinalizer(enforcedSince(now), "a.b/c"),
			change: ofTeam("a", corev1.FinalizerKubernetes), writeError: errForbidden,
			wantWrites: []string{put}, wantEvents: []string{errForbidden.Error()},
			wantError: `failed to add initializers to namespace "x": ` + errForbidden.Error(),
		},
		"no set exists": {
			server: lacking, installed: policytest.Compat(),
		},
		"the operator has reconciled the namespace before": {
			server: lacking, installed: policytest.Compat(), set: enforcedSince(now),
			change: func(namespace *corev1.Namespace) {
				namespace.Status.Conditions = []corev1.NamespaceCondition{{
					Type: v1alpha1.ConditionInitializing, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonNotRequired,
					Message: "this namespace has no initializers to wait for",
				}}
			},
		},
		"the namespace is terminating": {
			server: lacking, installed: policytest.Compat(), set: enforcedSince(now),
			change: func(namespace *corev1.Namespace) { namespace.DeletionTimestamp = &metav1.Time{Time: now} },
		},
		"the gate policy is missing": {
			server: lacking, installed: policytest.Without(policytest.Compat(), "nslifecycle-gate"), set: enforcedSince(now),
			wantEvents: []string{"ValidatingAdmissionPolicy \"gate\""}, wantRetry: 2 * time.Second,
		},
		"the policies in config/default are installed": {
			server: lacking, installed: policytest.Default(admissionv1.Fail)[4:], set: enforcedSince(now),
			wantEvents: []string{InstallCommand}, wantRetry: 2 * time.Second,
		},
		"the policies do not match, and no initializer is registered": {
			server: lacking, installed: policytest.Default(admissionv1.Fail)[4:], set: policytest.Set(),
		},
		"the set cannot be read": {
			server: lacking, installed: policytest.Compat(), setError: errOutage,
			wantError: `failed to get NamespaceInitializerSet "effective": ` + errOutage.Error(),
		},
		"the write returns a conflict": {
			server: lacking, installed: policytest.Compat(), set: enforcedSince(now), writeError: errConflict,
			wantWrites: []string{injection},
		},
		"the namespace was deleted and created again": {
			server: lacking, installed: policytest.Compat(), set: enforcedSince(now), writeError: errRecreated,
			wantWrites: []string{injection},
		},
		"the guard policy denies the write": {
			server: lacking, installed: policytest.Compat(), set: enforcedSince(now), writeError: errDeniedByGuard,
			wantWrites: []string{injection}, wantEvents: []string{errDeniedByGuard.Error()},
			wantError: `failed to add initializers to namespace "x": ` + errDeniedByGuard.Error(),
		},
		"config/compat on an API server with MutatingAdmissionPolicy": {
			installed: policytest.Compat(), set: enforcedSince(now),
			wantWrites: []string{injection},
		},
		"config/default on an API server with MutatingAdmissionPolicy": {
			installed: policytest.Default(admissionv1.Fail), set: enforcedSince(now),
		},
		"the policies inject and complete are installed together with config/compat": {
			installed: append(policytest.Compat(), policytest.Default(admissionv1.Fail)[:4]...), set: enforcedSince(now),
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
			server := &writeRecorder{namespace: namespace, err: test.writeError}
			recorder := events.NewFakeRecorder(10)
			clock := clocktesting.NewFakePassiveClock(now)
			var objects []client.Object
			if test.set != nil {
				objects = append(objects, test.set)
			}
			funcs := interceptor.Funcs{}
			if test.setError != nil {
				funcs.Get = failingGet(test.setError)
			}
			sets := policytest.NewClient(funcs, objects...)
			injector := &Injector{
				Client: server.client(), Live: liveClient{Client: server.client(), sets: sets}, Recorder: recorder, Clock: clock,
				Verifier:        NewVerifier(policytest.NewClient(interceptor.Funcs{}, test.installed...), clock, test.server),
				SystemNamespace: systemNamespace,
			}
			retryAfter, err := injector.Inject(t.Context(), namespace)
			switch {
			case test.wantError != "":
				g.Expect(err).To(MatchError(test.wantError))
			case test.writeError != nil:
				g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			default:
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(retryAfter).To(Equal(test.wantRetry))
			g.Expect(server.writes).To(Equal(test.wantWrites))
			g.Expect(recorder.Events).To(HaveLen(len(test.wantEvents)))
			for _, want := range test.wantEvents {
				g.Expect(<-recorder.Events).To(And(HavePrefix("Warning NotInitialized "), ContainSubstring(want)))
			}
		})
	}
}

// liveClient reads sets from one client and Namespaces from another.
type liveClient struct {
	client.Client
	sets client.Reader
}

func (c liveClient) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption,
) error {
	if _, ok := object.(*v1alpha1.NamespaceInitializerSet); ok {
		return c.sets.Get(ctx, key, object, opts...)
	}
	return c.Client.Get(ctx, key, object, opts...)
}

func TestInjectWithoutPolicies(t *testing.T) {
	g := NewWithT(t)
	injector := &Injector{Verifier: newVerifier(interceptor.Funcs{List: policytest.FailingList})}
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

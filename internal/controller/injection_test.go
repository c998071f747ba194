// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
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

// fakeInjector is an Injector that adds a pending list with one initializer, or returns a delay or an
// error.
type fakeInjector struct {
	initializer string
	retryAfter  time.Duration
	err         error
}

func (i fakeInjector) Inject(_ context.Context, namespace *corev1.Namespace) (time.Duration, error) {
	if i.initializer != "" {
		wrappers.MakeNamespace("x").Initializers(i.initializer).DeepCopyInto(namespace)
		namespace.UID, namespace.ResourceVersion = "x-uid", "8"
	}
	return i.retryAfter, i.err
}

func TestNamespaceReconcileInjects(t *testing.T) {
	const status = "application/strategic-merge-patch+json of x/status by nslifecycle: uid=x-uid "
	tests := map[string]struct {
		injector   fakeInjector
		wantWrites []string
		wantEvents []string
		wantRetry  time.Duration
		wantError  error
	}{
		"no initializer is injected": {wantWrites: []string{status + "Initializing=False/NotRequired"}},
		"an initializer is injected": {
			injector:   fakeInjector{initializer: "rbac.corp.com"},
			wantWrites: []string{status + "Initializing=True/Pending rbac.corp.com/Initialized=False/Pending"},
			wantEvents: []string{"Normal Initializing"},
		},
		"the injection must be retried later": {injector: fakeInjector{retryAfter: time.Second}, wantRetry: time.Second},
		"the injection fails":                 {injector: fakeInjector{err: errOutage}, wantError: errOutage},
		"the injection returns a conflict":    {injector: fakeInjector{err: errConflict}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &namespaceServer{namespace: wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Obj()}
			recorder := events.NewFakeRecorder(10)
			reconciler := &NamespaceReconciler{
				Client: server.client(), Live: server.client(), Recorder: recorder,
				Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: systemNamespace, Injector: test.injector,
			}
			result, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
			if test.wantError == nil {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(test.wantError))
			}
			g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: test.wantRetry}))
			g.Expect(server.writes).To(Equal(test.wantWrites))
			g.Expect(recorder.Events).To(HaveLen(len(test.wantEvents)))
			for _, want := range test.wantEvents {
				g.Expect(<-recorder.Events).To(HavePrefix(want))
			}
		})
	}
}

// The resource version prevents a write of conditions that were computed from an old version of a
// Namespace.
func TestNamespaceReconcileSendsTheResourceVersion(t *testing.T) {
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
	reconciler := &NamespaceReconciler{
		Client: api, Recorder: events.NewFakeRecorder(1), Injector: ServerInjects{},
		Clock: clocktesting.NewFakePassiveClock(now), SystemNamespace: systemNamespace,
	}
	_, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(body.Metadata.UID).To(BeEquivalentTo("x-uid"))
	g.Expect(body.Metadata.ResourceVersion).To(Equal("7"))
}

// On API servers without the complete policy, the operator removes the label. This is expected if the
// operator injected the list, and must not cause a warning.
func TestNamespaceReconcileRemovesTheLabelWithoutPolicyComplete(t *testing.T) {
	for name, test := range map[string]struct {
		injectedAt string
		want       int
	}{
		"the operator injected the list":   {injectedAt: "2026-03-01T12:00:00Z"},
		"the API server injected the list": {want: 1},
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
				Injector: ServerInjects{},
				Client:   server.client(), Live: server.client(), Recorder: recorder, Clock: clocktesting.NewFakePassiveClock(now),
			}
			_, err := reconciler.Reconcile(t.Context(), ctrl.Request{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(server.writes).To(ConsistOf(ContainSubstring(`"nslifecycle.dev/initializing":null`)))
			g.Expect(recorder.Events).To(HaveLen(test.want))
		})
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/graceperiod"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/test/framework/wrappers"
)

const (
	agentFinalizer corev1.FinalizerName = "example.com/agent"
	otherFinalizer corev1.FinalizerName = "a.example.com/other"
)

func (s *fakeServer) finalizationReconciler(recorder events.EventRecorder) *FinalizationReconciler {
	passive := clocktesting.NewFakePassiveClock(now)
	content := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	content.PrependReactor("*", "*", s.content)
	content.PrependWatchReactor("*", clienttesting.DefaultWatchReactor(nil, errOutage))
	live, cached := s.reader(), s.client()
	s.gracePeriods = &graceperiod.Source{
		Config: graceperiod.GracePeriod{Fixed: ptr.To(time.Duration(0))}, Leases: cached, Live: live,
		Clock: passive, ServerClock: servertime.NewClock(passive),
	}
	return &FinalizationReconciler{
		Client: cached, Live: live, Recorder: recorder, Clock: passive,
		NamespaceFinalizer: corev1.FinalizerKubernetes,
		OwnNamespace:       systemNamespace,
		Finalizer: finalization.New(finalization.Config{
			NamespaceFinalizer: corev1.FinalizerKubernetes, Clock: passive, Discoverer: s, Content: content,
			Namespaces: liveNamespaces{live}, GracePeriods: s.gracePeriods,
			IsAggregated:      func(schema.GroupVersion) bool { return false },
			ConfirmAggregated: func(context.Context, schema.GroupVersion) (bool, error) { return false, nil },
			PermissionRemedy:  func(schema.GroupResource) string { return "" },
			Metrics:           metrics.FinalizationRecorder{}, Durations: metrics.FinalizationRecorder{}, Log: logr.Discard(),
		}),
	}
}

func (s *fakeServer) ServerPreferredNamespacedResourcesWithContext(
	context.Context,
) ([]*metav1.APIResourceList, error) {
	s.discovers++
	return []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{
		Name: "configmaps", Namespaced: true, Verbs: metav1.Verbs{"list", "delete"},
	}}}}, s.discoveryError
}

func (s *fakeServer) content(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetVerb() != "list" {
		s.writes = append(s.writes, action.GetVerb()+" "+action.GetResource().Resource)
		return true, nil, nil
	}
	if s.contentError != nil {
		return true, nil, s.contentError
	}
	list := &metav1.List{}
	for i := range s.configMaps {
		list.Items = append(list.Items, runtime.RawExtension{Object: &s.configMaps[i]})
	}
	return true, list, nil
}

func recreated(namespace *corev1.Namespace) { namespace.UID = "another-uid" }

func notDeleted(namespace *corev1.Namespace) { namespace.DeletionTimestamp = nil }

func active(namespace *corev1.Namespace) { namespace.Status.Phase = corev1.NamespaceActive }

func held(namespace *corev1.Namespace) { namespace.Finalizers = []string{"example.com/hold"} }

func named(name string) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) { namespace.Name = name }
}

func version(resourceVersion string) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) { namespace.ResourceVersion = resourceVersion }
}

// refusedEvent returns the Event for a Namespace whose content the operator refuses to delete.
func refusedEvent(name string) string {
	namespace := terminating(named(name))
	refusal := finalization.ComputeRefusal(namespace, finalization.RefusalReason(namespace, systemNamespace), metav1.Now())
	return "Warning ContentDeletionFailed " + refusal[0].Message
}

func TestFinalizationReconcile(t *testing.T) {
	const (
		finalized  = "finalize x by nslifecycle: uid=x-uid resourceVersion=7 finalizers=[]"
		restored   = "finalize x by nslifecycle: uid=x-uid resourceVersion="
		ours       = " finalizers=[kubernetes]"
		phase      = "status of x: uid=x-uid phase=Terminating"
		conditions = "status of x: uid=x-uid NamespaceDeletionDiscoveryFailure=False/ResourcesDiscovered NamespaceDeletionGroupVersionParsingFailure=False/ParsedGroupVersions "
		emptied    = conditions + "NamespaceDeletionContentFailure=False/ContentDeleted NamespaceContentRemaining=False/ContentRemoved NamespaceFinalizersRemaining=False/ContentHasNoFinalizers Ready=False/Terminating"
		remaining  = conditions + "NamespaceDeletionContentFailure=False/ContentDeleted NamespaceContentRemaining=True/SomeResourcesRemain NamespaceFinalizersRemaining=True/SomeFinalizersRemain Ready=False/Terminating"
		failed     = conditions + "NamespaceDeletionContentFailure=True/ContentDeletionFailed NamespaceContentRemaining=Unknown/ContentUnknown NamespaceFinalizersRemaining=Unknown/ContentUnknown Ready=False/Terminating"
		refused    = ": uid=x-uid NamespaceDeletionContentFailure=True/ContentDeletionFailed Ready=False/Terminating"
	)
	isRefused := func(n *corev1.Namespace) {
		n.Status.Conditions = finalization.ComputeRefusal(n, finalization.RefusalReason(n, ""), metav1.NewTime(now))
	}
	stuck := []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{
		Name: "c", Finalizers: []string{"example.com/hold"}, DeletionTimestamp: &metav1.Time{Time: now},
	}}}
	fresh := []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c-uid"}}}
	retry := ctrl.Result{RequeueAfter: conflictRetry}

	// conflicting returns a server where the Namespace is changed before the operator removes its finalizer.
	conflicting := func(live *corev1.Namespace) fakeServer {
		return fakeServer{
			cached: terminating(), finalizeErrors: []error{errConflict}, onFinalize: func(s *fakeServer) { s.live = live },
		}
	}

	tests := map[string]struct {
		server      fakeServer
		gracePeriod time.Duration
		want        ctrl.Result
		wantWrites  []string
		wantEvents  []string
		wantError   string
	}{
		"the namespace does not exist": {server: fakeServer{getError: errNotFound}},
		"the namespace cannot be read": {server: fakeServer{getError: errOutage}, wantError: errOutage.Error()},
		"the namespace is not terminating": {
			server: fakeServer{cached: wrappers.MakeNamespace("x").UID("x-uid").Obj(), configMaps: fresh},
		},
		"the namespace is not terminating and has no namespace finalizer": {
			server: fakeServer{cached: terminating(withFinalizers(), notDeleted)},
		},
		"the namespace is empty": {server: fakeServer{cached: terminating()}, wantWrites: []string{finalized}},
		"the namespace is empty, before the grace period ends": {
			server: fakeServer{cached: terminating()}, gracePeriod: 5 * time.Second,
			want: ctrl.Result{RequeueAfter: 5 * time.Second},
		},
		"the namespace is empty and has conditions, before the grace period ends": {
			server: fakeServer{cached: terminating(func(n *corev1.Namespace) {
				n.Status.Conditions = []corev1.NamespaceCondition{{
					Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue,
				}}
			})},
			gracePeriod: 5 * time.Second, wantWrites: []string{emptied}, want: ctrl.Result{RequeueAfter: 5 * time.Second},
			wantEvents: []string{"Normal ContentRemoved All content successfully removed"},
		},
		"the phase is written first": {
			server: fakeServer{cached: terminating(active)}, wantWrites: []string{phase, "finalize x by nslifecycle: uid=x-uid resourceVersion=8 finalizers=[]"},
		},
		"the phase cannot be written": {
			server: fakeServer{cached: terminating(active), statusError: errOutage}, wantWrites: []string{phase},
			wantError: `failed to update the status of namespace "x": ` + errOutage.Error(),
		},
		"a conflict while the phase is written": {
			server: fakeServer{cached: terminating(active), statusError: errConflict}, wantWrites: []string{phase}, want: retry,
		},
		"the namespace is recreated before the phase is written": {
			server: fakeServer{cached: terminating(active), statusError: errRecreated}, wantWrites: []string{phase}, want: retry,
		},
		"the namespace is deleted before the phase is written": {
			server: fakeServer{cached: terminating(active), statusError: errNotFound}, wantWrites: []string{phase}, want: retry,
		},

		// Content.
		"an object has a finalizer": {
			server:     fakeServer{cached: terminating(), configMaps: stuck},
			wantWrites: []string{remaining}, want: ctrl.Result{RequeueAfter: 2 * time.Second},
			wantEvents: []string{
				"Normal SomeResourcesRemain Some resources are remaining: configmaps. has 1 resource instances",
				"Normal SomeFinalizersRemain Some content in the namespace has finalizers remaining: " +
					"example.com/hold in 1 resource instances",
			},
		},
		"a type cannot be listed": {
			server: fakeServer{cached: terminating(), contentError: errOutage}, wantWrites: []string{failed},
			wantEvents: []string{"Warning ContentDeletionFailed Failed to delete all resource types, 1 remaining: " +
				"failed to list configmaps: " + errOutage.Error()},
			wantError: `failed to delete the content of namespace "x": failed to list configmaps: ` + errOutage.Error(),
		},
		"requests are throttled": {
			server:     fakeServer{cached: terminating(), contentError: apierrors.NewTooManyRequests("too many", 7)},
			wantWrites: []string{failed}, want: ctrl.Result{RequeueAfter: 7 * time.Second},
			wantEvents: []string{"Warning ContentDeletionFailed Failed to delete all resource types, 1 remaining: " +
				"failed to list configmaps: too many"},
		},
		"the removal of the finalizer is throttled": {
			server:     fakeServer{cached: terminating(), finalizeErrors: []error{apierrors.NewTooManyRequests("too many", 7)}},
			wantWrites: []string{finalized}, want: ctrl.Result{RequeueAfter: 7 * time.Second},
		},
		"discovery fails": {
			server: fakeServer{cached: terminating(), discoveryError: errOutage},
			wantWrites: []string{"status of x: uid=x-uid NamespaceDeletionDiscoveryFailure=True/DiscoveryFailed NamespaceDeletionGroupVersionParsingFailure=False/ParsedGroupVersions " +
				"NamespaceDeletionContentFailure=Unknown/ContentUnknown NamespaceContentRemaining=Unknown/ContentUnknown NamespaceFinalizersRemaining=Unknown/ContentUnknown Ready=False/Terminating"},
			wantEvents: []string{"Warning DiscoveryFailed " + errOutage.Error()},
			wantError:  `failed to delete the content of namespace "x": ` + errOutage.Error(),
		},
		"a type cannot be listed, and conditions cannot be written": {
			server:     fakeServer{cached: terminating(), contentError: errOutage, statusError: errForbidden},
			wantWrites: []string{failed},
			wantEvents: []string{`Warning WriteRejected failed to update the status of namespace "x": ` + errForbidden.Error()},
			wantError: `failed to delete the content of namespace "x": failed to list configmaps: ` + errOutage.Error() + "\n" +
				`failed to update the status of namespace "x": ` + errForbidden.Error(),
		},
		"the namespace is deleted while conditions are written": {
			server:     fakeServer{cached: terminating(), configMaps: stuck, statusError: errNotFound},
			wantWrites: []string{remaining}, want: ctrl.Result{RequeueAfter: 2 * time.Second},
		},
		"the namespace is recreated while conditions are written": {
			server:     fakeServer{cached: terminating(), configMaps: stuck, statusError: errRecreated},
			wantWrites: []string{remaining}, want: ctrl.Result{RequeueAfter: 2 * time.Second},
		},
		"the namespace was recreated, and the cache is stale": {
			server: fakeServer{
				cached: terminating(), live: wrappers.MakeNamespace("x").UID("another-uid").Obj(), configMaps: fresh,
			},
		},
		"the namespace was deleted, and the cache is stale": {
			server: fakeServer{cached: terminating(), liveError: errNotFound, configMaps: fresh},
		},
		"the namespace cannot be read before its content is deleted": {
			server:    fakeServer{cached: terminating(), liveError: errOutage, configMaps: fresh},
			wantError: `failed to get namespace "x" before deleting its content: ` + errOutage.Error(),
		},

		// Namespace finalizers.
		"only the operator's finalizer is removed; the others keep their order": {
			server: fakeServer{cached: terminating(withFinalizers("z.example.com/z", "kubernetes", otherFinalizer))},
			wantWrites: []string{emptied,
				"finalize x by nslifecycle: uid=x-uid resourceVersion=8 finalizers=[z.example.com/z a.example.com/other]"},
		},
		"finalizers in metadata.finalizers": {
			server: fakeServer{cached: terminating(held)}, wantWrites: []string{emptied, "finalize x by nslifecycle: uid=x-uid resourceVersion=8 finalizers=[]"},
		},
		// Events are recorded for changed conditions, and for new conditions that are True.
		"finalizers in metadata.finalizers, and conditions change": {
			server: fakeServer{cached: terminating(held, func(n *corev1.Namespace) {
				n.Status.Conditions = []corev1.NamespaceCondition{
					{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue},
					{Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now)},
					{Type: "corp.com/Ready", Status: corev1.ConditionTrue},
				}
			})},
			wantWrites: []string{emptied, "finalize x by nslifecycle: uid=x-uid resourceVersion=8 finalizers=[]"},
			wantEvents: []string{"Normal ContentRemoved All content successfully removed"},
		},
		"finalizers in metadata.finalizers, and conditions cannot be written": {
			server:     fakeServer{cached: terminating(held), statusError: errOutage},
			wantWrites: []string{emptied}, wantError: `failed to update the status of namespace "x": ` + errOutage.Error(),
		},
		"finalizers in metadata.finalizers, and a conflict while conditions are written": {
			server: fakeServer{cached: terminating(held), statusError: errConflict}, wantWrites: []string{emptied}, want: retry,
		},
		"finalizers in metadata.finalizers, recreated before conditions are written": {
			server: fakeServer{cached: terminating(held), statusError: errRecreated}, wantWrites: []string{emptied}, want: retry,
		},
		"only other namespace finalizers": {
			server: fakeServer{cached: terminating(withFinalizers(otherFinalizer)), configMaps: fresh},
		},
		"only other namespace finalizers, and the phase is Active": {
			server: fakeServer{cached: terminating(active, withFinalizers(otherFinalizer))}, wantWrites: []string{phase},
		},
		"the finalizer is removed from the cached Namespace": {
			server: fakeServer{cached: terminating(), liveError: errOutage}, wantWrites: []string{finalized},
		},
		"finalizers in metadata.finalizers; the namespace is read from the API server first": {
			server:     fakeServer{cached: terminating(held), liveError: errOutage},
			wantWrites: []string{emptied}, wantError: errOutage.Error(),
		},
		"conflicts again and again": {
			server:     fakeServer{cached: terminating(), onFinalize: func(s *fakeServer) { s.finalizeErrors = []error{errConflict} }},
			wantWrites: slices.Repeat([]string{finalized}, maxConflicts),
			wantError:  `failed to remove namespace finalizer "kubernetes" from namespace "x": too many update conflicts`,
		},
		"a conflict: the finalizer is removed from the current Namespace": {
			server: conflicting(terminating(withFinalizers(otherFinalizer, "kubernetes", agentFinalizer), version("9"))),
			wantWrites: []string{
				finalized,
				"finalize x by nslifecycle: uid=x-uid resourceVersion=9 finalizers=[a.example.com/other example.com/agent]",
			},
		},
		"a webhook denies the removal with the code 409": {
			server: fakeServer{cached: terminating(), finalizeErrors: []error{errInUse}}, wantWrites: []string{finalized},
			wantEvents: []string{
				`Warning WriteRejected failed to remove namespace finalizer "kubernetes" from namespace "x": ` + errInUse.Error(),
			},
			wantError: `failed to remove namespace finalizer "kubernetes" from namespace "x": ` + errInUse.Error(),
		},
		"a conflict, and the finalizer was removed": {
			server: conflicting(terminating(withFinalizers(otherFinalizer), version("9"))), wantWrites: []string{finalized},
		},
		"a conflict, and the namespace was recreated": {
			server: conflicting(terminating(recreated)), wantWrites: []string{finalized},
		},
		"a conflict, and the namespace is not terminating": {
			server: conflicting(terminating(notDeleted)), wantWrites: []string{finalized},
		},
		"a conflict, and the namespace was deleted": {
			server: fakeServer{
				cached: terminating(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *fakeServer) { s.liveError = errNotFound },
			},
			wantWrites: []string{finalized},
		},
		"a conflict, and the namespace cannot be read": {
			server: fakeServer{
				cached: terminating(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *fakeServer) { s.liveError = errOutage },
			},
			wantWrites: []string{finalized}, wantError: errOutage.Error(),
		},
		"the namespace is deleted before the finalizer is removed": {
			server: fakeServer{cached: terminating(), finalizeErrors: []error{errNotFound}}, wantWrites: []string{finalized},
		},
		"the finalizer cannot be removed": {
			server: fakeServer{cached: terminating(), finalizeErrors: []error{errOutage}}, wantWrites: []string{finalized},
			wantError: `failed to remove namespace finalizer "kubernetes" from namespace "x": ` + errOutage.Error(),
		},

		// Without namespace finalizers.
		"no finalizers": {
			server: fakeServer{cached: terminating(withFinalizers()), configMaps: fresh}, wantWrites: []string{restored + "7" + ours},
		},
		"only finalizers in metadata.finalizers": {server: fakeServer{cached: terminating(held, withFinalizers())}},
		"no finalizers, and another controller has added one": {
			server: fakeServer{cached: terminating(withFinalizers()), live: terminating(withFinalizers(otherFinalizer))},
		},
		"no finalizers, and the namespace was recreated": {
			server: fakeServer{cached: terminating(withFinalizers()), live: terminating(withFinalizers(), recreated)},
		},
		"no finalizers, and the namespace was deleted": {
			server: fakeServer{cached: terminating(withFinalizers()), liveError: errNotFound}, want: retry,
		},
		// The watch event of the conflicting write may not trigger the reconciler.
		"no finalizers, and the addition returns a conflict": {
			server:     fakeServer{cached: terminating(withFinalizers()), finalizeErrors: []error{errConflict}},
			wantWrites: []string{restored + "7" + ours}, want: retry,
		},
		"no finalizers, and none can be added": {
			server:     fakeServer{cached: terminating(withFinalizers()), finalizeErrors: []error{errOutage}},
			wantWrites: []string{restored + "7" + ours},
			wantError:  `failed to add namespace finalizer "kubernetes" to namespace "x": ` + errOutage.Error(),
		},

		// Namespaces whose content the operator never deletes.
		"default": {
			server:     fakeServer{cached: terminating(named("default"), active), configMaps: fresh},
			wantWrites: []string{"status of default" + refused}, wantEvents: []string{refusedEvent("default")},
		},
		"kube-system without finalizers": {server: fakeServer{cached: terminating(named("kube-system"), withFinalizers())}},
		"kube-public, and the conditions are already set": {
			server: fakeServer{cached: terminating(named("kube-public"), isRefused, func(n *corev1.Namespace) {
				n.Status.Conditions = initialization.WithTerminating(n, n.Status.Conditions, metav1.NewTime(now))
			})},
		},
		"kube-public, and another controller has set the condition": {
			server:     fakeServer{cached: terminating(named("kube-public"), isRefused)},
			wantWrites: []string{"status of kube-public: uid=x-uid Ready=False/Terminating"},
		},
		"kube-public, and the write returns a conflict": {
			server:     fakeServer{cached: terminating(named("kube-public")), statusError: errConflict},
			wantWrites: []string{"status of kube-public" + refused}, want: retry,
		},
		"kube-public, and the namespace was recreated": {
			server:     fakeServer{cached: terminating(named("kube-public")), statusError: errRecreated},
			wantWrites: []string{"status of kube-public" + refused}, want: retry,
		},
		"kube-system with other namespace finalizers": {
			server: fakeServer{cached: terminating(named("kube-system"), withFinalizers(otherFinalizer)), configMaps: fresh},
		},
		"the operator's own namespace with other namespace finalizers": {
			server: fakeServer{cached: terminating(named(systemNamespace), withFinalizers(otherFinalizer)), configMaps: fresh},
		},
		"the operator's own namespace, which another controller may finalize": {
			server: fakeServer{cached: terminating(named(systemNamespace)), configMaps: fresh},
			want:   ctrl.Result{RequeueAfter: 30 * time.Second},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			recorder := events.NewFakeRecorder(10)
			reconciler := test.server.finalizationReconciler(recorder)
			test.server.gracePeriods.Config.Fixed = &test.gracePeriod
			result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
			g.Expect(err).To(matchError(test.wantError))
			g.Expect(result).To(Equal(test.want))
			g.Expect(test.server.writes).To(Equal(test.wantWrites))
			g.Expect(recorded(recorder)).To(Equal(test.wantEvents))
		})
	}
}

// The operator reports the refusal only if no other controller finalizes the operator's own namespace.
func TestFinalizationReconcileRefusesTheOwnNamespace(t *testing.T) {
	g := NewWithT(t)
	server := &fakeServer{cached: terminating(named(systemNamespace))}
	recorder := events.NewFakeRecorder(10)
	reconciler := server.finalizationReconciler(recorder)
	passive := reconciler.Clock.(*clocktesting.FakePassiveClock)
	for _, step := range []struct{ passed, left time.Duration }{
		{0, 30 * time.Second}, {20 * time.Second, 10 * time.Second}, {30 * time.Second, 0},
	} {
		g.Expect(server.writes).To(BeEmpty())
		passive.SetTime(now.Add(step.passed))
		result, err := reconciler.Reconcile(t.Context(), requestFor(systemNamespace))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result).To(Equal(ctrl.Result{RequeueAfter: step.left}))
	}
	g.Expect(server.writes).To(Equal([]string{"status of nslifecycle-system: uid=x-uid NamespaceDeletionContentFailure=True/ContentDeletionFailed " +
		"since 2026-03-01 12:00:30 +0000 UTC Ready=False/Terminating since 2026-03-01 12:00:30 +0000 UTC"}))
	g.Expect(recorded(recorder)).To(ConsistOf(And(
		HavePrefix("Warning ContentDeletionFailed "), ContainSubstring(`"nslifecycle-system"`))))
}

// The grace period starts when the reconciler first sees that the Namespace is terminating.
func TestFinalizationReconcileWaitsForTheGracePeriod(t *testing.T) {
	g := NewWithT(t)
	server := &fakeServer{cached: terminating()}
	reconciler := server.finalizationReconciler(events.NewFakeRecorder(10))
	server.gracePeriods.Config.Fixed = ptr.To(5 * time.Second)
	passive := reconciler.Clock.(*clocktesting.FakePassiveClock)
	reconcile := func(at time.Duration) time.Duration {
		passive.SetTime(now.Add(at))
		result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
		g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
		return result.RequeueAfter
	}
	g.Expect(reconcile(0)).To(Equal(5 * time.Second))
	g.Expect(reconcile(2 * time.Second)).To(Equal(3 * time.Second))
	g.Expect(server.discovers).To(Equal(1))

	// The grace period starts again for a new Namespace with the same name.
	server.cached.UID = "another-uid"
	g.Expect(reconcile(4 * time.Second)).To(Equal(5 * time.Second))
	g.Expect(server.writes).NotTo(ContainElement(HavePrefix("finalize")))
	g.Expect(reconcile(9 * time.Second)).To(BeZero())
	g.Expect(server.writes).To(ContainElement(HavePrefix("finalize x by nslifecycle: uid=another-uid")))
	// Discovery is repeated after the grace period.
	g.Expect(server.discovers).To(Equal(2))
}

// Conditions are updated after a failure, even if the cache does not contain them yet.
func TestFinalizationReconcileUpdatesConditionsAfterAFailure(t *testing.T) {
	g := NewWithT(t)
	server := &fakeServer{cached: terminating(), contentError: errOutage}
	reconciler := server.finalizationReconciler(events.NewFakeRecorder(10))
	server.gracePeriods.Config.Fixed = ptr.To(time.Minute)
	_, err := reconciler.Reconcile(t.Context(), requestFor("x"))
	g.Expect(err).To(MatchError(errOutage))
	server.contentError, server.writes = nil, nil
	_, err = reconciler.Reconcile(t.Context(), requestFor("x"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.writes).To(Equal([]string{"status of x: uid=x-uid NamespaceDeletionDiscoveryFailure=False/ResourcesDiscovered " +
		"NamespaceDeletionGroupVersionParsingFailure=False/ParsedGroupVersions NamespaceDeletionContentFailure=False/ContentDeleted NamespaceContentRemaining=False/ContentRemoved NamespaceFinalizersRemaining=False/ContentHasNoFinalizers Ready=False/Terminating"}))
}

func TestDeletionChanged(t *testing.T) {
	before := terminating(version("6"))
	tests := map[string]struct {
		before, after client.Object
		want          bool
	}{
		"a label and a condition changed": {after: terminating(func(n *corev1.Namespace) {
			n.Labels["app"] = "web"
			n.Status.Conditions = []corev1.NamespaceCondition{{Type: corev1.NamespaceContentRemaining}}
		})},
		"a resync without a change":                          {after: before.DeepCopy(), want: true},
		"a namespace finalizer changed":                      {after: terminating(withFinalizers(otherFinalizer)), want: true},
		"metadata.finalizers changed":                        {after: terminating(held), want: true},
		"the phase changed":                                  {after: terminating(active), want: true},
		"the namespace was recreated":                        {after: terminating(recreated), want: true},
		"the namespace was deleted":                          {before: terminating(notDeleted), after: terminating(), want: true},
		"the namespace was recreated and is not terminating": {after: wrappers.MakeNamespace("x").UID("another-uid").Obj()},
		"a namespace that is not terminating": {
			before: wrappers.MakeNamespace("x").Obj(), after: wrappers.MakeNamespace("x").Obj(),
		},
		"another kind": {after: &corev1.Pod{}, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.before == nil {
				test.before = before
			}
			accepted := deletionChanged().Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after})
			NewWithT(t).Expect(accepted).To(Equal(test.want))
		})
	}
	g := NewWithT(t)
	g.Expect(deletionChanged().Create(event.CreateEvent{Object: before})).To(BeTrue())
	g.Expect(deletionChanged().Create(event.CreateEvent{Object: wrappers.MakeNamespace("x").Obj()})).To(BeFalse())
	// The reconciler must discard the state of a deleted Namespace.
	g.Expect(deletionChanged().Delete(event.DeleteEvent{Object: before})).To(BeTrue())
}

// newQueue returns a queue like the queue of the reconciler. It must be called in a synctest bubble.
func newQueue() requestQueue {
	return workqueue.NewTypedRateLimitingQueue(newRateLimiter(firstRetryDelay))
}

// arrival waits for the next request in the queue. It returns the time that it waited and the requested name.
func arrival(queue requestQueue) (time.Duration, string) {
	start := time.Now()
	request, _ := queue.Get()
	queue.Done(request)
	return time.Since(start), request.Name
}

func TestFinalizationHandleTypeChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		queue := newQueue()
		defer queue.ShutDown()
		server := &fakeServer{}
		reconciler := server.finalizationReconciler(events.NewFakeRecorder(10))
		reconcile := func(name string, discoveryError error) error {
			server.cached, server.discoveryError = terminating(named(name)), discoveryError
			_, err := reconciler.Reconcile(t.Context(), requestFor(name))
			return err
		}
		passive := reconciler.Clock.(*clocktesting.FakePassiveClock)
		g.Expect(reconcile("x", errOutage)).To(MatchError(errOutage))
		passive.SetTime(now.Add(time.Millisecond))
		g.Expect(reconcile("y", nil)).To(Succeed())
		g.Expect(reconcile("y", nil)).To(Succeed())
		g.Expect(server.discovers).To(Equal(2))
		for range 5 {
			queue.AddRateLimited(requestFor("x"))
		}
		time.Sleep(time.Minute)
		arrival(queue)

		reconciler.handleTypeChange(t.Context(), nil, false, queue)
		// The API server needs time to update discovery.
		took, request := arrival(queue)
		g.Expect(took).To(Equal(finalization.DiscoveryDelay))
		g.Expect(request).To(Equal("x"))
		g.Expect(queue.NumRequeues(requestFor("x"))).To(BeZero())
		time.Sleep(time.Minute)
		g.Expect(queue.Len()).To(BeZero())

		passive.SetTime(now.Add(2 * time.Millisecond))
		g.Expect(reconcile("y", nil)).To(Succeed())
		g.Expect(server.discovers).To(Equal(3))
	})
}

// liveNamespaces reads Namespaces from the API server instead of a cache.
type liveNamespaces struct{ reader client.Reader }

func (l liveNamespaces) Get(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	return namespace, l.reader.Get(ctx, client.ObjectKey{Name: name}, namespace)
}

// slowWebhook is a webhook that can delay requests.
var slowWebhook = admissionv1.ValidatingWebhookConfiguration{
	ObjectMeta: metav1.ObjectMeta{Name: "slow"},
	Webhooks: []admissionv1.ValidatingWebhook{{Name: "slow.example.com", Rules: []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.OperationAll},
		Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}}}},
}

func TestFinalizationReconcileChoosesTheGracePeriod(t *testing.T) {
	one := []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	two := slices.Concat(one, []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Name: "b"}}})
	tests := map[string]struct {
		server    fakeServer
		want      time.Duration
		wantLists int
	}{
		"one API server":          {server: fakeServer{leases: one}, want: time.Second, wantLists: 1},
		"two API servers":         {server: fakeServer{leases: two}, want: 5 * time.Second},
		"Leases cannot be listed": {server: fakeServer{leases: one, leasesError: errOutage}, want: 5 * time.Second},
		"a webhook can delay requests": {
			server: fakeServer{leases: one, webhooks: []admissionv1.ValidatingWebhookConfiguration{slowWebhook}},
			want:   5 * time.Second, wantLists: 1,
		},
		"webhooks cannot be listed": {
			server: fakeServer{leases: one, webhooksError: errOutage}, want: 5 * time.Second, wantLists: 1,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			test.server.cached = terminating()
			reconciler := test.server.finalizationReconciler(events.NewFakeRecorder(10))
			test.server.gracePeriods.Config = graceperiod.GracePeriod{}
			result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(Equal(test.want))
			g.Expect(test.server.webhookLists).To(Equal(test.wantLists))
		})
	}
}

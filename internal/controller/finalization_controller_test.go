// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
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
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/graceperiod"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	agentFinalizer corev1.FinalizerName = "example.com/agent"
	otherFinalizer corev1.FinalizerName = "a.example.com/other"
)

// finalizationServer serves one Namespace and its ConfigMaps, and records writes as text. The effect
// of a write to /finalize is tested in test/finalization.
type finalizationServer struct {
	// cached is the Namespace in the cache, live the one in the API server; if nil, both are the
	// same.
	cached, live *corev1.Namespace
	// configMaps are in the namespace.
	configMaps []metav1.PartialObjectMetadata
	// leases are the Leases of the API servers.
	leases []coordinationv1.Lease
	// webhooks are the configurations of validating webhooks.
	webhooks []admissionv1.ValidatingWebhookConfiguration
	// The errors that requests return. finalizeErrors are returned in this order.
	getError, liveError, listError, discoveryError, leasesError, webhooksError, statusError, deleteError error
	finalizeErrors                                                                                       []error
	// onFinalize is called for each finalize request.
	onFinalize func(*finalizationServer)

	gracePeriods *graceperiod.Source
	writes       []string
	discovers    int
	webhookLists int
}

func (s *finalizationServer) reconciler(recorder events.EventRecorder) *FinalizationReconciler {
	passive := clocktesting.NewFakePassiveClock(now)
	content := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	content.PrependReactor("*", "*", s.content)
	content.PrependWatchReactor("*", clienttesting.DefaultWatchReactor(nil, errOutage))
	live := newFakeClient(interceptor.Funcs{Get: s.getLive, List: s.listWebhooks})
	cached := newFakeClient(interceptor.Funcs{
		Get: s.get, List: s.list, Delete: s.delete, SubResourcePatch: s.patchStatus, SubResourceUpdate: s.finalize,
	})
	s.gracePeriods = &graceperiod.Source{
		Config: finalization.GracePeriod{Fixed: ptr.To(time.Duration(0))}, Leases: cached, Live: live, Clock: passive,
	}
	return &FinalizationReconciler{
		Client: cached, Live: live, Recorder: recorder, Clock: passive,
		NamespaceFinalizer: corev1.FinalizerKubernetes,
		OwnNamespace:       systemNamespace,
		Finalizer: finalization.New(finalization.Config{
			NamespaceFinalizer: corev1.FinalizerKubernetes, Clock: passive, Discoverer: s, Content: content,
			Namespaces: liveNamespaces{live}, GracePeriods: s.gracePeriods,
			IsAggregated: func(schema.GroupVersion) bool { return false },
			Metrics:      metrics.FinalizationRecorder{}, Durations: metrics.FinalizationRecorder{}, Log: logr.Discard(),
		}),
	}
}

func (s *finalizationServer) ServerPreferredNamespacedResourcesWithContext(
	context.Context,
) ([]*metav1.APIResourceList, error) {
	s.discovers++
	return []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{
		Name: "configmaps", Namespaced: true, Verbs: metav1.Verbs{"list", "delete"},
	}}}}, s.discoveryError
}

func (s *finalizationServer) content(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetVerb() != "list" {
		s.writes = append(s.writes, action.GetVerb()+" "+action.GetResource().Resource)
		return true, nil, nil
	}
	if s.listError != nil {
		return true, nil, s.listError
	}
	list := &metav1.List{}
	for i := range s.configMaps {
		list.Items = append(list.Items, runtime.RawExtension{Object: &s.configMaps[i]})
	}
	return true, list, nil
}

func (s *finalizationServer) get(
	_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption,
) error {
	if s.getError == nil {
		s.cached.DeepCopyInto(object.(*corev1.Namespace))
	}
	return s.getError
}

func (s *finalizationServer) getLive(
	_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object, _ ...client.GetOption,
) error {
	switch {
	case s.liveError != nil:
		return s.liveError
	case s.live != nil:
		s.live.DeepCopyInto(object.(*corev1.Namespace))
	default:
		s.cached.DeepCopyInto(object.(*corev1.Namespace))
	}
	return nil
}

func (s *finalizationServer) list(
	_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption,
) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	if options.Namespace != metav1.NamespaceSystem ||
		options.LabelSelector.String() != "apiserver.kubernetes.io/identity=kube-apiserver" {
		return fmt.Errorf("the list options do not select the Leases of API servers: %v", options)
	}
	list.(*coordinationv1.LeaseList).Items = s.leases
	return s.leasesError
}

func (s *finalizationServer) listWebhooks(
	_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption,
) error {
	switch list := list.(type) {
	case *admissionv1.MutatingWebhookConfigurationList:
		s.webhookLists++
	case *admissionv1.ValidatingWebhookConfigurationList:
		list.Items = s.webhooks
	}
	return s.webhooksError
}

func (s *finalizationServer) delete(
	_ context.Context, _ client.WithWatch, object client.Object, opts ...client.DeleteOption,
) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	s.writes = append(s.writes, fmt.Sprintf("delete %s: uid=%s resourceVersion=%s",
		object.GetName(), *options.Preconditions.UID, *options.Preconditions.ResourceVersion))
	return s.deleteError
}

func (s *finalizationServer) patchStatus(
	_ context.Context, _ client.Client, subResource string, object client.Object, patch client.Patch,
	_ ...client.SubResourcePatchOption,
) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	var body corev1.Namespace
	if err := json.Unmarshal(data, &body); err != nil {
		return err
	}
	words := []string{fmt.Sprintf("%s of %s: uid=%s", subResource, object.GetName(), body.UID)}
	if body.Status.Phase != "" {
		words = append(words, "phase="+string(body.Status.Phase))
	}
	for _, condition := range body.Status.Conditions {
		words = append(words, fmt.Sprintf("%s=%s", condition.Reason, condition.Status))
	}
	s.writes = append(s.writes, strings.Join(words, " "))
	if s.statusError == nil { // The API server returns the current object.
		object.SetResourceVersion("8")
		if body.Status.Phase != "" {
			object.(*corev1.Namespace).Status.Phase = body.Status.Phase
		}
	}
	return s.statusError
}

func (s *finalizationServer) finalize(
	_ context.Context, _ client.Client, subResource string, object client.Object, opts ...client.SubResourceUpdateOption,
) error {
	options := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts)
	s.writes = append(s.writes, fmt.Sprintf("%s %s by %s: uid=%s resourceVersion=%s finalizers=%s", subResource, object.GetName(),
		options.FieldManager, object.GetUID(), object.GetResourceVersion(), object.(*corev1.Namespace).Spec.Finalizers))
	if s.onFinalize != nil {
		s.onFinalize(s)
	}
	if len(s.finalizeErrors) == 0 {
		return nil
	}
	err := s.finalizeErrors[0]
	s.finalizeErrors = s.finalizeErrors[1:]
	return err
}

// terminating returns a terminating Namespace.
func terminating(change ...func(*corev1.Namespace)) *corev1.Namespace {
	namespace := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Terminating(now).Obj()
	for _, change := range change {
		change(namespace)
	}
	return namespace
}

func withFinalizers(finalizers ...corev1.FinalizerName) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) { namespace.Spec.Finalizers = finalizers }
}

func active(namespace *corev1.Namespace) { namespace.Status.Phase = corev1.NamespaceActive }

func held(namespace *corev1.Namespace) { namespace.Finalizers = []string{"example.com/hold"} }

func named(name string) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) { namespace.Name = name }
}

func version(resourceVersion string) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) { namespace.ResourceVersion = resourceVersion }
}

// refusedEvent is the Event of a Namespace whose content is not deleted.
func refusedEvent(name string) string {
	namespace := terminating(named(name))
	refusal := finalization.ComputeRefusal(namespace, finalization.RefusalReason(namespace, systemNamespace), metav1.Now())
	return "Warning ContentDeletionFailed " + refusal[0].Message
}

func TestFinalizationReconcile(t *testing.T) {
	const (
		finalized  = "finalize x by nslifecycle: uid=x-uid resourceVersion=7 finalizers=[]"
		final      = "delete x: uid=x-uid resourceVersion="
		phase      = "status of x: uid=x-uid phase=Terminating"
		conditions = "status of x: uid=x-uid ResourcesDiscovered=False ParsedGroupVersions=False "
		emptied    = conditions + "ContentDeleted=False ContentRemoved=False ContentHasNoFinalizers=False"
		remaining  = conditions + "ContentDeleted=False SomeResourcesRemain=True SomeFinalizersRemain=True"
		failed     = conditions + "ContentDeletionFailed=True ContentUnknown=Unknown ContentUnknown=Unknown"
		refused    = ": uid=x-uid ContentDeletionFailed=True"
	)
	stuck := []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{
		Name: "c", Finalizers: []string{"example.com/hold"}, DeletionTimestamp: &metav1.Time{Time: now},
	}}}
	fresh := []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c-uid"}}}
	retry := ctrl.Result{RequeueAfter: firstRetryDelay}

	tests := map[string]struct {
		server      finalizationServer
		gracePeriod time.Duration
		want        ctrl.Result
		wantWrites  []string
		wantEvents  []string
		wantError   string
	}{
		"it does not exist": {server: finalizationServer{getError: errNotFound}},
		"it cannot be read": {
			server: finalizationServer{getError: errOutage}, wantError: errOutage.Error(),
		},
		"it is not terminating": {
			server: finalizationServer{cached: wrappers.MakeNamespace("x").UID("x-uid").Obj(), configMaps: fresh},
		},
		"it is not terminating and has no namespace finalizer": {
			server: finalizationServer{cached: terminating(withFinalizers(), func(n *corev1.Namespace) { n.DeletionTimestamp = nil })},
		},
		"it is empty": {server: finalizationServer{cached: terminating()}, wantWrites: []string{finalized}},
		"it is empty, before the grace period ends": {
			server: finalizationServer{cached: terminating()}, gracePeriod: 5 * time.Second,
			want: ctrl.Result{RequeueAfter: 5 * time.Second},
		},
		"it is empty, before the grace period ends, and has conditions": {
			server: finalizationServer{cached: terminating(func(n *corev1.Namespace) {
				n.Status.Conditions = []corev1.NamespaceCondition{{
					Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue,
				}}
			})},
			gracePeriod: 5 * time.Second, wantWrites: []string{emptied}, want: ctrl.Result{RequeueAfter: 5 * time.Second},
			wantEvents: []string{"Normal ContentRemoved All content successfully removed"},
		},
		"its phase is written first": {
			server: finalizationServer{cached: terminating(active)}, wantWrites: []string{phase, "finalize x by nslifecycle: uid=x-uid resourceVersion=8 finalizers=[]"},
		},
		"its phase cannot be written": {
			server: finalizationServer{cached: terminating(active), statusError: errOutage}, wantWrites: []string{phase},
			wantError: `failed to update the status of namespace "x": ` + errOutage.Error(),
		},
		"a conflict while its phase is written": {
			server: finalizationServer{cached: terminating(active), statusError: errConflict}, wantWrites: []string{phase}, want: retry,
		},
		"it is recreated before its phase is written": {
			server: finalizationServer{cached: terminating(active), statusError: errRecreated}, wantWrites: []string{phase}, want: retry,
		},
		"it is deleted before its phase is written": {
			server: finalizationServer{cached: terminating(active), statusError: errNotFound}, wantWrites: []string{phase},
		},

		// Content.
		"an object has a finalizer": {
			server:     finalizationServer{cached: terminating(), configMaps: stuck},
			wantWrites: []string{remaining}, want: ctrl.Result{RequeueAfter: 2 * time.Second},
			wantEvents: []string{
				"Normal SomeResourcesRemain Some resources are remaining: configmaps. has 1 resource instances",
				"Normal SomeFinalizersRemain Some content in the namespace has finalizers remaining: " +
					"example.com/hold in 1 resource instances",
			},
		},
		"a type cannot be listed": {
			server:     finalizationServer{cached: terminating(), listError: errOutage},
			wantWrites: []string{failed},
			wantEvents: []string{"Warning ContentDeletionFailed Failed to delete all resource types, 1 remaining: " +
				"failed to list configmaps: " + errOutage.Error()},
			wantError: `failed to delete the content of namespace "x": failed to list configmaps: ` + errOutage.Error(),
		},
		"requests are throttled": {
			server:     finalizationServer{cached: terminating(), listError: apierrors.NewTooManyRequests("too many", 7)},
			wantWrites: []string{failed}, want: ctrl.Result{RequeueAfter: 7 * time.Second},
			wantEvents: []string{"Warning ContentDeletionFailed Failed to delete all resource types, 1 remaining: " +
				"failed to list configmaps: too many"},
		},
		"the removal of the finalizer is throttled": {
			server: finalizationServer{
				cached: terminating(), finalizeErrors: []error{apierrors.NewTooManyRequests("too many", 7)},
			},
			wantWrites: []string{finalized}, want: ctrl.Result{RequeueAfter: 7 * time.Second},
		},
		"discovery fails": {
			server: finalizationServer{cached: terminating(), discoveryError: errOutage},
			wantWrites: []string{"status of x: uid=x-uid DiscoveryFailed=True ParsedGroupVersions=False " +
				"ContentUnknown=Unknown ContentUnknown=Unknown ContentUnknown=Unknown"},
			wantEvents: []string{"Warning DiscoveryFailed " + errOutage.Error()},
			wantError:  `failed to delete the content of namespace "x": ` + errOutage.Error(),
		},
		"neither can conditions be written": {
			server:     finalizationServer{cached: terminating(), listError: errOutage, statusError: errForbidden},
			wantWrites: []string{failed},
			wantError: `failed to delete the content of namespace "x": failed to list configmaps: ` + errOutage.Error() + "\n" +
				`failed to update the status of namespace "x": ` + errForbidden.Error(),
		},
		"it is deleted while its conditions are written": {
			server:     finalizationServer{cached: terminating(), configMaps: stuck, statusError: errNotFound},
			wantWrites: []string{remaining}, want: ctrl.Result{RequeueAfter: 2 * time.Second},
		},
		"it is recreated while its conditions are written": {
			server:     finalizationServer{cached: terminating(), configMaps: stuck, statusError: errRecreated},
			wantWrites: []string{remaining}, want: ctrl.Result{RequeueAfter: 2 * time.Second},
		},
		"it is recreated, and the cache is stale": {
			server: finalizationServer{
				cached: terminating(), live: wrappers.MakeNamespace("x").UID("another-uid").Obj(), configMaps: fresh,
			},
		},
		"it is deleted, and the cache is stale": {
			server: finalizationServer{cached: terminating(), liveError: errNotFound, configMaps: fresh},
		},
		"it cannot be confirmed": {
			server:    finalizationServer{cached: terminating(), liveError: errOutage, configMaps: fresh},
			wantError: `failed to get namespace "x" before deleting its content: ` + errOutage.Error(),
		},

		// Namespace finalizers.
		"only the own finalizer is removed, and the others keep their order": {
			server: finalizationServer{cached: terminating(withFinalizers("z.example.com/z", "kubernetes", otherFinalizer))},
			wantWrites: []string{emptied,
				"finalize x by nslifecycle: uid=x-uid resourceVersion=7 finalizers=[z.example.com/z a.example.com/other]"},
		},
		"it has finalizers in its metadata": {
			server: finalizationServer{cached: terminating(held)}, wantWrites: []string{emptied, finalized},
		},
		"it has finalizers in its metadata and its conditions cannot be written": {
			server:     finalizationServer{cached: terminating(held), statusError: errOutage},
			wantWrites: []string{emptied}, wantError: `failed to update the status of namespace "x": ` + errOutage.Error(),
		},
		"it has finalizers in its metadata and its conditions conflict": {
			server:     finalizationServer{cached: terminating(held), statusError: errConflict},
			wantWrites: []string{emptied}, want: retry,
		},
		"it has finalizers in its metadata and is recreated before its conditions are written": {
			server:     finalizationServer{cached: terminating(held), statusError: errRecreated},
			wantWrites: []string{emptied}, want: retry,
		},
		"it has only other namespace finalizers": {
			server: finalizationServer{cached: terminating(withFinalizers(otherFinalizer)), configMaps: fresh},
		},
		"it has only other namespace finalizers, and no phase": {
			server: finalizationServer{cached: terminating(active, withFinalizers(otherFinalizer))}, wantWrites: []string{phase},
		},
		"the finalizer is removed from the cached Namespace": {
			server: finalizationServer{cached: terminating(), liveError: errOutage}, wantWrites: []string{finalized},
		},
		"it has finalizers in its metadata and is read from the API server first": {
			server:     finalizationServer{cached: terminating(held), liveError: errOutage},
			wantWrites: []string{emptied}, wantError: errOutage.Error(),
		},
		"a conflict: the finalizer is removed from the current Namespace": {
			server: finalizationServer{
				cached: terminating(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) {
					s.live = terminating(withFinalizers(otherFinalizer, "kubernetes", agentFinalizer), version("9"))
				},
			},
			wantWrites: []string{
				finalized,
				"finalize x by nslifecycle: uid=x-uid resourceVersion=9 finalizers=[a.example.com/other example.com/agent]",
			},
		},
		"a conflict, and the finalizer is removed": {
			server: finalizationServer{
				cached: terminating(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) { s.live = terminating(withFinalizers(otherFinalizer), version("9")) },
			},
			wantWrites: []string{finalized},
		},
		"a conflict, and it is recreated": {
			server: finalizationServer{
				cached: terminating(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) {
					s.live = terminating(func(n *corev1.Namespace) { n.UID = "another-uid" })
				},
			},
			wantWrites: []string{finalized},
		},
		"a conflict, and it is not terminating": {
			server: finalizationServer{
				cached: terminating(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) {
					s.live = terminating(func(n *corev1.Namespace) { n.DeletionTimestamp = nil })
				},
			},
			wantWrites: []string{finalized},
		},
		"a conflict, and it is deleted": {
			server: finalizationServer{
				cached: terminating(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) { s.liveError = errNotFound },
			},
			wantWrites: []string{finalized},
		},
		"a conflict, and it cannot be read": {
			server: finalizationServer{
				cached: terminating(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) { s.liveError = errOutage },
			},
			wantWrites: []string{finalized}, wantError: errOutage.Error(),
		},
		"it is deleted before the finalizer is removed": {
			server: finalizationServer{cached: terminating(), finalizeErrors: []error{errNotFound}}, wantWrites: []string{finalized},
		},
		"the finalizer cannot be removed": {
			server: finalizationServer{cached: terminating(), finalizeErrors: []error{errOutage}}, wantWrites: []string{finalized},
			wantError: `failed to remove namespace finalizer "kubernetes" from namespace "x": ` + errOutage.Error(),
		},

		// Without namespace finalizers.
		"no finalizers": {
			server: finalizationServer{cached: terminating(withFinalizers()), configMaps: fresh}, wantWrites: []string{final + "7"},
		},
		"no finalizers, and no phase": {
			server: finalizationServer{cached: terminating(active, withFinalizers())}, wantWrites: []string{phase, final + "8"},
		},
		"only finalizers in its metadata": {
			server: finalizationServer{cached: terminating(held, withFinalizers())},
		},
		"no finalizers, and it is deleted": {
			server: finalizationServer{cached: terminating(withFinalizers()), deleteError: errNotFound}, wantWrites: []string{final + "7"},
		},
		// The change may not trigger the reconciler.
		"no finalizers, and a conflict": {
			server: finalizationServer{cached: terminating(withFinalizers()), deleteError: errConflict}, wantWrites: []string{final + "7"},
			want: retry,
		},
		"no finalizers, and it cannot be deleted": {
			server: finalizationServer{cached: terminating(withFinalizers()), deleteError: errOutage}, wantWrites: []string{final + "7"},
			wantError: `failed to delete namespace "x": ` + errOutage.Error(),
		},

		// Namespaces whose content the operator never deletes.
		"default": {
			server:     finalizationServer{cached: terminating(named("default"), active), configMaps: fresh},
			wantWrites: []string{"status of default" + refused},
			wantEvents: []string{refusedEvent("default")},
		},
		"kube-system without finalizers": {
			server:     finalizationServer{cached: terminating(named("kube-system"), withFinalizers())},
			wantWrites: []string{"status of kube-system" + refused},
			wantEvents: []string{refusedEvent("kube-system")},
		},
		"kube-public with the condition": {
			server: finalizationServer{cached: terminating(named("kube-public"), func(n *corev1.Namespace) {
				n.Status.Conditions = finalization.ComputeRefusal(n, finalization.RefusalReason(n, ""), metav1.NewTime(now))
			})},
		},
		"kube-public, and a conflict": {
			server:     finalizationServer{cached: terminating(named("kube-public")), statusError: errConflict},
			wantWrites: []string{"status of kube-public" + refused}, want: retry,
		},
		"kube-public, recreated": {
			server:     finalizationServer{cached: terminating(named("kube-public")), statusError: errRecreated},
			wantWrites: []string{"status of kube-public" + refused}, want: retry,
		},
		"kube-system with other namespace finalizers": {
			server: finalizationServer{cached: terminating(named("kube-system"), withFinalizers(otherFinalizer)), configMaps: fresh},
		},
		"the own namespace with other namespace finalizers": {
			server: finalizationServer{cached: terminating(named(systemNamespace), withFinalizers(otherFinalizer)), configMaps: fresh},
		},
		"the own namespace, which another controller may finalize": {
			server: finalizationServer{cached: terminating(named(systemNamespace)), configMaps: fresh},
			want:   ctrl.Result{RequeueAfter: 30 * time.Second},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			recorder := events.NewFakeRecorder(10)
			reconciler := test.server.reconciler(recorder)
			test.server.gracePeriods.Config.Fixed = &test.gracePeriod
			result, err := reconciler.Reconcile(t.Context(), requestFor("x"))
			if test.wantError == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(test.wantError))
			}
			g.Expect(result).To(Equal(test.want))
			g.Expect(test.server.writes).To(Equal(test.wantWrites))
			g.Expect(recorded(recorder)).To(Equal(test.wantEvents))
		})
	}
}

// The refusal is reported only if no other controller finalizes the own namespace.
func TestFinalizationReconcileRefusesTheOwnNamespace(t *testing.T) {
	g := NewWithT(t)
	server := &finalizationServer{cached: terminating(named(systemNamespace))}
	recorder := events.NewFakeRecorder(10)
	reconciler := server.reconciler(recorder)
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
	g.Expect(server.writes).To(Equal([]string{"status of nslifecycle-system: uid=x-uid ContentDeletionFailed=True"}))
	g.Expect(recorded(recorder)).To(ConsistOf(And(
		HavePrefix("Warning ContentDeletionFailed "), ContainSubstring(`"nslifecycle-system"`))))
}

// The grace period starts when the deletion of a UID is first seen.
func TestFinalizationReconcileWaitsForTheGracePeriod(t *testing.T) {
	g := NewWithT(t)
	server := &finalizationServer{cached: terminating()}
	reconciler := server.reconciler(events.NewFakeRecorder(10))
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

	// A new Namespace of the same name has a new grace period.
	server.cached.UID = "another-uid"
	g.Expect(reconcile(4 * time.Second)).To(Equal(5 * time.Second))
	g.Expect(server.writes).NotTo(ContainElement(HavePrefix("finalize")))
	g.Expect(reconcile(9 * time.Second)).To(BeZero())
	g.Expect(server.writes).To(ContainElement(HavePrefix("finalize x by nslifecycle: uid=another-uid")))
	// A discovery result from before the end of the grace period is not used.
	g.Expect(server.discovers).To(Equal(2))
}

// Conditions are updated after a failure, even if the cache does not have them yet.
func TestFinalizationReconcileUpdatesConditionsAfterAFailure(t *testing.T) {
	g := NewWithT(t)
	server := &finalizationServer{cached: terminating(), listError: errOutage}
	reconciler := server.reconciler(events.NewFakeRecorder(10))
	server.gracePeriods.Config.Fixed = ptr.To(time.Minute)
	_, err := reconciler.Reconcile(t.Context(), requestFor("x"))
	g.Expect(err).To(MatchError(errOutage))
	server.listError, server.writes = nil, nil
	_, err = reconciler.Reconcile(t.Context(), requestFor("x"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.writes).To(Equal([]string{"status of x: uid=x-uid ResourcesDiscovered=False " +
		"ParsedGroupVersions=False ContentDeleted=False ContentRemoved=False ContentHasNoFinalizers=False"}))
}

func TestFinalizationReconcileGivesUpAfterManyConflicts(t *testing.T) {
	g := NewWithT(t)
	server := &finalizationServer{cached: terminating()}
	server.onFinalize = func(s *finalizationServer) { s.finalizeErrors = []error{errConflict} }
	_, err := server.reconciler(events.NewFakeRecorder(10)).Reconcile(t.Context(), requestFor("x"))
	g.Expect(err).To(MatchError(`failed to remove namespace finalizer "kubernetes" from namespace "x": too many update conflicts`))
	g.Expect(server.writes).To(HaveLen(maxConflicts))
}

// Events are recorded for changed conditions, and for new conditions that are True.
func TestFinalizationReconcileRecordsEvents(t *testing.T) {
	g := NewWithT(t)
	server := &finalizationServer{cached: terminating(held, func(n *corev1.Namespace) {
		n.Status.Conditions = []corev1.NamespaceCondition{
			{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue},
			{Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionFalse},
			{Type: "corp.com/Ready", Status: corev1.ConditionTrue},
		}
	})}
	recorder := events.NewFakeRecorder(10)
	_, err := server.reconciler(recorder).Reconcile(t.Context(), requestFor("x"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(recorded(recorder)).To(Equal([]string{"Normal ContentRemoved All content successfully removed"}))
}

func TestDeletionChanged(t *testing.T) {
	before := terminating(version("6"))
	tests := map[string]struct {
		before, after client.Object
		want          bool
	}{
		"a label and a condition": {after: terminating(func(n *corev1.Namespace) {
			n.Labels["app"] = "web"
			n.Status.Conditions = []corev1.NamespaceCondition{{Type: corev1.NamespaceContentRemaining}}
		})},
		"no change, a resync":   {after: before.DeepCopy(), want: true},
		"a namespace finalizer": {after: terminating(withFinalizers(otherFinalizer)), want: true},
		"its own finalizers":    {after: terminating(held), want: true},
		"the phase":             {after: terminating(active), want: true},
		"recreated":             {after: terminating(func(n *corev1.Namespace) { n.UID = "another-uid" }), want: true},
		"the deletion": {
			before: terminating(func(n *corev1.Namespace) { n.DeletionTimestamp = nil }), after: terminating(), want: true,
		},
		"recreated and not terminating": {after: wrappers.MakeNamespace("x").UID("another-uid").Obj()},
		"not terminating": {
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

// newQueue returns a queue like that of the reconciler, for a synctest bubble.
func newQueue() requestQueue {
	return workqueue.NewTypedRateLimitingQueue(newRateLimiter(firstRetryDelay))
}

// arrival returns the time until the next request is in the queue, and its name.
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
		server := &finalizationServer{}
		reconciler := server.reconciler(events.NewFakeRecorder(10))
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
		// The API server needs a moment to update discovery.
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

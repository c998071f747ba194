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

// finalizationServer is a fake API server with one Namespace and its ConfigMaps. It records writes as
// text. The specs in test/finalization cover the effect of writes to /finalize.
type finalizationServer struct {
	// cached is the Namespace in the cache. live is the Namespace in the API server; the default is
	// cached.
	cached, live *corev1.Namespace
	// configMaps contains the ConfigMaps in the namespace.
	configMaps []metav1.PartialObjectMetadata
	// leases contains the Leases of the API servers.
	leases []coordinationv1.Lease
	// webhooks contains the ValidatingWebhookConfigurations.
	webhooks []admissionv1.ValidatingWebhookConfiguration
	// These are the errors that requests return. Each finalize request returns the next finalizeError.
	getError, liveError, listError, discoveryError, leasesError, webhooksError, statusError error
	finalizeErrors                                                                          []error
	// onFinalize is called in each finalize request.
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
		Get: s.get, List: s.list, SubResourcePatch: s.patchStatus, SubResourceUpdate: s.finalize,
	})
	s.gracePeriods = &graceperiod.Source{
		Config: finalization.GracePeriod{Fixed: ptr.To(time.Duration(0))}, Leases: cached, Live: live,
		Clock: passive, ServerClock: passive,
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
	if s.statusError == nil { // Like the API server, return the updated object.
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
		"the namespace does not exist": {server: finalizationServer{getError: errNotFound}},
		"the namespace cannot be read": {
			server: finalizationServer{getError: errOutage}, wantError: errOutage.Error(),
		},
		"the namespace is not terminating": {
			server: finalizationServer{cached: wrappers.MakeNamespace("x").UID("x-uid").Obj(), configMaps: fresh},
		},
		"the namespace is not terminating and has no namespace finalizer": {
			server: finalizationServer{cached: terminating(withFinalizers(), func(n *corev1.Namespace) { n.DeletionTimestamp = nil })},
		},
		"the namespace is empty": {server: finalizationServer{cached: terminating()}, wantWrites: []string{finalized}},
		"the namespace is empty, before the grace period ends": {
			server: finalizationServer{cached: terminating()}, gracePeriod: 5 * time.Second,
			want: ctrl.Result{RequeueAfter: 5 * time.Second},
		},
		"the namespace is empty and has conditions, before the grace period ends": {
			server: finalizationServer{cached: terminating(func(n *corev1.Namespace) {
				n.Status.Conditions = []corev1.NamespaceCondition{{
					Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue,
				}}
			})},
			gracePeriod: 5 * time.Second, wantWrites: []string{emptied}, want: ctrl.Result{RequeueAfter: 5 * time.Second},
			wantEvents: []string{"Normal ContentRemoved All content successfully removed"},
		},
		"the phase is written first": {
			server: finalizationServer{cached: terminating(active)}, wantWrites: []string{phase, "finalize x by nslifecycle: uid=x-uid resourceVersion=8 finalizers=[]"},
		},
		"the phase cannot be written": {
			server: finalizationServer{cached: terminating(active), statusError: errOutage}, wantWrites: []string{phase},
			wantError: `failed to update the status of namespace "x": ` + errOutage.Error(),
		},
		"a conflict while the phase is written": {
			server: finalizationServer{cached: terminating(active), statusError: errConflict}, wantWrites: []string{phase}, want: retry,
		},
		"the namespace is recreated before the phase is written": {
			server: finalizationServer{cached: terminating(active), statusError: errRecreated}, wantWrites: []string{phase}, want: retry,
		},
		"the namespace is deleted before the phase is written": {
			server: finalizationServer{cached: terminating(active), statusError: errNotFound}, wantWrites: []string{phase}, want: retry,
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
		"a type cannot be listed, and conditions cannot be written": {
			server:     finalizationServer{cached: terminating(), listError: errOutage, statusError: errForbidden},
			wantWrites: []string{failed},
			wantError: `failed to delete the content of namespace "x": failed to list configmaps: ` + errOutage.Error() + "\n" +
				`failed to update the status of namespace "x": ` + errForbidden.Error(),
		},
		"the namespace is deleted while conditions are written": {
			server:     finalizationServer{cached: terminating(), configMaps: stuck, statusError: errNotFound},
			wantWrites: []string{remaining}, want: ctrl.Result{RequeueAfter: 2 * time.Second},
		},
		"the namespace is recreated while conditions are written": {
			server:     finalizationServer{cached: terminating(), configMaps: stuck, statusError: errRecreated},
			wantWrites: []string{remaining}, want: ctrl.Result{RequeueAfter: 2 * time.Second},
		},
		"the namespace was recreated, and the cache is stale": {
			server: finalizationServer{
				cached: terminating(), live: wrappers.MakeNamespace("x").UID("another-uid").Obj(), configMaps: fresh,
			},
		},
		"the namespace was deleted, and the cache is stale": {
			server: finalizationServer{cached: terminating(), liveError: errNotFound, configMaps: fresh},
		},
		"the namespace cannot be read before its content is deleted": {
			server:    finalizationServer{cached: terminating(), liveError: errOutage, configMaps: fresh},
			wantError: `failed to get namespace "x" before deleting its content: ` + errOutage.Error(),
		},

		// Namespace finalizers.
		"only the operator's finalizer is removed; the others keep their order": {
			server: finalizationServer{cached: terminating(withFinalizers("z.example.com/z", "kubernetes", otherFinalizer))},
			wantWrites: []string{emptied,
				"finalize x by nslifecycle: uid=x-uid resourceVersion=7 finalizers=[z.example.com/z a.example.com/other]"},
		},
		"finalizers in metadata.finalizers": {
			server: finalizationServer{cached: terminating(held)}, wantWrites: []string{emptied, finalized},
		},
		"finalizers in metadata.finalizers, and conditions cannot be written": {
			server:     finalizationServer{cached: terminating(held), statusError: errOutage},
			wantWrites: []string{emptied}, wantError: `failed to update the status of namespace "x": ` + errOutage.Error(),
		},
		"finalizers in metadata.finalizers, and a conflict while conditions are written": {
			server:     finalizationServer{cached: terminating(held), statusError: errConflict},
			wantWrites: []string{emptied}, want: retry,
		},
		"finalizers in metadata.finalizers, recreated before conditions are written": {
			server:     finalizationServer{cached: terminating(held), statusError: errRecreated},
			wantWrites: []string{emptied}, want: retry,
		},
		"only other namespace finalizers": {
			server: finalizationServer{cached: terminating(withFinalizers(otherFinalizer)), configMaps: fresh},
		},
		"only other namespace finalizers, and the phase is Active": {
			server: finalizationServer{cached: terminating(active, withFinalizers(otherFinalizer))}, wantWrites: []string{phase},
		},
		"the finalizer is removed from the cached Namespace": {
			server: finalizationServer{cached: terminating(), liveError: errOutage}, wantWrites: []string{finalized},
		},
		"finalizers in metadata.finalizers; the namespace is read from the API server first": {
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
		"a webhook denies the removal with the code 409": {
			server:     finalizationServer{cached: terminating(), finalizeErrors: []error{errInUse}},
			wantWrites: []string{finalized},
			wantError:  `failed to remove namespace finalizer "kubernetes" from namespace "x": ` + errInUse.Error(),
		},
		"a conflict, and the finalizer was removed": {
			server: finalizationServer{
				cached: terminating(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) { s.live = terminating(withFinalizers(otherFinalizer), version("9")) },
			},
			wantWrites: []string{finalized},
		},
		"a conflict, and the namespace was recreated": {
			server: finalizationServer{
				cached: terminating(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) {
					s.live = terminating(func(n *corev1.Namespace) { n.UID = "another-uid" })
				},
			},
			wantWrites: []string{finalized},
		},
		"a conflict, and the namespace is not terminating": {
			server: finalizationServer{
				cached: terminating(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) {
					s.live = terminating(func(n *corev1.Namespace) { n.DeletionTimestamp = nil })
				},
			},
			wantWrites: []string{finalized},
		},
		"a conflict, and the namespace was deleted": {
			server: finalizationServer{
				cached: terminating(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) { s.liveError = errNotFound },
			},
			wantWrites: []string{finalized},
		},
		"a conflict, and the namespace cannot be read": {
			server: finalizationServer{
				cached: terminating(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) { s.liveError = errOutage },
			},
			wantWrites: []string{finalized}, wantError: errOutage.Error(),
		},
		"the namespace is deleted before the finalizer is removed": {
			server: finalizationServer{cached: terminating(), finalizeErrors: []error{errNotFound}}, wantWrites: []string{finalized},
		},
		"the finalizer cannot be removed": {
			server: finalizationServer{cached: terminating(), finalizeErrors: []error{errOutage}}, wantWrites: []string{finalized},
			wantError: `failed to remove namespace finalizer "kubernetes" from namespace "x": ` + errOutage.Error(),
		},

		// Without namespace finalizers.
		"no finalizers": {
			server: finalizationServer{cached: terminating(withFinalizers()), configMaps: fresh}, wantWrites: []string{restored + "7" + ours},
		},
		"only finalizers in metadata.finalizers": {
			server: finalizationServer{cached: terminating(held, withFinalizers())},
		},
		"no finalizers, and another controller has added one": {
			server: finalizationServer{cached: terminating(withFinalizers()), live: terminating(withFinalizers(otherFinalizer))},
		},
		"no finalizers, and the namespace was recreated": {
			server: finalizationServer{cached: terminating(withFinalizers()), live: terminating(withFinalizers(), func(n *corev1.Namespace) {
				n.UID = "another-uid"
			})},
		},
		"no finalizers, and the namespace was deleted": {
			server: finalizationServer{cached: terminating(withFinalizers()), liveError: errNotFound}, want: retry,
		},
		// The watch event of the conflicting write may not trigger the reconciler.
		"no finalizers, and the addition returns a conflict": {
			server:     finalizationServer{cached: terminating(withFinalizers()), finalizeErrors: []error{errConflict}},
			wantWrites: []string{restored + "7" + ours}, want: retry,
		},
		"no finalizers, and none can be added": {
			server:     finalizationServer{cached: terminating(withFinalizers()), finalizeErrors: []error{errOutage}},
			wantWrites: []string{restored + "7" + ours},
			wantError:  `failed to add namespace finalizer "kubernetes" to namespace "x": ` + errOutage.Error(),
		},

		// Namespaces whose content the operator never deletes.
		"default": {
			server:     finalizationServer{cached: terminating(named("default"), active), configMaps: fresh},
			wantWrites: []string{"status of default" + refused},
			wantEvents: []string{refusedEvent("default")},
		},
		"kube-system without finalizers": {
			server: finalizationServer{cached: terminating(named("kube-system"), withFinalizers())},
		},
		"kube-public, and the condition is already set": {
			server: finalizationServer{cached: terminating(named("kube-public"), func(n *corev1.Namespace) {
				n.Status.Conditions = finalization.ComputeRefusal(n, finalization.RefusalReason(n, ""), metav1.NewTime(now))
			})},
		},
		"kube-public, and the write returns a conflict": {
			server:     finalizationServer{cached: terminating(named("kube-public")), statusError: errConflict},
			wantWrites: []string{"status of kube-public" + refused}, want: retry,
		},
		"kube-public, and the namespace was recreated": {
			server:     finalizationServer{cached: terminating(named("kube-public")), statusError: errRecreated},
			wantWrites: []string{"status of kube-public" + refused}, want: retry,
		},
		"kube-system with other namespace finalizers": {
			server: finalizationServer{cached: terminating(named("kube-system"), withFinalizers(otherFinalizer)), configMaps: fresh},
		},
		"the operator's own namespace with other namespace finalizers": {
			server: finalizationServer{cached: terminating(named(systemNamespace), withFinalizers(otherFinalizer)), configMaps: fresh},
		},
		"the operator's own namespace, which another controller may finalize": {
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

// The operator reports the refusal only if no other controller finalizes the operator's own namespace.
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

// The grace period starts when the reconciler first sees that the Namespace is terminating.
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
		"a label and a condition changed": {after: terminating(func(n *corev1.Namespace) {
			n.Labels["app"] = "web"
			n.Status.Conditions = []corev1.NamespaceCondition{{Type: corev1.NamespaceContentRemaining}}
		})},
		"a resync without a change":     {after: before.DeepCopy(), want: true},
		"a namespace finalizer changed": {after: terminating(withFinalizers(otherFinalizer)), want: true},
		"metadata.finalizers changed":   {after: terminating(held), want: true},
		"the phase changed":             {after: terminating(active), want: true},
		"the namespace was recreated":   {after: terminating(func(n *corev1.Namespace) { n.UID = "another-uid" }), want: true},
		"the namespace was deleted": {
			before: terminating(func(n *corev1.Namespace) { n.DeletionTimestamp = nil }), after: terminating(), want: true,
		},
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

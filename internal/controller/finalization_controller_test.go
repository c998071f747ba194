// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/test/wrappers"
)

const (
	agentToken corev1.FinalizerName = "example.com/agent"
	otherToken corev1.FinalizerName = "a.example.com/other"
)

// finalizationServer answers for one Namespace and for the ConfigMaps in it, and records
// in words what is written. What the API server makes of a write to /finalize is the
// business of the tests in test/finalization.
type finalizationServer struct {
	// cached is the Namespace as the cache has it, live as storage does; the same if nil.
	cached, live *corev1.Namespace
	// configMaps are in the namespace.
	configMaps []metav1.PartialObjectMetadata
	// leases are those of the API servers.
	leases []coordinationv1.Lease
	// webhooks are the configurations of validating webhooks.
	webhooks []admissionv1.ValidatingWebhookConfiguration
	// The errors that requests are answered with. Those of finalize come one after the
	// other.
	getError, liveError, listError, discoveryError, leasesError, webhooksError, statusError, deleteError error
	finalizeErrors                                                                                       []error
	// onFinalize is called at each request to finalize.
	onFinalize func(*finalizationServer)

	writes       []string
	discovers    int
	webhookLists int
}

func (s *finalizationServer) reconciler(recorder events.EventRecorder) *FinalizationReconciler {
	passive := clocktesting.NewFakePassiveClock(now)
	content := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	content.PrependReactor("*", "*", s.content)
	content.PrependWatchReactor("*", clienttesting.DefaultWatchReactor(nil, errOutage))
	catalog := finalization.NewCatalog(s, passive)
	live := newFakeClient(interceptor.Funcs{Get: s.getLive, List: s.listWebhooks})
	reconciler := &FinalizationReconciler{
		Client: newFakeClient(interceptor.Funcs{
			Get: s.get, List: s.list, Delete: s.delete, SubResourcePatch: s.patchStatus, SubResourceUpdate: s.finalize,
		}),
		Live: live, Recorder: recorder, Clock: passive,
		Token:        corev1.FinalizerKubernetes,
		SettlingTime: finalization.SettlingTime{Fixed: ptr.To(time.Duration(0))},
		OwnNamespace: systemNamespace,
		Catalog:      catalog,
	}
	reconciler.Deleter = finalization.NewDeleter(catalog, content, LiveNamespaces{live}, reconciler.Token, passive, nil)
	reconciler.Watches = finalization.NewWatches(content, reconciler.deletions.wake, logr.Discard())
	return reconciler
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
		return fmt.Errorf("not those of API servers: %v", options)
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
	if s.statusError == nil { // The API server answers with the object as it is now.
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
	s.writes = append(s.writes, fmt.Sprintf("%s %s by %s: uid=%s resourceVersion=%s tokens=%s", subResource, object.GetName(),
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

// dying is a Namespace that is being deleted.
func dying(change ...func(*corev1.Namespace)) *corev1.Namespace {
	namespace := wrappers.MakeNamespace("x").UID("x-uid").ResourceVersion("7").Terminating(now).Obj()
	for _, change := range change {
		change(namespace)
	}
	return namespace
}

func tokens(tokens ...corev1.FinalizerName) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) { namespace.Spec.Finalizers = tokens }
}

func active(namespace *corev1.Namespace) { namespace.Status.Phase = corev1.NamespaceActive }

func held(namespace *corev1.Namespace) { namespace.Finalizers = []string{"example.com/hold"} }

func named(name string) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) { namespace.Name = name }
}

func version(resourceVersion string) func(*corev1.Namespace) {
	return func(namespace *corev1.Namespace) { namespace.ResourceVersion = resourceVersion }
}

func TestFinalizationReconcile(t *testing.T) {
	const (
		finalized  = "finalize x by nslifecycle: uid=x-uid resourceVersion=7 tokens=[]"
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
		server     finalizationServer
		settling   time.Duration
		want       ctrl.Result
		wantWrites []string
		wantEvents []string
		wantError  string
	}{
		"gone": {server: finalizationServer{getError: errGone}},
		"cannot be read": {
			server: finalizationServer{getError: errOutage}, wantError: errOutage.Error(),
		},
		"not being deleted": {
			server: finalizationServer{cached: wrappers.MakeNamespace("x").UID("x-uid").Obj(), configMaps: fresh},
		},
		"not being deleted, and without a token": {
			server: finalizationServer{cached: dying(tokens(), func(n *corev1.Namespace) { n.DeletionTimestamp = nil })},
		},
		"empty": {server: finalizationServer{cached: dying()}, wantWrites: []string{finalized}},
		"empty, and not settled: there is nothing to tell": {
			server: finalizationServer{cached: dying()}, settling: 5 * time.Second,
			want: ctrl.Result{RequeueAfter: 5 * time.Second},
		},
		"empty, and not settled, and something was told before": {
			server: finalizationServer{cached: dying(func(n *corev1.Namespace) {
				n.Status.Conditions = []corev1.NamespaceCondition{{
					Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue,
				}}
			})},
			settling: 5 * time.Second, wantWrites: []string{emptied}, want: ctrl.Result{RequeueAfter: 5 * time.Second},
			wantEvents: []string{"Normal ContentRemoved All content successfully removed"},
		},
		"its phase is told first": {
			server: finalizationServer{cached: dying(active)}, wantWrites: []string{phase, "finalize x by nslifecycle: uid=x-uid resourceVersion=8 tokens=[]"},
		},
		"its phase cannot be told": {
			server: finalizationServer{cached: dying(active), statusError: errOutage}, wantWrites: []string{phase},
			wantError: `failed to update the status of namespace "x": ` + errOutage.Error(),
		},
		"its phase cannot be told because somebody else writes": {
			server: finalizationServer{cached: dying(active), statusError: errConflict}, wantWrites: []string{phase}, want: retry,
		},
		"it was created again before its phase was told": {
			server: finalizationServer{cached: dying(active), statusError: errRecreated}, wantWrites: []string{phase}, want: retry,
		},
		"it went before its phase was told": {
			server: finalizationServer{cached: dying(active), statusError: errGone}, wantWrites: []string{phase},
		},

		// Content.
		"something has a finalizer": {
			server:     finalizationServer{cached: dying(), configMaps: stuck},
			wantWrites: []string{remaining}, want: ctrl.Result{RequeueAfter: 2 * time.Second},
			wantEvents: []string{
				"Normal SomeResourcesRemain Some resources are remaining: configmaps. has 1 resource instances",
				"Normal SomeFinalizersRemain Some content in the namespace has finalizers remaining: " +
					"example.com/hold in 1 resource instances",
			},
		},
		"something cannot be listed, and the conditions tell": {
			server:     finalizationServer{cached: dying(), listError: errOutage},
			wantWrites: []string{failed},
			wantEvents: []string{"Warning ContentDeletionFailed Failed to delete all resource types, 1 remaining: " +
				"listing configmaps: " + errOutage.Error()},
			wantError: `emptying namespace "x": listing configmaps: ` + errOutage.Error(),
		},
		"requests are put off: it comes back when it was told to": {
			server:     finalizationServer{cached: dying(), listError: apierrors.NewTooManyRequests("too many", 7)},
			wantWrites: []string{failed}, want: ctrl.Result{RequeueAfter: 7 * time.Second},
			wantEvents: []string{"Warning ContentDeletionFailed Failed to delete all resource types, 1 remaining: " +
				"listing configmaps: too many"},
		},
		"the release is put off": {
			server: finalizationServer{
				cached: dying(), finalizeErrors: []error{apierrors.NewTooManyRequests("too many", 7)},
			},
			wantWrites: []string{finalized}, want: ctrl.Result{RequeueAfter: 7 * time.Second},
		},
		"discovery fails, and the conditions tell": {
			server: finalizationServer{cached: dying(), discoveryError: errOutage},
			wantWrites: []string{"status of x: uid=x-uid DiscoveryFailed=True ParsedGroupVersions=False " +
				"ContentUnknown=Unknown ContentUnknown=Unknown ContentUnknown=Unknown"},
			wantEvents: []string{"Warning DiscoveryFailed " + errOutage.Error()},
			wantError:  `emptying namespace "x": ` + errOutage.Error(),
		},
		"neither can the conditions be written": {
			server:     finalizationServer{cached: dying(), listError: errOutage, statusError: errForbidden},
			wantWrites: []string{failed},
			wantError: `emptying namespace "x": listing configmaps: ` + errOutage.Error() + "\n" +
				`failed to update the status of namespace "x": ` + errForbidden.Error(),
		},
		"it went while its conditions were written": {
			server:     finalizationServer{cached: dying(), configMaps: stuck, statusError: errGone},
			wantWrites: []string{remaining}, want: ctrl.Result{RequeueAfter: 2 * time.Second},
		},
		"it was created again while its conditions were written": {
			server:     finalizationServer{cached: dying(), configMaps: stuck, statusError: errRecreated},
			wantWrites: []string{remaining}, want: ctrl.Result{RequeueAfter: 2 * time.Second},
		},
		"it was created again, and the cache does not know": {
			server: finalizationServer{
				cached: dying(), live: wrappers.MakeNamespace("x").UID("another-uid").Obj(), configMaps: fresh,
			},
		},
		"it went, and the cache does not know": {
			server: finalizationServer{cached: dying(), liveError: errGone, configMaps: fresh},
		},
		"it cannot be confirmed": {
			server:    finalizationServer{cached: dying(), liveError: errOutage, configMaps: fresh},
			wantError: `reading namespace "x" before anything in it is deleted: ` + errOutage.Error(),
		},

		// Tokens.
		"only the own token is released, and the others keep their order": {
			server: finalizationServer{cached: dying(tokens("z.example.com/z", "kubernetes", otherToken))},
			wantWrites: []string{emptied,
				"finalize x by nslifecycle: uid=x-uid resourceVersion=7 tokens=[z.example.com/z a.example.com/other]"},
		},
		"its own finalizers hold it, and the conditions tell": {
			server: finalizationServer{cached: dying(held)}, wantWrites: []string{emptied, finalized},
		},
		"its conditions cannot be told while others hold it": {
			server:     finalizationServer{cached: dying(held), statusError: errOutage},
			wantWrites: []string{emptied}, wantError: `failed to update the status of namespace "x": ` + errOutage.Error(),
		},
		"somebody else writes its conditions while others hold it": {
			server:     finalizationServer{cached: dying(held), statusError: errConflict},
			wantWrites: []string{emptied}, want: retry,
		},
		"it was created again before its conditions were told while others hold it": {
			server:     finalizationServer{cached: dying(held), statusError: errRecreated},
			wantWrites: []string{emptied}, want: retry,
		},
		"the own token is not there": {
			server: finalizationServer{cached: dying(tokens(otherToken)), configMaps: fresh},
		},
		"the own token is not there, and the phase is told all the same": {
			server: finalizationServer{cached: dying(active, tokens(otherToken))}, wantWrites: []string{phase},
		},
		"the token is released from what the cache has, and nothing is read": {
			server: finalizationServer{cached: dying(), liveError: errOutage}, wantWrites: []string{finalized},
		},
		"what others hold is read from storage first": {
			server:     finalizationServer{cached: dying(held), liveError: errOutage},
			wantWrites: []string{emptied}, wantError: errOutage.Error(),
		},
		"a conflict: the token is released from what is there now": {
			server: finalizationServer{
				cached: dying(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) {
					s.live = dying(tokens(otherToken, "kubernetes", agentToken), version("9"))
				},
			},
			wantWrites: []string{
				finalized,
				"finalize x by nslifecycle: uid=x-uid resourceVersion=9 tokens=[a.example.com/other example.com/agent]",
			},
		},
		"a conflict, and the token is gone": {
			server: finalizationServer{
				cached: dying(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) { s.live = dying(tokens(otherToken), version("9")) },
			},
			wantWrites: []string{finalized},
		},
		"a conflict, and it was created again": {
			server: finalizationServer{
				cached: dying(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) {
					s.live = dying(func(n *corev1.Namespace) { n.UID = "another-uid" })
				},
			},
			wantWrites: []string{finalized},
		},
		"a conflict, and it is not being deleted": {
			server: finalizationServer{
				cached: dying(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) {
					s.live = dying(func(n *corev1.Namespace) { n.DeletionTimestamp = nil })
				},
			},
			wantWrites: []string{finalized},
		},
		"a conflict, and it is gone": {
			server: finalizationServer{
				cached: dying(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) { s.liveError = errGone },
			},
			wantWrites: []string{finalized},
		},
		"a conflict, and it cannot be read": {
			server: finalizationServer{
				cached: dying(), finalizeErrors: []error{errConflict},
				onFinalize: func(s *finalizationServer) { s.liveError = errOutage },
			},
			wantWrites: []string{finalized}, wantError: errOutage.Error(),
		},
		"somebody else has removed it": {
			server: finalizationServer{cached: dying(), finalizeErrors: []error{errGone}}, wantWrites: []string{finalized},
		},
		"the token cannot be released": {
			server: finalizationServer{cached: dying(), finalizeErrors: []error{errOutage}}, wantWrites: []string{finalized},
			wantError: `releasing token "kubernetes" of namespace "x": ` + errOutage.Error(),
		},

		// No token at all.
		"nobody holds it": {
			server: finalizationServer{cached: dying(tokens()), configMaps: fresh}, wantWrites: []string{final + "7"},
		},
		"nobody holds it, and its phase is told first": {
			server: finalizationServer{cached: dying(active, tokens())}, wantWrites: []string{phase, final + "8"},
		},
		"no token is left, but its own finalizers are": {
			server: finalizationServer{cached: dying(held, tokens())},
		},
		"nobody holds it, and it is gone": {
			server: finalizationServer{cached: dying(tokens()), deleteError: errGone}, wantWrites: []string{final + "7"},
		},
		// What has changed may be nothing that wakes the reconciler.
		"nobody holds it, and it has changed since it was read": {
			server: finalizationServer{cached: dying(tokens()), deleteError: errConflict}, wantWrites: []string{final + "7"},
			want: retry,
		},
		"nobody holds it, and it cannot be deleted": {
			server: finalizationServer{cached: dying(tokens()), deleteError: errOutage}, wantWrites: []string{final + "7"},
			wantError: `deleting namespace "x" for good: ` + errOutage.Error(),
		},

		// Refused.
		"default": {
			server:     finalizationServer{cached: dying(named("default"), active), configMaps: fresh},
			wantWrites: []string{"status of default" + refused},
			wantEvents: []string{`Warning ContentDeletionFailed Nothing is deleted: namespace "default" is one that no cluster can do without`},
		},
		"kube-system, though nobody holds it": {
			server:     finalizationServer{cached: dying(named("kube-system"), tokens())},
			wantWrites: []string{"status of kube-system" + refused},
			wantEvents: []string{`Warning ContentDeletionFailed Nothing is deleted: namespace "kube-system" is one that no cluster can do without`},
		},
		"kube-public, told already": {
			server: finalizationServer{cached: dying(named("kube-public"), func(n *corev1.Namespace) {
				n.Status.Conditions = finalization.ComputeRefusal(n, `namespace "kube-public" is one that no cluster can do without`, metav1.NewTime(now))
			})},
		},
		"kube-public, and somebody else writes": {
			server:     finalizationServer{cached: dying(named("kube-public")), statusError: errConflict},
			wantWrites: []string{"status of kube-public" + refused}, want: retry,
		},
		"kube-public, and it was created again": {
			server:     finalizationServer{cached: dying(named("kube-public")), statusError: errRecreated},
			wantWrites: []string{"status of kube-public" + refused}, want: retry,
		},
		"kube-system, held by others alone": {
			server: finalizationServer{cached: dying(named("kube-system"), tokens(otherToken)), configMaps: fresh},
		},
		"the own namespace, held by others alone": {
			server: finalizationServer{cached: dying(named(systemNamespace), tokens(otherToken)), configMaps: fresh},
		},
		"the own namespace, which somebody else may end": {
			server: finalizationServer{cached: dying(named(systemNamespace)), configMaps: fresh},
			want:   ctrl.Result{RequeueAfter: 30 * time.Second},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			recorder := events.NewFakeRecorder(10)
			reconciler := test.server.reconciler(recorder)
			reconciler.SettlingTime.Fixed = &test.settling
			reconciler.deletions.start(t.Context(), nil)
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

// The own namespace is refused aloud only when nobody else has ended it.
func TestFinalizationReconcileRefusesTheOwnNamespace(t *testing.T) {
	g := NewWithT(t)
	server := &finalizationServer{cached: dying(named(systemNamespace))}
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
	g.Expect(recorded(recorder)).To(ConsistOf(HavePrefix(
		`Warning ContentDeletionFailed Nothing is deleted: nslifecycle runs in namespace "nslifecycle-system" itself`)))
}

// The settling time counts from when the deletion was first seen, for one UID.
func TestFinalizationReconcileSettles(t *testing.T) {
	g := NewWithT(t)
	server := &finalizationServer{cached: dying()}
	reconciler := server.reconciler(events.NewFakeRecorder(10))
	reconciler.SettlingTime.Fixed = ptr.To(5 * time.Second)
	reconciler.deletions.start(t.Context(), nil)
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

	// Another one of the same name begins anew.
	server.cached.UID = "another-uid"
	g.Expect(reconcile(4 * time.Second)).To(Equal(5 * time.Second))
	g.Expect(server.writes).NotTo(ContainElement(HavePrefix("finalize")))
	g.Expect(reconcile(9 * time.Second)).To(BeZero())
	g.Expect(server.writes).To(ContainElement(HavePrefix("finalize x by nslifecycle: uid=another-uid")))
	// What was discovered before the namespace had settled is not relied on.
	g.Expect(server.discovers).To(Equal(2))
}

// What was told once is told again when it has changed, though the cache may be behind.
func TestFinalizationReconcileTellsTheEndOfWhatItTold(t *testing.T) {
	g := NewWithT(t)
	server := &finalizationServer{cached: dying(), listError: errOutage}
	reconciler := server.reconciler(events.NewFakeRecorder(10))
	reconciler.SettlingTime.Fixed = ptr.To(time.Minute)
	reconciler.deletions.start(t.Context(), nil)
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
	server := &finalizationServer{cached: dying()}
	server.onFinalize = func(s *finalizationServer) { s.finalizeErrors = []error{errConflict} }
	_, err := server.reconciler(events.NewFakeRecorder(10)).Reconcile(t.Context(), requestFor("x"))
	g.Expect(err).To(MatchError(`releasing token "kubernetes" of namespace "x": somebody else writes to it all the time`))
	g.Expect(server.writes).To(HaveLen(maxConflicts))
}

// What has become False or True since is told, and what was so from the start is not.
func TestFinalizationReconcileTellsChanges(t *testing.T) {
	g := NewWithT(t)
	server := &finalizationServer{cached: dying(held, func(n *corev1.Namespace) {
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
	before := dying(version("6"))
	tests := map[string]struct {
		before, after client.Object
		want          bool
	}{
		"nothing that matters": {after: dying(func(n *corev1.Namespace) {
			n.Labels["app"] = "web"
			n.Status.Conditions = []corev1.NamespaceCondition{{Type: corev1.NamespaceContentRemaining}}
		})},
		"nothing at all, a resync": {after: before.DeepCopy(), want: true},
		"a token":                  {after: dying(tokens(otherToken)), want: true},
		"its own finalizers":       {after: dying(held), want: true},
		"the phase":                {after: dying(active), want: true},
		"recreated":                {after: dying(func(n *corev1.Namespace) { n.UID = "another-uid" }), want: true},
		"the deletion": {
			before: dying(func(n *corev1.Namespace) { n.DeletionTimestamp = nil }), after: dying(), want: true,
		},
		"recreated, and not deleted": {after: wrappers.MakeNamespace("x").UID("another-uid").Obj()},
		"never deleted": {
			before: wrappers.MakeNamespace("x").Obj(), after: wrappers.MakeNamespace("x").Obj(),
		},
		"another kind": {after: &corev1.Pod{}, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.before == nil {
				test.before = before
			}
			passes := deletionChanged().Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after})
			NewWithT(t).Expect(passes).To(Equal(test.want))
		})
	}
	g := NewWithT(t)
	g.Expect(deletionChanged().Create(event.CreateEvent{Object: before})).To(BeTrue())
	g.Expect(deletionChanged().Create(event.CreateEvent{Object: wrappers.MakeNamespace("x").Obj()})).To(BeFalse())
	// It has gone: what is known of it has to be forgotten.
	g.Expect(deletionChanged().Delete(event.DeleteEvent{Object: before})).To(BeTrue())
}

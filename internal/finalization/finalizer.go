// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package finalization

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/nslifecycle/nslifecycle/internal/finalization/sharedlist"
	"github.com/nslifecycle/nslifecycle/internal/metadataclient"
	"github.com/nslifecycle/nslifecycle/internal/resourcetypes"
)

// DiscoveryDelay is how long the API server can take to update discovery after a
// CustomResourceDefinition or APIService changes.
const DiscoveryDelay = 500 * time.Millisecond

// GracePeriodSource returns the current grace period of a Namespace whose deletion was first seen at
// the given time.
type GracePeriodSource interface {
	GracePeriod(ctx context.Context, firstSeen time.Time) time.Duration
}

// The operator must list and delete all objects in a terminating namespace. Package contentrole adds their types to the
// ClusterRole content. It omits the verb get, which would allow reading the logs of every pod. List requests return
// only metadata.
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=nslifecycle-content,verbs=get;update;escalate
// The API server of Calico authorizes requests for policies again. It then requires the verb get for their tiers, and
// the verb of the request for resources that it does not serve.
// +kubebuilder:rbac:groups=projectcalico.org,resources=tiers,verbs=get
// +kubebuilder:rbac:groups=projectcalico.org,resources=tier.networkpolicies;tier.stagednetworkpolicies,verbs=list;watch;delete;deletecollection
// These show which types exist, and which of them an aggregated API server serves.
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch
// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces/finalize,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Config configures a Finalizer. All fields are required.
type Config struct {
	// NamespaceFinalizer is the entry of spec.finalizers that the operator owns.
	NamespaceFinalizer corev1.FinalizerName
	Clock              clock.PassiveClock
	Discoverer         resourcetypes.Discoverer
	Content            metadata.Interface
	Namespaces         NamespaceGetter
	GracePeriods       GracePeriodSource
	// IsAggregated reports whether an aggregated API server serves a group version, according to a cache. It returns
	// true if the server is unknown.
	IsAggregated func(schema.GroupVersion) bool
	// ConfirmAggregated is like IsAggregated, but asks the API server. It is called before a deletecollection request.
	ConfirmAggregated func(context.Context, schema.GroupVersion) (bool, error)
	// PermissionRemedy returns what an administrator can do if the operator may not list or delete a type.
	PermissionRemedy func(schema.GroupResource) string
	Metrics          MetricsRecorder
	Durations        DurationRecorder
	Log              logr.Logger
}

// Finalizer deletes the content of terminating Namespaces. It keeps the state of each Namespace between
// calls. Calls for different Namespaces can be concurrent; calls for the same Namespace must not be.
type Finalizer struct {
	clock        clock.PassiveClock
	finalizer    corev1.FinalizerName
	gracePeriods GracePeriodSource
	deleter      *contentDeleter
	watcher      *changeWatcher
	tracker      *terminatingTracker
}

// New returns a Finalizer.
func New(config Config) *Finalizer {
	config.Content = metadataclient.New(config.Content)
	lists := newSeats()
	tracker := &terminatingTracker{durations: config.Durations}
	return &Finalizer{
		clock: config.Clock, finalizer: config.NamespaceFinalizer, gracePeriods: config.GracePeriods,
		deleter: &contentDeleter{
			Config: config, listSeats: lists, deleteSeats: newSeats(),
			cache: newDiscoveryCache(config.Discoverer, config.IsAggregated, config.Clock),
			lister: sharedlist.New(sharedlist.Options{
				Client: config.Content, Clock: config.Clock, Limiter: lists.limiter, IsAggregated: config.IsAggregated,
				CountRequest: func() { config.Metrics.Requested(PurposeSharedList) },
			}),
		},
		watcher: newChangeWatcher(config.Content, tracker.requeueChanged, config.Log.WithName("watches")),
		tracker: tracker,
	}
}

// Start sets the context of watches, and the function that requeues a Namespace when its objects
// change. Before Start is called, no Namespace is requeued.
func (f *Finalizer) Start(ctx context.Context, requeue func(namespace string, after time.Duration)) {
	f.tracker.start(ctx, requeue)
}

// Sync makes one pass over the content of a terminating Namespace: it deletes the objects that can
// be deleted now, and watches and reports the remaining ones. The namespace finalizer may be removed
// only if the Report is ConfirmedEmpty. Sync returns ErrReplaced, the context's error, or an error
// from reading the Namespace. All other errors are in the Report.
func (f *Finalizer) Sync(ctx context.Context, namespace *corev1.Namespace) (*Report, error) {
	if namespace.DeletionTimestamp == nil || !HasFinalizer(namespace, f.finalizer) {
		return nil, fmt.Errorf("namespace %q is not terminating or does not have the namespace finalizer %q",
			namespace.Name, f.finalizer)
	}
	firstSeen := f.FirstSeen(namespace)
	gracePeriodEnd := firstSeen.Add(f.gracePeriods.GracePeriod(ctx, firstSeen))
	f.watcher.startPass(namespace.Name)
	content, isFirst := f.tracker.startPass(namespace.Name)
	if isFirst {
		logr.FromContextOrDiscard(ctx).Info(logStarted, "uid", namespace.UID,
			"deletionTimestamp", namespace.DeletionTimestamp, "namespaceFinalizers", namespace.Spec.Finalizers)
	}
	report, err := f.deleter.deleteContent(ctx, namespace, firstSeen, gracePeriodEnd, content)
	if errors.Is(err, ErrReplaced) {
		// The informer cache is stale. A watch event for the change will follow.
		f.Forget(ctx, namespace.Name)
	}
	if err != nil {
		return nil, err
	}
	report.HasNews = f.tracker.endPass(namespace.Name, report, f.clock.Since(report.StartedAt))
	if !report.ConfirmedEmpty {
		f.watcher.endPass(f.tracker.context(), namespace.Name, report.Remaining)
	}
	return report, nil
}

// FirstSeen returns when the deletion of a terminating Namespace was first seen, which is the current
// time in the first call. The grace period starts at this time.
func (f *Finalizer) FirstSeen(namespace *corev1.Namespace) time.Time {
	return f.tracker.track(namespace, f.clock.Now())
}

// RecordReleased records that the namespace finalizer was removed. It returns the number of seconds
// since the deletion.
func (f *Finalizer) RecordReleased(name string) float64 {
	_, seconds, _ := f.tracker.finish(name, OutcomeReleased, f.clock.Now())
	return seconds
}

// Forget deletes the state of a Namespace that needs no more passes. If the finalization was still in
// progress, Forget records that another controller has finished it.
func (f *Finalizer) Forget(ctx context.Context, name string) {
	if uid, seconds, ok := f.tracker.finish(name, OutcomeSuperseded, f.clock.Now()); ok {
		logr.FromContextOrDiscard(ctx).Info(logSuperseded, "namespaceFinalizer", f.finalizer,
			"uid", uid, "seconds", seconds)
	}
	f.tracker.forget(name)
	f.watcher.forget(name)
}

// InvalidateDiscovery must be called when a type may have been added or removed. It returns the names
// of the Namespaces whose last pass had errors. The caller should retry them after DiscoveryDelay.
func (f *Finalizer) InvalidateDiscovery() []string {
	f.deleter.cache.invalidate()
	// Until then, discovery may not include the change.
	time.AfterFunc(DiscoveryDelay, f.deleter.cache.invalidate)
	return f.tracker.failing()
}

// HasFinalizer reports whether a Namespace has the given namespace finalizer in spec.finalizers.
func HasFinalizer(namespace *corev1.Namespace, finalizer corev1.FinalizerName) bool {
	return slices.Contains(namespace.Spec.Finalizers, finalizer)
}

// OtherFinalizers returns the namespace finalizers other than the given one, in the original order.
func OtherFinalizers(namespace *corev1.Namespace, finalizer corev1.FinalizerName) []corev1.FinalizerName {
	return slices.DeleteFunc(slices.Clone(namespace.Spec.Finalizers), func(other corev1.FinalizerName) bool {
		return other == finalizer
	})
}

// ParseFinalizer returns a namespace finalizer, or an error if the API server would reject it. A valid
// namespace finalizer is "kubernetes" or a qualified name with a domain prefix.
func ParseFinalizer(text string) (corev1.FinalizerName, error) {
	finalizer := corev1.FinalizerName(text)
	if finalizer == corev1.FinalizerKubernetes {
		return finalizer, nil
	}
	problems := validation.IsQualifiedName(text)
	if len(problems) == 0 && !strings.Contains(text, "/") {
		problems = []string{finalizerNeedsDomain}
	}
	if len(problems) > 0 {
		return "", fmt.Errorf(invalidFinalizer, text, corev1.FinalizerKubernetes, strings.Join(problems, "; "))
	}
	return finalizer, nil
}

// RefusalReason returns the reason why the operator must not delete the content of a terminating
// Namespace, or "" if there is none. ownNamespace is the namespace that the operator runs in, or "".
func RefusalReason(namespace *corev1.Namespace, ownNamespace string) string {
	switch namespace.Name {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
		return fmt.Sprintf(refusalSystemNamespace, namespace.Name)
	case ownNamespace:
		return fmt.Sprintf(refusalOwnNamespace, namespace.Name)
	default:
		return ""
	}
}

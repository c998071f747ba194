// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nslifecycle/nslifecycle/internal/finalization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
)

const (
	// discoveryDelay is how long the API server may take to put a type that has come or
	// gone into discovery.
	discoveryDelay = 500 * time.Millisecond
	// ownNamespaceDelay is how long somebody else has to end the namespace that the manager
	// runs in before the manager says that it cannot.
	ownNamespaceDelay = 30 * time.Second
	// maxConflicts is how often the token is tried to be released when others write to the
	// Namespace all the time, before the queue takes over. That is seconds: the release has
	// to hit a moment between two of their writes, and the queue's delays make that rarer.
	maxConflicts = 500

	actionFinalize = "Finalize"
)

// FinalizationReconciler empties every Namespace that is being deleted, tells in its
// conditions how far that is, and releases its own token in spec.finalizers.
type FinalizationReconciler struct {
	client.Client
	// Live reads from the API server instead of a cache.
	Live     client.Reader
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Token is the finalizer token that the reconciler answers for.
	Token corev1.FinalizerName
	// SettlingTime is how long after a deletion a namespace may be called empty.
	SettlingTime finalization.SettlingTime
	// OwnNamespace is the namespace that the manager runs in; empty if it runs in none.
	OwnNamespace string
	// Workers is the number of Namespaces worked on at a time; 1 if unset. The more there
	// are, the more of them share an answer of the API server; how many requests are made at
	// a time is bounded elsewhere.
	Workers int

	Catalog *finalization.Catalog
	Deleter *finalization.Deleter
	Watches *finalization.Watches

	deletions deletions
	settling  settlingLog
	webhooks  delayingWebhooks
}

// All objects in a terminating namespace have to be found and deleted, also those of types that
// will be defined later. CustomResourceDefinitions, APIServices, the Leases of the API servers and
// the configurations of admission webhooks are read with the same right.
// Not get: it includes the logs of every pod and, through the proxy subresources, what every
// kubelet serves. Lists are read as metadata.
// +kubebuilder:rbac:groups=*,resources=*,verbs=list;watch;delete;deletecollection
// +kubebuilder:rbac:groups="",resources=namespaces/finalize,verbs=update

// SetupWithManager registers the reconciler.
func (r *FinalizationReconciler) SetupWithManager(mgr ctrl.Manager) error {
	typesChanged := handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, queue requestQueue) { r.typesChanged(queue) },
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, queue requestQueue) { r.typesChanged(queue) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, queue requestQueue) { r.typesChanged(queue) },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(finalizationControllerName).
		For(&corev1.Namespace{}, builder.WithPredicates(deletionChanged())).
		Watches(CustomResourceDefinitions(), typesChanged, builder.OnlyMetadata).
		Watches(APIServices(), typesChanged, builder.OnlyMetadata).
		WatchesRawSource(source.Func(func(ctx context.Context, queue requestQueue) error {
			r.deletions.start(ctx, queue)
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers, RateLimiter: newRateLimiter(firstRetryDelay)}).
		Complete(r)
}

// Reconcile takes one Namespace a step further towards its end. Where the API server says
// when to come back, it is then and not when the queue would have it.
func (r *FinalizationReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := r.reconcile(ctx, req)
	if delay := finalization.RetryAfter(err); delay > 0 {
		metrics.FinalizationThrottledTotal.Inc()
		log.FromContext(ctx).Info("The API server puts requests off", "retryAfter", delay.String(), "error", err.Error())
		return ctrl.Result{RequeueAfter: delay}, nil
	}
	return result, err
}

func (r *FinalizationReconciler) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var namespace corev1.Namespace
	err := r.Get(ctx, req.NamespacedName, &namespace)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if err != nil || namespace.DeletionTimestamp == nil {
		r.forget(ctx, req.Name)
		return ctrl.Result{}, nil
	}
	now := r.Clock.Now()
	seen := r.deletions.observe(&namespace, now)
	// Where others hold the Namespace, and not this one, there is nothing to refuse: its
	// conditions are theirs.
	isOurs := len(namespace.Spec.Finalizers) == 0 || finalization.HasToken(&namespace, r.Token)
	if why := finalization.WhyNotFinalize(&namespace, r.OwnNamespace); why != "" && isOurs {
		return r.refuse(ctx, &namespace, why, seen)
	}
	if namespace.Status.Phase != corev1.NamespaceTerminating {
		phase := map[string]any{"phase": corev1.NamespaceTerminating}
		if err := nswrite.PatchStatus(ctx, r.Client, &namespace, phase); err != nil {
			return retryConflict(err)
		}
	}
	switch {
	case len(namespace.Spec.Finalizers) == 0:
		r.forget(ctx, req.Name)
		return retryConflict(r.deleteFinally(ctx, &namespace))
	case !finalization.HasToken(&namespace, r.Token):
		r.forget(ctx, req.Name)
		return ctrl.Result{}, nil
	}
	return r.empty(ctx, &namespace, seen, seen.Add(r.settlingTime(ctx, seen)))
}

// empty makes one pass over a Namespace and does what follows from it.
func (r *FinalizationReconciler) empty(
	ctx context.Context, namespace *corev1.Namespace, seenAt, settledAt time.Time,
) (ctrl.Result, error) {
	r.Watches.Begin(namespace.Name)
	ledger, isFirst := r.deletions.begin(namespace.Name)
	if isFirst {
		log.FromContext(ctx).Info("Finalization has begun", "uid", namespace.UID,
			"deleted", namespace.DeletionTimestamp, "tokens", namespace.Spec.Finalizers)
	}
	report, err := r.Deleter.Pass(ctx, namespace, seenAt, settledAt, ledger)
	if errors.Is(err, finalization.ErrReplaced) {
		// The cache is behind. What has become of the Namespace is on its way as an event.
		r.forget(ctx, namespace.Name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	hasNews := r.deletions.report(namespace.Name, report, r.Clock.Since(report.Began))
	if report.IsProof {
		return retryConflict(r.release(ctx, namespace, report))
	}

	// Written in any case, and before the wait: errors are told there as well. Of a namespace
	// of which nothing has ever been told there is nothing to tell while it only settles.
	var statusErr error
	if hasNews || nscondition.Find(namespace, corev1.NamespaceContentRemaining) != nil {
		statusErr = nswrite.IgnoreStale(r.writeConditions(ctx, namespace, report))
	}
	r.Watches.Await(r.deletions.context(), namespace.Name, report.Remaining)
	if err := errors.Join(report.Err(), statusErr); err != nil {
		return ctrl.Result{}, fmt.Errorf("emptying namespace %q: %w", namespace.Name, err)
	}
	return ctrl.Result{RequeueAfter: report.NextLook(settledAt, r.Clock.Now())}, nil
}

// release takes the own token off a Namespace that is proven to be empty.
func (r *FinalizationReconciler) release(
	ctx context.Context, namespace *corev1.Namespace, report *finalization.Report,
) error {
	isHeldByOthers := len(finalization.WithoutToken(namespace, r.Token)) > 0 || len(namespace.Finalizers) > 0
	if isHeldByOthers { // it has to tell the truth until they are done
		if err := r.writeConditions(ctx, namespace, report); err != nil {
			return err
		}
	}
	for attempt := range maxConflicts {
		live := *namespace.DeepCopy()
		// What the cache has will do where nobody else writes to the Namespace any more. It has
		// no managedFields, which matters only to those who stay.
		if attempt > 0 || isHeldByOthers {
			if err := r.Live.Get(ctx, client.ObjectKeyFromObject(namespace), &live); err != nil {
				return client.IgnoreNotFound(err)
			}
		}
		if live.UID != namespace.UID || live.DeletionTimestamp == nil || !finalization.HasToken(&live, r.Token) {
			return nil
		}
		// A PUT to /finalize writes labels and annotations as well. With the resource version
		// it cannot bring old ones back.
		live.Spec.Finalizers = finalization.WithoutToken(&live, r.Token)
		err := r.SubResource("finalize").Update(ctx, &live, client.FieldOwner(nswrite.FieldOwner))
		switch {
		case apierrors.IsConflict(err):
			continue
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("releasing token %q of namespace %q: %w", r.Token, namespace.Name, err)
		}
		_, seconds, _ := r.deletions.end(namespace.Name, metrics.OutcomeReleased, r.Clock.Now())
		log.FromContext(ctx).Info("Released the finalizer token of an empty namespace", "token", r.Token,
			"uid", namespace.UID, "otherTokens", live.Spec.Finalizers, "deleted", namespace.DeletionTimestamp,
			"seconds", seconds)
		return nil
	}
	return fmt.Errorf("releasing token %q of namespace %q: somebody else writes to it all the time",
		r.Token, namespace.Name)
}

// deleteFinally removes a Namespace that nobody holds any more. The API server does that
// by itself when the last token goes, but not where there was none when the deletion
// began.
func (r *FinalizationReconciler) deleteFinally(ctx context.Context, namespace *corev1.Namespace) error {
	if len(namespace.Finalizers) > 0 {
		log.FromContext(ctx).V(1).Info("The namespace waits for others", "finalizers", namespace.Finalizers)
		return nil
	}
	err := r.Delete(ctx, namespace, client.Preconditions{
		UID: ptr.To(namespace.UID), ResourceVersion: ptr.To(namespace.ResourceVersion),
	})
	if err != nil {
		return fmt.Errorf("deleting namespace %q for good: %w", namespace.Name, err)
	}
	log.FromContext(ctx).Info("Deleted a namespace without finalizer tokens for good", "uid", namespace.UID)
	return nil
}

// refuse says why a Namespace is left alone.
func (r *FinalizationReconciler) refuse(
	ctx context.Context, namespace *corev1.Namespace, why string, seen time.Time,
) (ctrl.Result, error) {
	if left := ownNamespaceDelay - r.Clock.Since(seen); namespace.Name == r.OwnNamespace && left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	changed := finalization.ComputeRefusal(namespace, why, metav1.NewTime(r.Clock.Now()))
	return retryConflict(r.patchConditions(ctx, namespace, changed))
}

// retryConflict is the result after a write. After a conflict there is another attempt:
// the event with what has changed may be one that deletionChanged holds back, such as that
// of a label. Where the object has gone there is nothing left to do.
func retryConflict(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: firstRetryDelay}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

func (r *FinalizationReconciler) writeConditions(
	ctx context.Context, namespace *corev1.Namespace, report *finalization.Report,
) error {
	// What the last pass wrote may have reached the cache only while this one was at work.
	// By the older state it would be written, and told in an Event, once more.
	var current corev1.Namespace
	if err := r.Get(ctx, client.ObjectKeyFromObject(namespace), &current); err == nil && current.UID == namespace.UID {
		namespace = &current
	}
	return r.patchConditions(ctx, namespace,
		finalization.ComputeConditions(namespace, report, metav1.NewTime(r.Clock.Now())))
}

// patchConditions writes the changed conditions, if there are any, and then tells of
// those with another status than before.
func (r *FinalizationReconciler) patchConditions(
	ctx context.Context, namespace *corev1.Namespace, changed []corev1.NamespaceCondition,
) error {
	if len(changed) == 0 {
		return nil
	}
	before := namespace.DeepCopy()
	if err := nswrite.PatchConditions(ctx, r.Client, namespace, changed); err != nil {
		return err
	}
	for _, condition := range changed {
		old := nscondition.Find(before, condition.Type)
		isNews := condition.Status == corev1.ConditionTrue || old != nil
		if isNews && (old == nil || old.Status != condition.Status) {
			log.FromContext(ctx).Info("Finalization has moved on", "condition", condition.Type,
				"status", condition.Status, "message", condition.Message)
			nswrite.RecordEvent(r.Recorder, before, eventTypeOf(condition), condition.Reason, actionFinalize, condition.Message)
		}
	}
	return nil
}

// eventTypeOf returns Warning for what needs somebody's attention. That something
// remains is ordinary.
func eventTypeOf(condition corev1.NamespaceCondition) string {
	switch condition.Type {
	case corev1.NamespaceDeletionDiscoveryFailure, corev1.NamespaceDeletionGVParsingFailure,
		corev1.NamespaceDeletionContentFailure:
		if condition.Status == corev1.ConditionTrue {
			return corev1.EventTypeWarning
		}
	}
	return corev1.EventTypeNormal
}

// typesChanged is called when a type may have come or gone. Namespaces that could not be
// finalized because of their types try again without delay.
func (r *FinalizationReconciler) typesChanged(queue requestQueue) {
	r.Catalog.Invalidate()
	// Discovery may not know of it yet: whatever is discovered until then is not kept.
	time.AfterFunc(discoveryDelay, r.Catalog.Invalidate)
	for _, request := range r.deletions.failing() {
		queue.Forget(request)
		queue.AddAfter(request, discoveryDelay)
	}
}

// Wake requeues a Namespace after an object in it was deleted.
func (r *FinalizationReconciler) Wake(name string, isLast bool) { r.deletions.wake(name, isLast) }

// forget drops what is known of a Namespace that there is nothing more to do about. If this
// manager was still at work on it, somebody else has been faster.
func (r *FinalizationReconciler) forget(ctx context.Context, name string) {
	if uid, seconds, wasUnderWay := r.deletions.end(name, metrics.OutcomeOvertaken, r.Clock.Now()); wasUnderWay {
		log.FromContext(ctx).Info("Somebody else has ended the namespace, or taken its token", "token", r.Token,
			"uid", uid, "seconds", seconds)
	}
	r.deletions.forget(name)
	r.Watches.Forget(name)
}

// deletionChanged lets pass what the reconciler acts on. Conditions are not among it: a
// namespace controller beside this one writes them too, and neither must wake the other.
func deletionChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return e.Object.GetDeletionTimestamp() != nil },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, isNamespace := e.ObjectOld.(*corev1.Namespace)
			after, isStillNamespace := e.ObjectNew.(*corev1.Namespace)
			if !isNamespace || !isStillNamespace {
				return true
			}
			isSame := before.UID == after.UID && before.DeletionTimestamp.Equal(after.DeletionTimestamp) &&
				before.Status.Phase == after.Status.Phase &&
				slices.Equal(before.Spec.Finalizers, after.Spec.Finalizers) &&
				slices.Equal(before.Finalizers, after.Finalizers)
			return after.DeletionTimestamp != nil && (!isSame || before.ResourceVersion == after.ResourceVersion)
		},
	}
}

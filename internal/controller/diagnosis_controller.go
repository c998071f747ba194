// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/diagnosis"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

const (
	// Diagnoses have a lower priority than watch events: handling an event requires no diagnosis and can
	// set a condition to False. First diagnoses have a higher priority than repeated ones.
	firstDiagnosisPriority    = -1
	repeatedDiagnosisPriority = -2

	actionDiagnose = "Diagnose"
)

// Diagnoser diagnoses why a Namespace makes no progress. It returns a NotFound error for a Namespace
// that does not exist.
type Diagnoser interface {
	Diagnose(ctx context.Context, name string) (*diagnosis.Diagnosis, error)
}

// RequestBudget limits the rate of the requests that diagnoses send.
type RequestBudget interface {
	// Wait returns how long to wait before the next diagnosis.
	Wait(now time.Time) time.Duration
}

// DiagnosisReconciler finds Namespaces whose initialization or deletion makes no progress, and
// reports the cause in a condition, in Events and in metrics. Other controllers can initialize and
// finalize the Namespace. DiagnosisReconciler reads only the Namespace until it is stalled.
// The permissions of FinalizationReconciler suffice for a diagnosis, which sends list requests and
// dry runs of deletions.
type DiagnosisReconciler struct {
	client.Client
	Diagnoser Diagnoser
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
	// ProgressDeadline is how long a Namespace may make no progress before it is diagnosed.
	ProgressDeadline time.Duration
	// Workers is the number of Namespaces that are diagnosed concurrently. The default is 1.
	Workers int
	// Budget limits the rate of the requests of all diagnoses.
	Budget RequestBudget

	tracker stallTracker
}

// SetupWithManager registers the reconciler.
func (r *DiagnosisReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(diagnosisControllerName).
		For(&corev1.Namespace{}, builder.WithPredicates(canStallPredicate())).
		WatchesRawSource(source.Func(func(context.Context, requestQueue) error {
			r.tracker.reset()
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers, RateLimiter: newRateLimiter(firstRetryDelay)}).
		Complete(untilStopped(r))
}

// Reconcile tracks the progress of one Namespace, and diagnoses it if it is stalled.
func (r *DiagnosisReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var namespace corev1.Namespace
	if err := r.Get(ctx, req.NamespacedName, &namespace); err != nil {
		if apierrors.IsNotFound(err) {
			r.tracker.remove(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	now := r.Clock.Now()
	tracked := r.tracker.update(&namespace, now, r.ProgressDeadline)
	// The resourceVersion prevents a second write if the cache is stale.
	changed := diagnosis.ComputeProgressing(&namespace, tracked.blockedState(), metav1.NewTime(now))
	if err := r.patchConditions(ctx, &namespace, changed, namespace.ResourceVersion); err != nil {
		return retryStale(err)
	}
	if tracked.State() == diagnosis.StateInitialized {
		r.tracker.remove(req.Name)
		return ctrl.Result{}, nil
	}
	if wait := max(tracked.next.Sub(now), r.Budget.Wait(now)); wait > 0 {
		return tracked.requeueAfter(wait), nil
	}
	return r.diagnose(ctx, &namespace, tracked)
}

// diagnose diagnoses a stalled Namespace and reports the findings.
func (r *DiagnosisReconciler) diagnose(
	ctx context.Context, namespace *corev1.Namespace, tracked *trackedNamespace,
) (ctrl.Result, error) {
	begin := r.Clock.Now()
	found, err := r.Diagnoser.Diagnose(ctx, namespace.Name)
	now := r.Clock.Now()
	metrics.DiagnosisDuration.Observe(now.Sub(begin).Seconds())
	tracked.schedule(now, r.ProgressDeadline)
	next := tracked.requeueAfter(tracked.next.Sub(now))

	var current corev1.Namespace
	switch {
	case apierrors.IsNotFound(err):
		metrics.DiagnosesTotal.WithLabelValues(metrics.ResultOutdated).Inc()
		return next, nil
	case err != nil:
		metrics.DiagnosesTotal.WithLabelValues(metrics.ResultError).Inc()
		if ctx.Err() == nil {
			// If this function returned the error, the queue would retry too early, and each retry is as
			// expensive as the first attempt.
			log.FromContext(ctx).Error(err, "Failed to diagnose the namespace", "next", tracked.next)
		}
		return next, nil
	case r.Get(ctx, client.ObjectKeyFromObject(namespace), &current) != nil || !tracked.IsStalled(&current) ||
		found.UID != current.UID || found.State != tracked.State():
		// The Namespace changed during the diagnosis, and the watch event triggers a reconciliation.
		metrics.DiagnosesTotal.WithLabelValues(metrics.ResultOutdated).Inc()
		return next, nil
	}
	return next, nsobject.IgnoreStale(r.report(ctx, &current, tracked, found, now))
}

// report writes the condition for a diagnosis, and an Event for each new finding.
func (r *DiagnosisReconciler) report(
	ctx context.Context, namespace *corev1.Namespace, tracked *trackedNamespace, found *diagnosis.Diagnosis,
	now time.Time,
) error {
	if len(found.Findings) == 0 {
		metrics.DiagnosesTotal.WithLabelValues(metrics.ResultProgressing).Inc()
		tracked.setCause("")
		tracked.setReported(nil)
		return r.patchConditions(ctx, namespace, diagnosis.ComputeProgressing(namespace, "", metav1.NewTime(now)), "")
	}
	metrics.DiagnosesTotal.WithLabelValues(metrics.ResultBlocked).Inc()
	tracked.setCause(found.Findings[0].Cause)
	changed := diagnosis.ComputeBlocked(namespace, found, metav1.NewTime(now))
	if len(changed) == 0 && tracked.reported == nil { // A previous manager reported the findings.
		tracked.setReported(found.Findings)
	}
	before := namespace.DeepCopy()
	if err := r.patchConditions(ctx, namespace, changed, ""); err != nil {
		return err
	}
	for _, finding := range found.Findings {
		if tracked.reported[finding.Key()] {
			continue
		}
		log.FromContext(ctx).Info("Diagnosed blocked namespace", "state", found.State,
			"cause", finding.Cause, "rank", finding.Rank, "finding", finding.Note())
		nsobject.RecordEventAbout(r.Recorder, before, relatedObject(finding), corev1.EventTypeWarning,
			string(finding.Cause), actionDiagnose, finding.Note())
	}
	tracked.setReported(found.Findings)
	return nil
}

func (r *DiagnosisReconciler) patchConditions(
	ctx context.Context, namespace *corev1.Namespace, changed []corev1.NamespaceCondition, resourceVersion string,
) error {
	if len(changed) == 0 || nsobject.LacksFinalizers(namespace) {
		return nil
	}
	before := namespace.DeepCopy()
	written := initialization.WithTerminating(before, changed, metav1.NewTime(r.Clock.Now()))
	if err := nsobject.PatchConditions(ctx, r.Client, namespace, written, resourceVersion); err != nil {
		return err
	}
	for _, condition := range changed {
		old := nsobject.FindCondition(before, condition.Type)
		if condition.Status == corev1.ConditionFalse && old != nil && old.Status == corev1.ConditionTrue {
			log.FromContext(ctx).Info("The namespace is making progress again", "condition", condition.Type,
				"message", condition.Message)
		}
	}
	return nil
}

// relatedObject returns a reference to the first object of a finding, or nil if there is none. Without
// the related object, Events about two findings with the same cause would be aggregated.
func relatedObject(finding diagnosis.Finding) runtime.Object {
	if len(finding.Objects) == 0 {
		return nil
	}
	object := finding.Objects[0]
	return &corev1.ObjectReference{Namespace: object.Namespace, Name: printable.Escape(object.Name)}
}

// requeueAfter returns a result that requeues the Namespace with a lower priority than watch events.
func (n *trackedNamespace) requeueAfter(wait time.Duration) ctrl.Result {
	priority := firstDiagnosisPriority
	if n.isRepeated {
		priority = repeatedDiagnosisPriority
	}
	return ctrl.Result{RequeueAfter: wait, Priority: ptr.To(priority)}
}

// canStallPredicate returns a predicate that accepts Namespaces that are or were initializing or
// terminating, or that a condition reports as blocked.
func canStallPredicate() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return canStall(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return canStall(e.ObjectOld) || canStall(e.ObjectNew) },
	}
}

func canStall(object client.Object) bool {
	namespace, ok := object.(*corev1.Namespace)
	return !ok || namespace.DeletionTimestamp != nil ||
		namespace.Annotations[v1alpha1.AnnotationPendingInitializers] != "" ||
		diagnosis.IsBlocked(namespace, diagnosis.StateInitializing) ||
		diagnosis.IsBlocked(namespace, diagnosis.StateTerminating)
}

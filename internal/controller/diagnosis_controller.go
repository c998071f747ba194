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
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

const (
	// DefaultPatience is how long a Namespace may stand still before it is diagnosed.
	DefaultPatience = diagnosis.DefaultPatience

	// News goes first in the queue, since it costs nothing and puts right what is not true
	// any more; then what has not been diagnosed yet.
	firstDiagnosisPriority    = -1
	repeatedDiagnosisPriority = -2

	actionDiagnose = "Diagnose"
)

// Diagnoser tells why a Namespace does not get on. A Namespace that is not there is a
// NotFound error.
type Diagnoser interface {
	Diagnose(ctx context.Context, name string) (*diagnosis.Diagnosis, error)
}

// DiagnosisReconciler finds Namespaces whose initialization or deletion makes no progress, and
// reports the cause in a condition, in Events and in metrics. It reads only the Namespaces until
// one of them is stalled, whichever controllers initialize or finalize them. A diagnosis sends only
// list requests, for which the rights of finalization suffice.
type DiagnosisReconciler struct {
	client.Client
	Diagnoser Diagnoser
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
	// Patience is how long a Namespace may stand still before it is diagnosed.
	Patience time.Duration
	// Workers is the number of Namespaces diagnosed at a time; 1 if unset.
	Workers int
	// Budget bounds the requests of all diagnoses; nil is no bound.
	Budget *RequestBudget

	standstills standstills
}

// SetupWithManager registers the reconciler.
func (r *DiagnosisReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(diagnosisControllerName).
		For(&corev1.Namespace{}, builder.WithPredicates(mayStandStill())).
		WatchesRawSource(source.Func(func(context.Context, requestQueue) error {
			r.standstills.start()
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers, RateLimiter: newRateLimiter(firstRetryDelay)}).
		Complete(r)
}

// Reconcile takes notice of one Namespace, and diagnoses it if it stands still.
func (r *DiagnosisReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var namespace corev1.Namespace
	if err := r.Get(ctx, req.NamespacedName, &namespace); err != nil {
		if apierrors.IsNotFound(err) {
			r.standstills.forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	now := r.Clock.Now()
	known := r.standstills.observe(&namespace, now, r.Patience)
	blocked := known.Stage()
	if known.cause == "" {
		blocked = ""
	}
	// Not what a cache that is behind takes for news: it would be told twice.
	moving := diagnosis.ComputeMoving(&namespace, blocked, metav1.NewTime(now))
	if err := r.patchConditions(ctx, &namespace, moving, namespace.ResourceVersion); err != nil {
		return ctrl.Result{}, nswrite.IgnoreStale(err)
	}
	if known.Stage() == diagnosis.StageActive {
		r.standstills.forget(req.Name)
		return ctrl.Result{}, nil
	}
	if wait := max(known.next.Sub(now), r.Budget.wait(now)); wait > 0 {
		return known.waitFor(wait), nil
	}
	return r.diagnose(ctx, &namespace, known)
}

// diagnose finds out why a Namespace stands still, and tells.
func (r *DiagnosisReconciler) diagnose(
	ctx context.Context, namespace *corev1.Namespace, known *standstill,
) (ctrl.Result, error) {
	begin := r.Clock.Now()
	found, err := r.Diagnoser.Diagnose(ctx, namespace.Name)
	now := r.Clock.Now()
	metrics.DiagnosisDuration.Observe(now.Sub(begin).Seconds())
	known.schedule(now, r.Patience)
	again := known.waitFor(known.next.Sub(now))

	var current corev1.Namespace
	switch {
	case apierrors.IsNotFound(err):
		metrics.DiagnosesTotal.WithLabelValues(metrics.ResultOutdated).Inc()
		return again, nil
	case err != nil:
		metrics.DiagnosesTotal.WithLabelValues(metrics.ResultError).Inc()
		if ctx.Err() == nil {
			// Not by the queue, which would try again sooner: the next one costs as much as this.
			log.FromContext(ctx).Error(err, "Could not find out why the namespace does not get on", "next", known.next)
		}
		return again, nil
	case r.Get(ctx, client.ObjectKeyFromObject(namespace), &current) != nil || !known.Knows(&current) ||
		found.UID != current.UID || found.Stage != known.Stage():
		// The event with the news is on its way.
		metrics.DiagnosesTotal.WithLabelValues(metrics.ResultOutdated).Inc()
		return again, nil
	}
	return again, nswrite.IgnoreStale(r.tell(ctx, &current, known, found, now))
}

// tell makes a diagnosis known.
func (r *DiagnosisReconciler) tell(
	ctx context.Context, namespace *corev1.Namespace, known *standstill, found *diagnosis.Diagnosis, now time.Time,
) error {
	if len(found.Findings) == 0 {
		metrics.DiagnosesTotal.WithLabelValues(metrics.ResultProgressing).Inc()
		known.setCause("")
		known.tell(nil)
		return r.patchConditions(ctx, namespace, diagnosis.ComputeMoving(namespace, "", metav1.NewTime(now)))
	}
	metrics.DiagnosesTotal.WithLabelValues(metrics.ResultBlocked).Inc()
	known.setCause(found.Findings[0].Cause)
	changed := diagnosis.ComputeBlocked(namespace, found, metav1.NewTime(now))
	if len(changed) == 0 && known.told == nil { // The manager before this one has told it all.
		known.tell(found.Findings)
	}
	before := namespace.DeepCopy()
	if err := r.patchConditions(ctx, namespace, changed); err != nil {
		return err
	}
	for _, finding := range found.Findings {
		if known.isNews(finding) {
			log.FromContext(ctx).Info("Found out why the namespace does not get on", "stage", found.Stage,
				"cause", finding.Cause, "certainty", finding.Certainty, "finding", finding.Note())
			nswrite.RecordEventAbout(r.Recorder, before, firstObject(finding), corev1.EventTypeWarning,
				string(finding.Cause), actionDiagnose, finding.Note())
		}
	}
	known.tell(found.Findings)
	return nil
}

func (r *DiagnosisReconciler) patchConditions(
	ctx context.Context, namespace *corev1.Namespace, changed []corev1.NamespaceCondition, resourceVersion ...string,
) error {
	if len(changed) == 0 {
		return nil
	}
	before := namespace.DeepCopy()
	if err := nswrite.PatchConditions(ctx, r.Client, namespace, changed, resourceVersion...); err != nil {
		return err
	}
	for _, condition := range changed {
		// Once, and not again where nothing but the message has changed.
		old := nscondition.Find(before, condition.Type)
		if condition.Status == corev1.ConditionFalse && old != nil && old.Status == corev1.ConditionTrue {
			log.FromContext(ctx).Info("The namespace gets on again", "condition", condition.Type,
				"message", condition.Message)
		}
	}
	return nil
}

// firstObject refers to an object that a finding is about, nil if it is about none. Its
// kind is not known. Without it, Events about two findings of the same cause would be taken
// for one that is repeated.
func firstObject(finding diagnosis.Finding) runtime.Object {
	if len(finding.Objects) == 0 {
		return nil
	}
	object := finding.Objects[0]
	return &corev1.ObjectReference{Namespace: object.Namespace, Name: printable.Escape(object.Name)}
}

// waitFor makes the Namespace be looked at again after a while.
func (s *standstill) waitFor(wait time.Duration) ctrl.Result {
	priority := firstDiagnosisPriority
	if s.isRepeated {
		priority = repeatedDiagnosisPriority
	}
	return ctrl.Result{RequeueAfter: wait, Priority: ptr.To(priority)}
}

// mayStandStill lets the Namespaces pass that are being initialized or deleted, or were so
// before, or say that they stand still.
func mayStandStill() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return hasToMove(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return hasToMove(e.ObjectOld) || hasToMove(e.ObjectNew) },
	}
}

func hasToMove(object client.Object) bool {
	namespace, isNamespace := object.(*corev1.Namespace)
	return !isNamespace || namespace.DeletionTimestamp != nil ||
		namespace.Annotations[v1alpha1.AnnotationPendingInitializers] != "" ||
		diagnosis.IsBlocked(namespace, diagnosis.StageInitializing) ||
		diagnosis.IsBlocked(namespace, diagnosis.StageTerminating)
}

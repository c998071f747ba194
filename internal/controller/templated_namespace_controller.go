// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
)

const (
	// firstTemplateRetry is the delay after the first problem.
	firstTemplateRetry = 50 * time.Millisecond
	// newPerInitializedWorker is the number of workers for new Namespaces per worker for initialized ones. With fewer
	// requests for initialized Namespaces, the API server responds to those for new ones faster.
	newPerInitializedWorker = 4
	// waitingReportDelay is how long a new Namespace waits before the operator reports what it waits for.
	waitingReportDelay = 3 * time.Second

	actionApplyTemplate = "ApplyTemplate"
	reasonNotEffective  = template.PrefixEvent + v1alpha1.ReasonNotEffective
	reasonNotApplied    = template.PrefixEvent + v1alpha1.ReasonNotApplied
	noteNotApplied      = "template %q selects the namespace, but is applied only to namespaces that are created with " +
		"it: set scope: AllNamespaces in the template, or create the namespace again"
	initializedByTemplate = v1alpha1.TemplatesInitializer + v1alpha1.ConditionInitializedSuffix
)

// observer reads what the decision about a Namespace depends on.
type observer interface {
	Observe(
		ctx context.Context, namespace *corev1.Namespace, templates []v1alpha1.NamespaceTemplate,
	) (plan.Snapshot, error)
}

// executor executes what was decided.
type executor interface {
	Execute(ctx context.Context, decided plan.Plan) ([]plan.Result, error)
}

// TemplatedNamespaceReconciler applies NamespaceTemplates. It is the initializer
// v1alpha1.TemplatesInitializer for new Namespaces, and keeps the objects in initialized Namespaces up to
// date.
type TemplatedNamespaceReconciler struct {
	client.Client
	// Live reads from the API server instead of a cache.
	Live        client.Reader
	Observer    observer
	Executor    executor
	Programs    *observe.Programs
	Writes      *observe.Writes
	Rollouts    *observe.Rollouts
	Recorder    events.EventRecorder
	ServerClock *servertime.Clock
	// Exempt are the names of the Namespaces to which no template is applied.
	Exempt []string
	// Workers is the number of new Namespaces that are reconciled concurrently.
	Workers int
	// Requests enqueues Namespaces, and Templates those whose status must be updated.
	Requests, Templates *Requests

	memories memories
	retries  *retryLimiter
	// cacheCheck is needed because a Namespace can wait for a template that only the previous leader has observed.
	cacheCheck cacheCheck
}

// +kubebuilder:rbac:groups=nslifecycle.dev,resources=namespacetemplates,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// SetupWithManager registers two controllers, one for new Namespaces and one for initialized Namespaces: after a
// change of a template, thousands of initialized Namespaces can be outdated, and new ones must not wait for them. Both
// controllers get all requests.
func (r *TemplatedNamespaceReconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.retries = newRetryLimiter(firstTemplateRetry)
	forNew := r.newBuilder(mgr, templateInitializationControllerName, r.Workers)
	if err := forNew.Complete(untilStopped(r.reconciler(false))); err != nil {
		return err
	}
	return r.newBuilder(mgr, templatedNamespaceControllerName, max(1, r.Workers/newPerInitializedWorker)).
		Watches(&v1alpha1.NamespaceTemplate{}, handler.Funcs{
			CreateFunc: func(ctx context.Context, e event.CreateEvent, _ requestQueue) { r.enqueue(ctx, e.Object) },
			UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ requestQueue) {
				r.enqueue(ctx, e.ObjectOld, e.ObjectNew)
			},
			DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ requestQueue) { r.enqueue(ctx, e.Object) },
		}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(untilStopped(r.reconciler(true)))
}

func (r *TemplatedNamespaceReconciler) newBuilder(mgr ctrl.Manager, name string, workers int) *ctrl.Builder {
	return ctrl.NewControllerManagedBy(mgr).Named(name).
		For(&corev1.Namespace{}, builder.WithPredicates(templateInputChanged())).
		WatchesRawSource(r.Requests.Source()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers, RateLimiter: newRetryLimiter(5 * time.Millisecond),
		})
}

func (r *TemplatedNamespaceReconciler) reconciler(isForInitialized bool) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		result, err := r.reconcile(ctx, req, isForInitialized)
		if isForInitialized {
			// Otherwise, requests for the namespaces of a changed template would keep a higher priority.
			result.Priority = ptr.To(handler.LowPriority)
		}
		return result, err
	}
}

// reconcile applies all templates to one Namespace, if it is initialized or not as the controller expects.
func (r *TemplatedNamespaceReconciler) reconcile(
	ctx context.Context, req ctrl.Request, isForInitialized bool,
) (ctrl.Result, error) {
	var namespace corev1.Namespace
	if err := r.Get(ctx, req.NamespacedName, &namespace); err != nil || namespace.DeletionTimestamp != nil {
		r.forget(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	state := initialization.ParseState(&namespace)
	if (state.Phase == initialization.PhaseInitialized) != isForInitialized {
		return ctrl.Result{}, nil
	}
	memory, isFree := r.memories.begin(&namespace)
	if !isFree {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	defer func() { r.memories.end(&namespace, memory) }()
	if slices.Contains(r.Exempt, namespace.Name) || !isTurnOfTemplates(state) {
		r.Rollouts.Processed(&namespace)
		return ctrl.Result{}, nil
	}
	if r.Writes.IsStale(&namespace) {
		return ctrl.Result{}, nil // The watch event for the operator's own write follows.
	}
	if err := r.cacheCheck.verify(ctx, r.Client, r.Live, &v1alpha1.NamespaceTemplateList{}); err != nil {
		return retryStale(err)
	}
	var templates v1alpha1.NamespaceTemplateList
	if err := r.List(ctx, &templates, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("failed to list NamespaceTemplates: %w", err)
	}
	outcome, err := r.apply(ctx, &namespace, templates.Items, &memory)
	switch {
	case errors.Is(err, template.ErrNotSynced):
		return ctrl.Result{RequeueAfter: plan.SyncRetry}, nil
	case err == nil && outcome.Refusal == nil:
		return r.finish(ctx, req, &memory, outcome)
	}
	r.Rollouts.Processed(&namespace)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil // The watch event for the deletion follows.
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, nsobject.IgnoreStale(r.refuse(ctx, &namespace, *outcome.Refusal))
}

// forget forgets a Namespace that is being deleted or does not exist.
func (r *TemplatedNamespaceReconciler) forget(req ctrl.Request) {
	r.memories.forget(req.Name)
	r.Writes.Forget(req.Name)
	r.Templates.AddAfter(templateStatusInterval, r.Rollouts.Forget(req.Name)...)
	r.retries.Forget(req)
}

// apply applies all templates to a Namespace, except for what the Namespace itself records.
func (r *TemplatedNamespaceReconciler) apply(
	ctx context.Context, namespace *corev1.Namespace, templates []v1alpha1.NamespaceTemplate, memory *plan.Memory,
) (plan.Outcome, error) {
	snapshot, err := r.Observer.Observe(ctx, namespace, templates)
	if err != nil {
		return plan.Outcome{}, err
	}
	decided := plan.Compute(snapshot, *memory)
	results, stopped := r.Executor.Execute(ctx, decided)
	outcome, remembered := plan.Conclude(decided, results)
	*memory = remembered
	for _, write := range outcome.Writes {
		metrics.CountTemplateWrite(write.Template, write.Action)
	}
	err = cmp.Or(stopped, decided.Unsynced)
	switch {
	case outcome.Namespace.ResourceVersion != namespace.ResourceVersion && !template.AwaitsTemplates(namespace):
		r.Writes.SetState(namespace, snapshot.State, outcome.Namespace.ResourceVersion)
	case err == nil && outcome.Refusal == nil && template.AwaitsTemplates(namespace):
		r.Writes.SetState(namespace, outcome.State, "")
	}
	return outcome, err
}

// finish writes and then reports the result of a pass: a Namespace contains only what it records.
func (r *TemplatedNamespaceReconciler) finish(
	ctx context.Context, req ctrl.Request, memory *plan.Memory, outcome plan.Outcome,
) (ctrl.Result, error) {
	namespace := outcome.Namespace
	isCurrent, err := r.write(ctx, memory, outcome)
	err = nsobject.IgnoreStale(err)
	switch {
	case err != nil:
		outcome.NotRecorded(namespace, err)
	case !isCurrent:
		r.Rollouts.Processed(namespace)
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	r.report(ctx, namespace, outcome)
	if err != nil {
		return ctrl.Result{}, err
	}
	retryAfter := r.retryAfter(req, outcome)
	if r.Writes.HasUnseen(namespace) && (retryAfter == 0 || retryAfter > observe.OwnWriteTimeout) {
		retryAfter = observe.OwnWriteTimeout + time.Second
	}
	return ctrl.Result{RequeueAfter: retryAfter}, nil
}

// refuse makes the initialization of a Namespace fail. The Namespace controller then deletes the
// Namespace.
func (r *TemplatedNamespaceReconciler) refuse(
	ctx context.Context, namespace *corev1.Namespace, refusal metav1.Status,
) error {
	uid := namespace.UID
	if err := nsobject.PatchResult(ctx, r.Client, namespace, "", refusal); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Refused a namespace", "uid", uid, "reason", refusal.Reason, "message", refusal.Message)
	return nil
}

// isTurnOfTemplates reports whether a Namespace is initialized, or initializing and waits for its templates.
func isTurnOfTemplates(state initialization.State) bool {
	return state.Phase == initialization.PhaseInitialized ||
		state.Phase == initialization.PhaseInitializing && state.Pending[0] == v1alpha1.TemplatesInitializer
}

// retryAfter returns the time until the next pass. Problems are retried with increasing delays.
func (r *TemplatedNamespaceReconciler) retryAfter(req ctrl.Request, outcome plan.Outcome) time.Duration {
	if !outcome.HasFailed() {
		r.retries.Forget(req)
		return outcome.RetryAfter
	}
	delay := r.retries.When(req)
	if outcome.RetryAfter > 0 {
		return min(delay, outcome.RetryAfter)
	}
	return delay
}

// publish sets the condition of the initializer to what the Namespace waits for, and records the start of its turn if a
// deadline counts from it. A short wait is not reported.
func (r *TemplatedNamespaceReconciler) publish(
	ctx context.Context, namespace *corev1.Namespace, blocking template.Problem, outcome plan.Outcome,
) error {
	isWaiting := !slices.ContainsFunc(outcome.Templates, func(t plan.TemplateOutcome) bool { return len(t.Problems) > 0 })
	if isWaiting && r.ServerClock.Since(namespace.CreationTimestamp.Time) < waitingReportDelay {
		return nil
	}
	want := corev1.NamespaceCondition{
		Type: initializedByTemplate, Status: corev1.ConditionFalse,
		Reason: blocking.Reason, Message: printable.Truncate(blocking.String(), nsobject.MaxEventNote),
	}
	var conditions []corev1.NamespaceCondition
	now := metav1.NewTime(r.ServerClock.Now())
	if nsobject.CompleteCondition(nsobject.FindCondition(namespace, want.Type), &want, now) {
		conditions = append(conditions, want)
	}
	var annotations map[string]string
	if !outcome.TurnStart.IsZero() {
		annotations = map[string]string{v1alpha1.AnnotationTurnStartedAt: initialization.FormatTurnStart(
			v1alpha1.TemplatesInitializer, outcome.TurnStart)}
	}
	if len(conditions)+len(annotations) == 0 {
		return nil
	}
	return nsobject.PatchAnnotations(ctx, r.Client, namespace.DeepCopy(), "", annotations, conditions)
}

// report records new problems as Events, and updates the counts of the templates.
func (r *TemplatedNamespaceReconciler) report(
	ctx context.Context, namespace *corev1.Namespace, outcome plan.Outcome,
) {
	record := func(eventType, reason, note string) {
		nsobject.RecordEvent(r.Recorder, namespace, eventType, reason, actionApplyTemplate, note)
	}
	problems, changed := r.Rollouts.Report(namespace, outcome)
	for _, found := range problems {
		if found.IsConflict() {
			metrics.TemplateConflictsTotal.WithLabelValues(found.Template).Inc()
		}
		log.FromContext(ctx).Info("Failed to apply a template", "uid", namespace.UID, "template", found.Template,
			"object", found.Object, "reason", found.Reason, "message", found.Message)
		record(corev1.EventTypeWarning, template.PrefixEvent+found.Reason, found.String())
	}
	isComplete := outcome.WaitsFor() == nil
	for _, applied := range outcome.Templates {
		for _, found := range applied.TimedOut {
			if isComplete {
				record(corev1.EventTypeWarning, reasonNotEffective, found.String())
			}
		}
	}
	for _, found := range outcome.Kept {
		record(corev1.EventTypeNormal, template.PrefixEvent+found.Reason, found.String())
	}
	for _, name := range outcome.Late {
		record(corev1.EventTypeWarning, reasonNotApplied, fmt.Sprintf(noteNotApplied, name))
	}
	r.Templates.AddAfter(templateStatusInterval, changed...)
}

// templateInputChanged returns a predicate for the changes that a template can depend on.
func templateInputChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
				e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion() ||
				!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
				!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) ||
				e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}
}

func (r *TemplatedNamespaceReconciler) enqueue(ctx context.Context, versions ...client.Object) {
	enqueueConcerned(ctx, r.Client, r.Requests, versions...)
}

// enqueueConcerned enqueues the Namespaces that any of the given versions of a template selects or that record it. New
// Namespaces are reconciled first.
func enqueueConcerned(ctx context.Context, cached client.Reader, requests *Requests, versions ...client.Object) {
	var namespaces corev1.NamespaceList
	if err := cached.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list namespaces")
		return
	}
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		isConcerned := slices.ContainsFunc(versions, func(version client.Object) bool {
			changed, ok := version.(*v1alpha1.NamespaceTemplate)
			return ok && (template.Selects(changed, namespace) || recordsTemplate(namespace, changed.Name))
		})
		if isConcerned {
			requests.Add(!template.AwaitsTemplates(namespace), namespace.Name)
		}
	}
}

// recordsTemplate reports whether a Namespace can record a template. It does not parse the annotation.
func recordsTemplate(namespace *corev1.Namespace, name string) bool {
	return strings.Contains(namespace.Annotations[v1alpha1.AnnotationAppliedTemplates], `"`+name+`"`)
}

// EnqueueCopiesOf enqueues the templates that copy a source, and their Namespaces.
func (r *TemplatedNamespaceReconciler) EnqueueCopiesOf(changed v1alpha1.TemplateSourceReference) {
	var templates v1alpha1.NamespaceTemplateList
	ctx := context.Background()
	if err := r.List(ctx, &templates, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list NamespaceTemplates")
		return
	}
	for i := range templates.Items {
		if current := &templates.Items[i]; r.Programs.HasCopyOf(current, changed) {
			r.Templates.AddAfter(templateStatusInterval, current.Name) // Its status reports missing sources.
			r.enqueue(ctx, current)
		}
	}
}

// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
	"github.com/nslifecycle/nslifecycle/internal/template"
	"github.com/nslifecycle/nslifecycle/internal/template/authorization"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
	"github.com/nslifecycle/nslifecycle/internal/template/plan"
	"github.com/nslifecycle/nslifecycle/internal/templateset"
)

const (
	// templateStatusInterval is the minimum time between two updates of the counts of a template.
	templateStatusInterval = 500 * time.Millisecond
	// reviewInterval is how often permissions are reviewed again, and incompleteReviewInterval how often if
	// some are missing. RBAC objects are not watched. Together with how long the Authorizer remembers an allowed request,
	// it is less than a minute.
	reviewInterval           = 40 * time.Second
	incompleteReviewInterval = 5 * time.Second
	// forbiddenReviewInterval is how often they are reviewed again while an object is forbidden in a Namespace, for
	// example by an admission policy. The first time, they are reviewed at once, because permissions can be revoked.
	forbiddenReviewInterval = 30 * time.Second
)

// TemplateReconciler reports in the status of each NamespaceTemplate whether it is valid, authorized
// and applied. It keeps a template that is being deleted until its objects are deleted, if
// objectRetentionPolicy.whenDeleted is "Delete".
type TemplateReconciler struct {
	client.Client
	Programs    *observe.Programs
	Revisions   *observe.Revisions
	Authorizer  *authorization.Authorizer
	Observer    *observe.Observer
	Writes      *observe.Writes
	Rollouts    *observe.Rollouts
	Clock       clock.PassiveClock
	ServerClock *servertime.Clock
	Recorder    events.EventRecorder
	// Exempt are the names of the Namespaces to which no template is applied.
	Exempt []string
	// ServiceAccounts watches the ServiceAccounts in the system namespace.
	ServiceAccounts cache.Cache
	// Requests enqueues templates, and Namespaces those to which a template may be applied otherwise: with another
	// revision, or because of permissions or kinds that have changed.
	Requests, Namespaces *Requests

	// reviews has the last review of each template, by UID.
	reviews map[types.UID]review
	// observed has the generations that were observed, by UID.
	observed map[types.UID]observedGeneration
	// omitted has the names of the templates that do not fit into the set.
	omitted sets.Set[string]
}

// review is the result of a review of permissions.
type review struct {
	authorized metav1.ConditionStatus
	message    string
	// unserved are the kinds in the template that the API server does not serve.
	unserved []string
	// isForbidden is true if an object was forbidden in a Namespace.
	isForbidden bool
	generation  int64
	at          time.Time
}

// observedGeneration is a generation of a template.
type observedGeneration struct {
	generation int64
	// since is when the operator observed the generation; zero if a previous process has reported it.
	since time.Time
	// isProcessed is true after the generation was applied to all Namespaces that it selected. What new Namespaces and
	// new labels change later does not matter: users could otherwise keep the template from becoming ready.
	isProcessed bool
	// enforced is ConditionInput.Enforced. Once it is True, it does not change: the status of each template would
	// otherwise be written when the set changes. The condition Active of a configuration reports what happens later.
	enforced metav1.Condition
}

// +kubebuilder:rbac:groups=nslifecycle.dev,resources=namespacetemplates/status,verbs=patch

// SetupWithManager registers the reconciler.
func (r *TemplateReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(templateControllerName).
		For(&v1alpha1.NamespaceTemplate{}, builder.WithPredicates(
			predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.NewPredicateFuncs(isUnobserved)))).
		WatchesRawSource(source.Kind[client.Object](
			r.ServiceAccounts, &corev1.ServiceAccount{}, handlerFor(r.enqueueUsersOf))).
		WatchesRawSource(r.Requests.Source()).
		WithOptions(controller.Options{RateLimiter: newRetryLimiter(5 * time.Millisecond)}).
		Complete(untilStopped(r))
}

// isUnobserved reports whether the status of a template does not describe its spec, for example because another client
// has removed it.
func isUnobserved(object client.Object) bool {
	current, ok := object.(*v1alpha1.NamespaceTemplate)
	return ok && current.Status.ObservedGeneration != current.Generation
}

// enqueueUsersOf enqueues the templates that use a ServiceAccount, and their Namespaces.
func (r *TemplateReconciler) enqueueUsersOf(ctx context.Context, account client.Object, _ bool, queue requestQueue) {
	var templates v1alpha1.NamespaceTemplateList
	// The cache cannot fail after it has synced.
	_ = r.List(ctx, &templates, client.UnsafeDisableDeepCopy)
	for i := range templates.Items {
		if current := &templates.Items[i]; current.Spec.ServiceAccountName == account.GetName() {
			queue.Add(requestFor(current.Name))
			enqueueConcerned(ctx, r.Client, r.Namespaces, current)
		}
	}
}

// Reconcile updates the status of one template.
func (r *TemplateReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	stopWatchesAfter, err := r.retain(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	current := &v1alpha1.NamespaceTemplate{}
	if err := r.Get(ctx, req.NamespacedName, current); err != nil {
		if apierrors.IsNotFound(err) {
			metrics.DeleteTemplate(req.Name)
		}
		return ctrl.Result{RequeueAfter: stopWatchesAfter}, client.IgnoreNotFound(err)
	}
	metrics.AddTemplate(current.Name)
	var namespaces corev1.NamespaceList
	// Namespaces are listed after the template was read, so the list contains each Namespace that was observed before.
	if err := r.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("failed to list Namespaces: %w", err)
	}
	changed, err := r.updateFinalizer(ctx, current, namespaces.Items)
	if changed || err != nil {
		return retryStale(err)
	}
	before := current.Status.DeepCopy()
	if err := r.planRollout(ctx, current, namespaces.Items); err != nil {
		return retryStale(err)
	}
	return r.report(ctx, current, before, namespaces.Items)
}

// report updates the status, and returns when to do so again.
func (r *TemplateReconciler) report(
	ctx context.Context, current *v1alpha1.NamespaceTemplate, before *v1alpha1.NamespaceTemplateStatus,
	namespaces []corev1.Namespace,
) (ctrl.Result, error) {
	last, observed := r.review(ctx, current), r.recordGeneration(current, namespaces)
	missingSource := r.Observer.MissingSource(ctx, current)
	if err := r.updateEnforcement(ctx, current, &observed); err != nil {
		return ctrl.Result{}, err
	}
	// Just after a start, the counts are not complete, and those in the status may still be right.
	isComplete := r.Rollouts.IsComplete(namespaces)
	if !isComplete && before.ObservedGeneration == current.Generation {
		return ctrl.Result{RequeueAfter: templateStatusInterval}, nil
	}
	if err := r.writeStatus(ctx, current, before, last, missingSource, observed); err != nil {
		return retryStale(err)
	}
	if !isComplete || !observed.isProcessed || observed.enforced.Reason == v1alpha1.ReasonEnforcementPending {
		return ctrl.Result{RequeueAfter: templateStatusInterval}, nil
	}
	if observed.enforced.Status == metav1.ConditionFalse || last.authorized != metav1.ConditionTrue ||
		len(last.unserved) > 0 || missingSource != "" || current.Status.Namespaces.Failed > 0 {
		return ctrl.Result{RequeueAfter: incompleteReviewInterval}, nil
	}
	return ctrl.Result{RequeueAfter: reviewInterval}, nil
}

// retain forgets what is known about templates that no longer exist. It enqueues templates that did not fit into
// the set before, or that do not any more. It returns the time until watches that no template needs can be
// stopped; 0 if there are none.
func (r *TemplateReconciler) retain(ctx context.Context) (stopWatchesAfter time.Duration, err error) {
	var templates v1alpha1.NamespaceTemplateList
	if err := r.List(ctx, &templates, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("failed to list NamespaceTemplates: %w", err)
	}
	if r.Observer.Retain(ctx, templates.Items) {
		stopWatchesAfter = observe.WatchRetention
	}
	omitted := r.Programs.Omitted(templates.Items)
	for i := range templates.Items {
		if current := &templates.Items[i]; omitted.Has(current.Name) != r.omitted.Has(current.Name) {
			r.Requests.Add(false, current.Name)
			enqueueConcerned(ctx, r.Client, r.Namespaces, current)
		}
	}
	r.omitted = omitted
	exists := func(uid types.UID) bool {
		return slices.ContainsFunc(templates.Items, func(t v1alpha1.NamespaceTemplate) bool { return t.UID == uid })
	}
	maps.DeleteFunc(r.reviews, func(uid types.UID, _ review) bool { return !exists(uid) })
	maps.DeleteFunc(r.observed, func(uid types.UID, _ observedGeneration) bool { return !exists(uid) })
	return stopWatchesAfter, nil
}

// review reviews the permissions of a template, unless a recent review is known.
func (r *TemplateReconciler) review(ctx context.Context, current *v1alpha1.NamespaceTemplate) review {
	interval := reviewInterval
	last, ok := r.reviews[current.UID]
	failures := r.Rollouts.Summary(current.Name, current.Status.UpdateRevision).Failures
	isForbidden := slices.ContainsFunc(failures,
		func(failure v1alpha1.TemplateFailure) bool { return failure.Reason == v1alpha1.ReasonForbidden })
	switch {
	case isForbidden && !last.isForbidden:
		interval = 0
	case last.authorized == metav1.ConditionTrue && isForbidden:
		interval = forbiddenReviewInterval
	case last.authorized != metav1.ConditionTrue:
		interval = incompleteReviewInterval
	}
	unserved := r.Observer.Unserved(current)
	isServed := slices.Equal(last.unserved, unserved)
	if ok && last.generation == current.Generation && isServed && r.Clock.Since(last.at) < interval {
		return last
	}
	access := r.Authorizer.Check(ctx, current, isForbidden || last.generation != current.Generation)
	now := review{
		authorized: access.Status(), message: access.Message(current.Name), unserved: unserved, isForbidden: isForbidden,
		generation: current.Generation, at: r.Clock.Now(),
	}
	template.Put(&r.reviews, current.UID, now)
	if ok && (!isServed || last.message != now.message) {
		enqueueConcerned(ctx, r.Client, r.Namespaces, current)
	}
	return now
}

// updateFinalizer adds the finalizer if objects must be deleted with the template, and removes it when no
// Namespace records the template any more. It reports whether it has written the template.
func (r *TemplateReconciler) updateFinalizer(
	ctx context.Context, current *v1alpha1.NamespaceTemplate, namespaces []corev1.Namespace,
) (bool, error) {
	base := current.DeepCopy()
	isDeleting := current.DeletionTimestamp != nil
	mustDelete := current.Spec.ObjectRetentionPolicy.WhenDeleted == v1alpha1.RetentionDelete
	if isDeleting && mustDelete && controllerutil.ContainsFinalizer(current, v1alpha1.FinalizerTemplateObjects) {
		isUsed, err := r.isUsed(namespaces, current.Name)
		if err != nil || isUsed {
			r.Requests.AddAfter(templateStatusInterval, current.Name)
			return false, err
		}
	}
	wanted := !isDeleting && mustDelete
	if wanted && !controllerutil.AddFinalizer(current, v1alpha1.FinalizerTemplateObjects) ||
		!wanted && !controllerutil.RemoveFinalizer(current, v1alpha1.FinalizerTemplateObjects) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, current, patch, client.FieldOwner(nsobject.FieldOwner)); err != nil {
		return false, fmt.Errorf("failed to update the finalizer of NamespaceTemplate %q: %w", current.Name, err)
	}
	r.Requests.Add(false, current.Name) // The predicate drops the watch event.
	return true, nil
}

// isUsed reports whether a Namespace records a template.
func (r *TemplateReconciler) isUsed(namespaces []corev1.Namespace, name string) (bool, error) {
	for i := range namespaces {
		state, err := r.Writes.State(&namespaces[i])
		if err != nil {
			if recordsTemplate(&namespaces[i], name) {
				return true, err
			}
			continue
		}
		if _, ok := state[name]; ok && namespaces[i].DeletionTimestamp == nil {
			return true, nil
		}
	}
	return false, nil
}

// recordGeneration records the current generation of a template, and returns what is known about it.
func (r *TemplateReconciler) recordGeneration(
	current *v1alpha1.NamespaceTemplate, namespaces []corev1.Namespace,
) observedGeneration {
	known, ok := r.observed[current.UID]
	switch {
	case !ok && current.Status.ObservedGeneration == current.Generation:
		known = observedGeneration{generation: current.Generation, isProcessed: true}
		if meta.IsStatusConditionTrue(current.Status.Conditions, v1alpha1.ConditionReady) {
			known.enforced.Status = metav1.ConditionTrue
		}
	case !ok || known.generation != current.Generation:
		known = observedGeneration{generation: current.Generation, since: r.Clock.Now()}
	}
	known.isProcessed = known.isProcessed || !slices.ContainsFunc(namespaces, func(namespace corev1.Namespace) bool {
		return r.mustProcess(current, &namespace)
	})
	template.Put(&r.observed, current.UID, known)
	return known
}

// updateEnforcement updates whether API servers add a template to new Namespaces. It does nothing for templates that
// do not belong into the set.
func (r *TemplateReconciler) updateEnforcement(
	ctx context.Context, current *v1alpha1.NamespaceTemplate, observed *observedGeneration,
) error {
	if observed.enforced.Status == metav1.ConditionTrue {
		return nil
	}
	if current.DeletionTimestamp != nil || r.omitted.Has(current.Name) {
		observed.enforced = metav1.Condition{}
		return nil
	}
	set := &internalv1alpha1.NamespaceInitializerSet{}
	name := internalv1alpha1.EffectiveSetName
	if err := r.Get(ctx, client.ObjectKey{Name: name}, set); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to get NamespaceInitializerSet %q: %w", name, err)
	}
	condition, isCurrent := initialization.EnforcedCondition(set)
	switch {
	case isCurrent && !templateset.Selects(set, current):
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonEnforcementPending
		condition.Message = "the set of initializers does not contain the template yet"
	case isCurrent && condition.Reason == v1alpha1.ReasonAuditMode: // New Namespaces get the template.
		condition.Status = metav1.ConditionTrue
	}
	observed.enforced = condition
	r.observed[current.UID] = *observed
	return nil
}

// mustProcess reports whether a template must still be applied to a Namespace that it selects. Before, the counts do
// not include the Namespace, for example because the template is new.
func (r *TemplateReconciler) mustProcess(current *v1alpha1.NamespaceTemplate, namespace *corev1.Namespace) bool {
	state, err := r.Writes.State(namespace)
	return err == nil && current.DeletionTimestamp == nil && namespace.DeletionTimestamp == nil &&
		initialization.ParseState(namespace).Phase == initialization.PhaseInitialized &&
		!slices.Contains(r.Exempt, namespace.Name) &&
		template.MustApply(current, namespace, state) && !r.Rollouts.Ignores(current.UID, namespace) &&
		!r.Rollouts.HasProcessed(current, namespace.Name)
}

// writeStatus is the only function that sets status.observedGeneration: a client that reads the generation of its own
// change must also get the conditions and counts of this generation.
func (r *TemplateReconciler) writeStatus(
	ctx context.Context, current *v1alpha1.NamespaceTemplate, before *v1alpha1.NamespaceTemplateStatus, last review,
	missingSource string, observed observedGeneration,
) error {
	base, now, rollout := current.DeepCopy(), r.ServerClock.Now(), r.Rollouts.Get(current.UID)
	base.Status = *before
	status := &current.Status
	status.ObservedGeneration = current.Generation
	status.UpdateRevision = template.Revision(&current.Spec)
	summary := r.Rollouts.Summary(current.Name, status.UpdateRevision)
	status.Namespaces, status.Failures = &summary.Counts, summary.Failures
	var unauthorizedFor time.Duration
	authorized := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionAuthorized)
	if authorized != nil && authorized.Status == metav1.ConditionFalse {
		unauthorizedFor = min(r.Clock.Since(observed.since), now.Sub(authorized.LastTransitionTime.Time))
	}
	setConditions(&status.Conditions, template.Conditions(current, template.ConditionInput{
		Errors: r.Programs.Errors(current), IsOmitted: r.omitted.Has(current.Name),
		Authorized: last.authorized, AuthorizedMessage: last.message, UnauthorizedFor: unauthorizedFor,
		MissingSource: missingSource, Failing: summary.Failing,
		IsProcessed: observed.isProcessed, Enforced: observed.enforced,
		HasFailurePause: rollout.HasFailurePause(), IsCanaryPhase: rollout.IsCanaryPhase,
		CanaryWaitEnd: rollout.CanaryWaitEnd(now),
	}), current.Generation, now)
	if apiequality.Semantic.DeepEqual(base.Status, current.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, current, patch, client.FieldOwner(nsobject.FieldOwner)); err != nil {
		return fmt.Errorf("failed to update the status of NamespaceTemplate %q: %w", current.Name, err)
	}
	for _, event := range template.Events(before, status) {
		nsobject.RecordEvent(r.Recorder, current, event.Type, event.Reason, actionApplyTemplate, event.Note)
	}
	return nil
}

// planRollout decides which revision new Namespaces, and which initialized Namespaces, get.
func (r *TemplateReconciler) planRollout(
	ctx context.Context, current *v1alpha1.NamespaceTemplate, namespaces []corev1.Namespace,
) error {
	if current.DeletionTimestamp != nil {
		return nil
	}
	last, status := r.Rollouts.Get(current.UID), &current.Status
	if last.Current == "" { // The operator has restarted, or the template is new.
		var err error
		if last.Current, err = r.Revisions.Current(ctx, current); err != nil {
			return err
		}
		last.Latest, last.CanariesUpdated = status.UpdateRevision, ptr.Deref(status.CanariesUpdatedTime, metav1.Time{})
	}
	rollout := plan.Rollout{Current: last.Current, Settings: current.Spec.Rollout}
	if len(r.Programs.Errors(current)) == 0 {
		rollout.Latest = template.Revision(&current.Spec)
	}
	if rollout.Latest != "" && rollout.Current != rollout.Latest {
		now, progress := r.ServerClock.Now(), r.progress(current, rollout.Latest, namespaces)
		rollout.Advance(last, progress, now)
		if end := rollout.CanaryWaitEnd(now); !end.IsZero() {
			r.Requests.AddAfter(end.Sub(now), current.Name)
		}
	}
	// If Namespaces got a revision before it was recorded, they could get the next one without a rollout.
	if rollout.Latest != "" {
		if err := r.Revisions.Record(ctx, current, rollout.Current); err != nil {
			return err
		}
	}
	status.CurrentRevision, status.CanariesUpdatedTime = rollout.Current, nil
	if !rollout.CanariesUpdated.IsZero() {
		status.CanariesUpdatedTime = rollout.CanariesUpdated.DeepCopy()
	}
	if r.Rollouts.Set(current.UID, rollout) {
		enqueueConcerned(ctx, r.Client, r.Namespaces, current)
	}
	return nil
}

// progress counts the initialized Namespaces that do not contain a revision yet, and the canaries among them.
func (r *TemplateReconciler) progress(
	current *v1alpha1.NamespaceTemplate, revision string, namespaces []corev1.Namespace,
) plan.Progress {
	progress := plan.Progress{IsComplete: r.Rollouts.IsComplete(namespaces)}
	for i := range namespaces {
		namespace := &namespaces[i]
		state, err := r.Writes.State(namespace)
		if err != nil {
			continue // The reconciliation of the Namespace returns the error.
		}
		// The last write can have initialized a Namespace that the cache shows as initializing.
		isStale := r.Writes.IsStale(namespace)
		if !isStale && initialization.ParseState(namespace).Phase != initialization.PhaseInitialized ||
			slices.Contains(r.Exempt, namespace.Name) ||
			!template.IsOutdated(current, namespace, state, revision) ||
			r.Rollouts.Ignores(current.UID, namespace) {
			continue
		}
		if isStale || nscache.IsPartial(namespace) {
			r.Requests.AddAfter(templateStatusInterval, current.Name)
		}
		progress.Outdated++
		if r.Rollouts.MayBeCanary(current, namespace) {
			progress.Canaries++
		}
	}
	return progress
}

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
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
	"github.com/nslifecycle/nslifecycle/internal/template"
)

const (
	// templateStatusInterval is the minimum time between two updates of the counts of a template.
	templateStatusInterval = 500 * time.Millisecond
	// reviewInterval is how often permissions are reviewed again, and incompleteReviewInterval how often if
	// some are missing. RBAC objects are not watched.
	reviewInterval           = 10 * time.Minute
	incompleteReviewInterval = 5 * time.Second
	// forbiddenReviewInterval is how often they are reviewed again while an object is forbidden in a Namespace,
	// for example because permissions were revoked.
	forbiddenReviewInterval = 30 * time.Second
)

// TemplateReconciler reports in the status of each NamespaceTemplate whether it is valid, authorized
// and applied. It keeps a template that is being deleted until its objects are deleted, if
// removal.onDelete is "Prune".
type TemplateReconciler struct {
	client.Client
	Programs   *template.Programs
	Revisions  *template.Revisions
	Rollouts   *template.Rollouts
	Authorizer *template.Authorizer
	Applier    *template.Applier
	Tracker    *template.Tracker
	Clock      clock.PassiveClock
	// ServiceAccounts watches the ServiceAccounts in the system namespace.
	ServiceAccounts cache.Cache
	// Requests enqueues templates.
	Requests *Requests
	// PlanChanged is called when Namespaces that a template selects may get another revision.
	PlanChanged func(ctx context.Context, changed *v1alpha1.NamespaceTemplate)
	// Authorized is called when the permissions that a template requires, or the kinds that it contains,
	// have changed.
	Authorized func(ctx context.Context, changed *v1alpha1.NamespaceTemplate)

	// reviews has the last review of each template, by UID.
	reviews map[types.UID]review
	// omitted has the names of the templates that do not fit into the set.
	omitted sets.Set[string]
}

// review is the result of a review of permissions.
type review struct {
	authorized metav1.ConditionStatus
	message    string
	// unserved are the kinds in the template that the API server does not serve.
	unserved   []string
	generation int64
	at         time.Time
}

// +kubebuilder:rbac:groups=nslifecycle.dev,resources=namespacetemplates/status,verbs=patch

// SetupWithManager registers the reconciler.
func (r *TemplateReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(templateControllerName).
		For(&v1alpha1.NamespaceTemplate{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind[client.Object](
			r.ServiceAccounts, &corev1.ServiceAccount{}, handlerFor(r.enqueueUsersOf))).
		WatchesRawSource(r.Requests.Source()).
		WithOptions(controller.Options{RateLimiter: newRetryLimiter(5 * time.Millisecond)}).
		Complete(r)
}

// StatusChanged enqueues templates, at most once in templateStatusInterval.
func (r *TemplateReconciler) StatusChanged(templates []string) {
	for _, name := range templates {
		r.Requests.AddAfter(templateStatusInterval, name)
	}
}

func (r *TemplateReconciler) enqueueUsersOf(ctx context.Context, account client.Object, _ bool, queue requestQueue) {
	var templates v1alpha1.NamespaceTemplateList
	// The cache cannot fail after it has synced.
	_ = r.List(ctx, &templates, client.UnsafeDisableDeepCopy)
	for i := range templates.Items {
		if templates.Items[i].Spec.ServiceAccountName == account.GetName() {
			queue.Add(requestFor(templates.Items[i].Name))
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
	// The list contains all Namespaces that were observed before the template.
	if err := r.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("failed to list Namespaces: %w", err)
	}
	changed, err := r.updateFinalizer(ctx, current, namespaces.Items)
	if changed || err != nil {
		return retryStale(err)
	}
	if err := r.recordRevision(ctx, current); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.planRollout(ctx, current, namespaces.Items); err != nil {
		return retryStale(err)
	}
	last := r.review(ctx, current)
	if !r.Tracker.IsComplete(namespaces.Items) { // They are not just after a start.
		return ctrl.Result{RequeueAfter: templateStatusInterval}, nil
	}
	if err := r.writeStatus(ctx, current, last); err != nil {
		return retryStale(err)
	}
	if last.authorized != metav1.ConditionTrue || len(last.unserved) > 0 || current.Status.Namespaces.Failed > 0 {
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
	if r.Applier.Retain(ctx, templates.Items) {
		stopWatchesAfter = template.WatchRetention
	}
	omitted := r.Programs.Omitted(templates.Items)
	for i := range templates.Items {
		if current := &templates.Items[i]; omitted.Has(current.Name) != r.omitted.Has(current.Name) {
			r.Requests.Add(false, current.Name)
			r.Authorized(ctx, current)
		}
	}
	r.omitted = omitted
	maps.DeleteFunc(r.reviews, func(uid types.UID, _ review) bool {
		return !slices.ContainsFunc(templates.Items, func(t v1alpha1.NamespaceTemplate) bool { return t.UID == uid })
	})
	return stopWatchesAfter, nil
}

// review reviews the permissions of a template, unless a recent review is known.
func (r *TemplateReconciler) review(ctx context.Context, current *v1alpha1.NamespaceTemplate) review {
	interval := reviewInterval
	last, ok := r.reviews[current.UID]
	isForbidden := last.authorized == metav1.ConditionTrue && slices.ContainsFunc(current.Status.Failures,
		func(failure v1alpha1.TemplateFailure) bool { return failure.Reason == template.ReasonForbidden })
	switch {
	case isForbidden:
		interval = forbiddenReviewInterval
	case last.authorized != metav1.ConditionTrue:
		interval = incompleteReviewInterval
	}
	unserved := r.Applier.Unserved(current)
	isServed := slices.Equal(last.unserved, unserved)
	if ok && last.generation == current.Generation && isServed && r.Clock.Since(last.at) < interval {
		return last
	}
	authorization := r.Authorizer.Check(ctx, current, isForbidden || last.generation != current.Generation)
	now := review{
		authorized: authorization.Status(), message: authorization.Message(current.Name), unserved: unserved,
		generation: current.Generation, at: r.Clock.Now(),
	}
	if r.reviews == nil {
		r.reviews = map[types.UID]review{}
	}
	r.reviews[current.UID] = now
	if ok && (!isServed || last.message != now.message) {
		r.Authorized(ctx, current)
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
	switch {
	case isDeleting && !controllerutil.ContainsFinalizer(current, v1alpha1.FinalizerTemplate):
		return false, nil
	case isDeleting && current.Spec.Removal.OnDelete == v1alpha1.RemovalPrune:
		isUsed, err := r.isUsed(namespaces, current.Name)
		if err != nil || isUsed {
			r.Requests.AddAfter(templateStatusInterval, current.Name)
			return false, err
		}
	}
	wanted := !isDeleting && current.Spec.Removal.OnDelete == v1alpha1.RemovalPrune
	if wanted && !controllerutil.AddFinalizer(current, v1alpha1.FinalizerTemplate) ||
		!wanted && !controllerutil.RemoveFinalizer(current, v1alpha1.FinalizerTemplate) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, current, patch, client.FieldOwner(nswrite.FieldOwner)); err != nil {
		return false, fmt.Errorf("failed to update the finalizer of NamespaceTemplate %q: %w", current.Name, err)
	}
	r.Requests.Add(false, current.Name) // The predicate drops the watch event.
	return true, nil
}

// isUsed reports whether a Namespace records a template.
func (r *TemplateReconciler) isUsed(namespaces []corev1.Namespace, name string) (bool, error) {
	for i := range namespaces {
		state, err := r.Applier.State(&namespaces[i])
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

func (r *TemplateReconciler) writeStatus(
	ctx context.Context, current *v1alpha1.NamespaceTemplate, last review,
) error {
	base := current.DeepCopy()
	current.Status.Revision = template.Revision(&current.Spec)
	counts, failures := r.Tracker.Status(current.Name, current.Status.Revision)
	current.Status.Namespaces, current.Status.Failures = &counts, failures
	for _, condition := range template.Conditions(current, template.ConditionInput{
		Errors: r.Programs.Errors(current), Authorized: last.authorized, AuthorizedMessage: last.message,
		IsOmitted: r.omitted.Has(current.Name), HasFailurePause: r.Rollouts.IsPaused(current.UID),
	}) {
		condition.LastTransitionTime = metav1.NewTime(r.Clock.Now())
		condition.ObservedGeneration = current.Generation
		meta.SetStatusCondition(&current.Status.Conditions, condition)
	}
	if apiequality.Semantic.DeepEqual(base.Status, current.Status) {
		return nil
	}
	return r.patchStatus(ctx, base, current)
}

func (r *TemplateReconciler) patchStatus(ctx context.Context, base, current *v1alpha1.NamespaceTemplate) error {
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, current, patch, client.FieldOwner(nswrite.FieldOwner)); err != nil {
		return fmt.Errorf("failed to update the status of NamespaceTemplate %q: %w", current.Name, err)
	}
	return nil
}

// recordRevision stores the revision of a valid spec.
func (r *TemplateReconciler) recordRevision(ctx context.Context, current *v1alpha1.NamespaceTemplate) error {
	if current.DeletionTimestamp != nil || len(r.Programs.Errors(current)) > 0 {
		return nil
	}
	return r.Revisions.Record(ctx, current, current.Status.CurrentRevision)
}

// planRollout decides which revision new Namespaces, and which open Namespaces, get.
func (r *TemplateReconciler) planRollout(
	ctx context.Context, current *v1alpha1.NamespaceTemplate, namespaces []corev1.Namespace,
) error {
	if current.DeletionTimestamp != nil {
		return nil
	}
	plan := template.Plan{Current: current.Status.CurrentRevision, Rollout: current.Spec.Rollout}
	if len(r.Programs.Errors(current)) == 0 {
		plan.Latest = template.Revision(&current.Spec)
	}
	if plan.Latest != "" && plan.Current != plan.Latest {
		outdated, canaries := r.countOutdated(current, plan.Latest, namespaces)
		if plan.Current == "" || outdated == 0 {
			plan.Current = plan.Latest
		}
		plan.IsCanaryPhase = canaries > 0
	}
	sources, err := r.Applier.SourceNamespaces(ctx, current, plan.Current == plan.Latest)
	if err != nil {
		return err
	}
	hasNewSources := !slices.Equal(current.Status.SourceNamespaces, sources)
	// If Namespaces got a revision before it was recorded, they could get the next one without a rollout.
	if current.Status.CurrentRevision != plan.Current || hasNewSources {
		base := current.DeepCopy()
		current.Status.Revision, current.Status.CurrentRevision = template.Revision(&current.Spec), plan.Current
		current.Status.SourceNamespaces = sources
		if err := r.patchStatus(ctx, base, current); err != nil {
			return err
		}
	}
	if r.Rollouts.Set(current.UID, plan) || hasNewSources {
		r.PlanChanged(ctx, current)
	}
	return nil
}

// countOutdated counts the open Namespaces that do not contain a revision yet, and the canaries among them.
func (r *TemplateReconciler) countOutdated(
	current *v1alpha1.NamespaceTemplate, revision string, namespaces []corev1.Namespace,
) (outdated, canaries int) {
	for i := range namespaces {
		namespace := &namespaces[i]
		state, err := r.Applier.State(namespace)
		if err != nil {
			continue // The reconciliation of the Namespace returns the error.
		}
		// The last write can have opened a Namespace that the cache shows as initializing.
		isStale := r.Applier.IsStale(namespace)
		if !isStale && !isOpen(initialization.ParseState(namespace)) ||
			initialization.IsExempt(namespace.Name, r.Authorizer.SystemNamespace) ||
			!template.IsOutdated(current, namespace, state, revision) ||
			r.Rollouts.IsBlocked(current.UID, namespace.UID) {
			continue
		}
		if isStale || nscache.IsPartial(namespace) {
			r.Requests.AddAfter(templateStatusInterval, current.Name)
		}
		outdated++
		if r.Rollouts.MayBeCanary(current, namespace) {
			canaries++
		}
	}
	return outdated, canaries
}

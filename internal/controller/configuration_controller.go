// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/initializerhealth"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
	"github.com/nslifecycle/nslifecycle/internal/template/observe"
)

// ConfigurationReconciler merges all configurations into NamespaceInitializerSet/effective, and
// reports in the status of each configuration whether the API server enforces it, according to the status of
// the set, which the admission controller writes. All configurations share one reconcile request, because a
// change to any configuration can change the set.
type ConfigurationReconciler struct {
	client.Client
	// Live reads from the API server.
	Live     client.Reader
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
	// HealthChecker determines the health of the initializers.
	HealthChecker *initializerhealth.Checker
	// SystemNamespace and SourceNamespace are written to the set, so that the admission policies exempt these namespaces.
	SystemNamespace, SourceNamespace string
	// NamespaceRequirements are requirements of new Namespaces with initializers, in addition to those of the selectors.
	NamespaceRequirements []v1alpha1.NamespaceSelectorRequirement
	// Operators are the user names of all parts of the operator. They are written to the set: the admission policies allow
	// them to remove initializers with subjects, and their dry runs need no permission to use a template.
	Operators []string
	// Revisions contains the revisions of NamespaceTemplates. If it is nil, the operator applies no templates, and does
	// not register their initializer.
	Revisions *observe.Revisions
	// RevisionCache watches the ControllerRevisions.
	RevisionCache cache.Cache

	// generation is the generation of the set that was written at a time.
	generation int64
	writtenAt  time.Time
	// cacheCheck is needed because an outdated cache would remove entries from the set.
	cacheCheck cacheCheck
}

// verificationTimeout is longer than package verify repeats its dry runs for a new set.
const verificationTimeout = 2 * time.Second

// +kubebuilder:rbac:groups=nslifecycle.dev,resources=namespaceinitializerconfigurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=nslifecycle.dev,resources=namespaceinitializerconfigurations/status,verbs=patch
// +kubebuilder:rbac:groups=internal.nslifecycle.dev,resources=namespaceinitializersets,verbs=get;list;watch;create;update

// SetupWithManager registers the reconciler.
func (r *ConfigurationReconciler) SetupWithManager(mgr ctrl.Manager) error {
	everything := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{requestFor(internalv1alpha1.EffectiveSetName)}
	})
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	b := ctrl.NewControllerManagedBy(mgr).
		Named(configurationControllerName).
		Watches(&v1alpha1.NamespaceInitializerConfiguration{}, everything, changed).
		Watches(&internalv1alpha1.NamespaceInitializerSet{}, everything). // Its status, too.
		Watches(&v1alpha1.NamespaceTemplate{}, everything, changed).
		// This request ensures that the set is written even if no watch event triggers the write.
		WatchesRawSource(source.Func(func(_ context.Context, queue requestQueue) error {
			queue.Add(requestFor(internalv1alpha1.EffectiveSetName))
			return nil
		})).
		WithOptions(controller.Options{RateLimiter: newRateLimiter(5 * time.Millisecond)})
	if r.RevisionCache != nil {
		b = b.WatchesRawSource(source.Kind[client.Object](r.RevisionCache, &appsv1.ControllerRevision{}, everything))
	}
	return b.Complete(untilStopped(r))
}

// Reconcile writes the set and the statuses of all configurations.
func (r *ConfigurationReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if err := r.verifyCache(ctx); err != nil {
		return retryStale(err)
	}
	var configurations v1alpha1.NamespaceInitializerConfigurationList
	if err := r.List(ctx, &configurations); err != nil {
		return ctrl.Result{}, fmt.Errorf("failed to list NamespaceInitializerConfigurations: %w", err)
	}
	merged := initialization.Merge(configurations.Items, r.NamespaceRequirements)
	var templates v1alpha1.NamespaceTemplateList
	if r.Revisions != nil {
		if err := r.List(ctx, &templates, client.UnsafeDisableDeepCopy); err != nil {
			return ctrl.Result{}, fmt.Errorf("failed to list NamespaceTemplates: %w", err)
		}
	}
	set, err := r.writeSet(ctx, merged, templates.Items)
	if nsobject.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	enforced, isVerified := initialization.EnforcedCondition(set)
	if left := r.timeToVerify(set.Generation); !isVerified && left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	metrics.SetEffectiveSetStatus(enforced.Reason)
	if len(configurations.Items) == 0 {
		return ctrl.Result{}, nil
	}
	health, retryAfter := r.HealthChecker.Check(ctx, configurations.Items), initializerhealth.Interval
	var errs []error
	for i := range configurations.Items {
		err := r.writeStatus(ctx, &configurations.Items[i], merged, enforced, health)
		if nsobject.IsConflict(err) {
			// The cache is stale, and the predicate drops the watch events of status changes.
			retryAfter = conflictRetry
			continue
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: retryAfter}, nil
}

// timeToVerify returns how long the admission controller may still take to verify a generation of the set. Before, no
// status changes: each change of the set would make all configurations inactive for a moment.
func (r *ConfigurationReconciler) timeToVerify(generation int64) time.Duration {
	if now := r.Clock.Now(); r.generation != generation {
		r.generation, r.writtenAt = generation, now
	}
	return verificationTimeout - r.Clock.Since(r.writtenAt)
}

// verifyCache returns an error if the cache can lack an entry of the set.
func (r *ConfigurationReconciler) verifyCache(ctx context.Context) error {
	lists := []client.ObjectList{&v1alpha1.NamespaceInitializerConfigurationList{}}
	if r.Revisions != nil {
		lists = append(lists, &v1alpha1.NamespaceTemplateList{})
	}
	return r.cacheCheck.verify(ctx, r.Client, r.Live, lists...)
}

// writeSet writes the set and returns it. It replaces all entries, including entries that other clients
// have added.
func (r *ConfigurationReconciler) writeSet(
	ctx context.Context, merged initialization.Merged, templates []v1alpha1.NamespaceTemplate,
) (*internalv1alpha1.NamespaceInitializerSet, error) {
	var current map[string]*v1alpha1.NamespaceTemplateSpec
	if r.Revisions != nil {
		var err error
		if current, err = r.Revisions.CurrentSpecs(ctx, templates); err != nil {
			return nil, err
		}
	}
	effectiveTemplates := merged.AddTemplates(templates, current)
	set := &internalv1alpha1.NamespaceInitializerSet{}
	err := r.Get(ctx, client.ObjectKey{Name: internalv1alpha1.EffectiveSetName}, set)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("failed to get NamespaceInitializerSet %q: %w", internalv1alpha1.EffectiveSetName, err)
	}
	exists := err == nil
	before := set.DeepCopy()
	set.Initializers, set.WaitingSubjects = merged.Initializers, merged.WaitingSubjects
	set.Templates = effectiveTemplates
	keepMetadata(set.Templates, before.Templates, current)
	set.SystemNamespace, set.SourceNamespace, set.Operators = r.SystemNamespace, r.SourceNamespace, r.Operators
	if exists && apiequality.Semantic.DeepEqual(set, before) {
		return set, nil
	}
	// API servers encode the set to JSON for each evaluation of a policy, so it has no managedFields: an empty entry
	// resets them, and they stay empty until a server-side apply.
	set.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	if exists {
		err = r.Update(ctx, set, client.FieldOwner(nsobject.FieldOwner))
	} else {
		set.Name = internalv1alpha1.EffectiveSetName
		err = r.Create(ctx, set, client.FieldOwner(nsobject.FieldOwner))
	}
	if err != nil {
		return nil, fmt.Errorf("failed to write NamespaceInitializerSet %q: %w", internalv1alpha1.EffectiveSetName, err)
	}
	log.FromContext(ctx).Info("Updated the effective set", "initializers", initialization.Names(merged.Initializers),
		"excluded", merged.Excluded)
	return set, nil
}

// keepMetadata keeps the metadata of the templates whose current spec cannot be read.
func keepMetadata(
	templates, before []internalv1alpha1.EffectiveTemplate, current map[string]*v1alpha1.NamespaceTemplateSpec,
) {
	for i := range templates {
		tmpl := &templates[i]
		if spec, ok := current[tmpl.Name]; !ok || spec != nil {
			continue
		}
		for _, known := range before {
			if known.Name == tmpl.Name {
				tmpl.Labels, tmpl.Annotations, tmpl.Lock = known.Labels, known.Annotations, known.Lock
			}
		}
	}
}

// writeStatus writes the status of one configuration if it has changed.
func (r *ConfigurationReconciler) writeStatus(
	ctx context.Context, configuration *v1alpha1.NamespaceInitializerConfiguration,
	merged initialization.Merged, enforced metav1.Condition, health initialization.Health,
) error {
	if configuration.DeletionTimestamp != nil {
		return nil
	}
	base := configuration.DeepCopy()
	status := &configuration.Status
	status.ObservedGeneration = configuration.Generation
	conditions := initialization.ConfigurationConditions(
		initialization.ActiveCondition(configuration, merged, enforced.Reason, enforced.Message),
		initialization.HealthyCondition(configuration, health))
	keysAndValues := []any{"configuration", configuration.Name}
	for i := range conditions {
		condition := &conditions[i]
		condition.Message = printable.Escape(condition.Message)
		keysAndValues = append(keysAndValues,
			strings.ToLower(condition.Type), condition.Status, // The log keys are "ready", "active", "healthy" and "stalled".
			strings.ToLower(condition.Type)+"Reason", condition.Reason)
	}
	setConditions(&status.Conditions, conditions, configuration.Generation, r.Clock.Now())
	if apiequality.Semantic.DeepEqual(base.Status, *status) {
		return nil
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	switch err := r.Status().Patch(ctx, configuration, patch, client.FieldOwner(nsobject.FieldOwner)); {
	case nsobject.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("failed to update the status of NamespaceInitializerConfiguration %q: %w", configuration.Name, err)
	}
	log.FromContext(ctx).Info("Updated the status of a configuration", keysAndValues...)
	for _, event := range initialization.ConfigurationEvents(base.Status.Conditions, conditions) {
		nsobject.RecordEvent(r.Recorder, configuration, event.Type, event.Reason, event.Action, event.Note)
	}
	return nil
}

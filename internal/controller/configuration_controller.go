// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/metrics"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
)

// ConfigurationReconciler keeps NamespaceInitializerSet/effective equal to the merge
// of all configurations and tells in each configuration's status whether it is in
// force. There is one request for all of them: any change can change the one list.
type ConfigurationReconciler struct {
	client.Client
	// Policies verifies that the API server enforces the set.
	Policies PolicyVerifier
	// PolicyObjects are the types of policies and bindings that the API server serves.
	PolicyObjects []client.Object
	// Stamper completes the entries of the set.
	Stamper Stamper
	Clock   clock.PassiveClock
	// Service finds out whether somebody serves the initializers; nil if nobody asks.
	Service *Service
	// SystemNamespace is written into the set, for the policy to exempt it.
	SystemNamespace string
}

// +kubebuilder:rbac:groups=nslifecycle.dev,resources=namespaceinitializerconfigurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=nslifecycle.dev,resources=namespaceinitializerconfigurations/status,verbs=patch
// +kubebuilder:rbac:groups=nslifecycle.dev,resources=namespaceinitializersets,verbs=get;list;watch;create;update

// SetupWithManager registers the reconciler.
func (r *ConfigurationReconciler) SetupWithManager(mgr ctrl.Manager) error {
	everything := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: v1alpha1.EffectiveSetName}}}
	})
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	controllerBuilder := ctrl.NewControllerManagedBy(mgr).
		Named(configurationControllerName).
		Watches(&v1alpha1.NamespaceInitializerConfiguration{}, everything, changed).
		Watches(&v1alpha1.NamespaceInitializerSet{}, everything, changed).
		WatchesRawSource(startOnce()).
		WithOptions(controller.Options{RateLimiter: newRateLimiter(5 * time.Millisecond)})
	for _, object := range r.PolicyObjects {
		// The label that tells which guard it is changes no generation.
		controllerBuilder.Watches(object, everything, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{})))
	}
	return controllerBuilder.Complete(r)
}

// Reconcile writes the set and the statuses of all configurations.
func (r *ConfigurationReconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var configurations v1alpha1.NamespaceInitializerConfigurationList
	if err := r.List(ctx, &configurations); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the configurations: %w", err)
	}
	merged := initialization.Merge(configurations.Items)
	set, err := r.writeSet(ctx, merged)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	verdict, err := r.Policies.Verify(ctx, set)
	errs := []error{err}
	retryAfter := verdict.RetryAfter
	if verdict.Reason != "" {
		metrics.SetEffectiveSetStatus(verdict.Reason)
		var service *initialization.Service
		if r.Service != nil && len(configurations.Items) > 0 {
			service = ptr.To(r.Service.observe(ctx, configurations.Items))
			retryAfter = earlier(retryAfter, servedInterval)
		}
		for i := range configurations.Items {
			err := r.writeStatus(ctx, &configurations.Items[i], merged, verdict, service)
			if apierrors.IsConflict(err) {
				// The cache is behind. It will not ask again when it has caught up, since a
				// change of status alone makes no request.
				retryAfter = conflictRetry
				continue
			}
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: retryAfter}, nil
}

// writeSet makes the set what it should be and returns it. It replaces the set as a whole:
// an entry that somebody else has added must go.
func (r *ConfigurationReconciler) writeSet(
	ctx context.Context, merged initialization.Merged,
) (*v1alpha1.NamespaceInitializerSet, error) {
	set := &v1alpha1.NamespaceInitializerSet{}
	err := r.Get(ctx, client.ObjectKey{Name: v1alpha1.EffectiveSetName}, set)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading NamespaceInitializerSet %q: %w", v1alpha1.EffectiveSetName, err)
	}
	exists := err == nil
	wanted, err := r.Stamper.Stamp(ctx, merged.Initializers, set.Initializers)
	if err != nil {
		return nil, err
	}
	if exists && set.SystemNamespace == r.SystemNamespace &&
		apiequality.Semantic.DeepEqual(set.Initializers, wanted) {
		return set, nil
	}

	set.Initializers, set.SystemNamespace = wanted, r.SystemNamespace
	if exists {
		err = r.Update(ctx, set, client.FieldOwner(nswrite.FieldOwner))
	} else {
		set.Name = v1alpha1.EffectiveSetName
		err = r.Create(ctx, set, client.FieldOwner(nswrite.FieldOwner))
	}
	if err != nil {
		return nil, fmt.Errorf("writing NamespaceInitializerSet %q: %w", v1alpha1.EffectiveSetName, err)
	}
	log.FromContext(ctx).Info("Wrote the effective set", "initializers", initialization.Names(merged.Initializers),
		"leftOut", merged.LeftOut)
	return set, nil
}

// writeStatus sets the conditions of one configuration, if they change.
func (r *ConfigurationReconciler) writeStatus(
	ctx context.Context, configuration *v1alpha1.NamespaceInitializerConfiguration,
	merged initialization.Merged, verdict policyverifier.PolicyStatus, service *initialization.Service,
) error {
	if configuration.DeletionTimestamp != nil {
		return nil
	}
	base := configuration.DeepCopy()
	conditions := []metav1.Condition{
		initialization.ActiveCondition(configuration, merged, verdict.Reason, verdict.Message),
	}
	if service != nil {
		conditions = append(conditions, initialization.ServedCondition(configuration, *service))
	}
	hasChanged, words := false, []any{"configuration", configuration.Name}
	for _, condition := range conditions {
		condition.LastTransitionTime = metav1.NewTime(r.Clock.Now())
		condition.Message = nscondition.Message(condition.Message)
		hasChanged = meta.SetStatusCondition(&configuration.Status.Conditions, condition) || hasChanged
		words = append(words, strings.ToLower(condition.Type), condition.Status, // The keys are active and served.
			strings.ToLower(condition.Type)+"Reason", condition.Reason)
	}
	if !hasChanged {
		return nil
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, configuration, patch, client.FieldOwner(nswrite.FieldOwner)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing the status of configuration %q: %w", configuration.Name, err))
	}
	log.FromContext(ctx).Info("Configuration status changed", words...)
	return nil
}

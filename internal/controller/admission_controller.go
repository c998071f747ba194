// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/nslifecycle/nslifecycle/internal/mutation"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// PolicyVerifier makes the API server enforce a NamespaceInitializerSet, and verifies whether it does.
type PolicyVerifier interface {
	Verify(ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet) (policyverifier.PolicyStatus, error)
}

// AdmissionReconciler makes API servers enforce NamespaceInitializerSet/effective, and reports in its status
// whether they do. No other part of the operator writes admission policies and webhook configurations.
//
// Its permissions are those of package policyverifier.
type AdmissionReconciler struct {
	client.Client
	// Policies makes the API server enforce the set, and verifies it.
	Policies PolicyVerifier
	// Mutation is what Policies uses to make API servers inject.
	Mutation *mutation.Installer
	Clock    clock.PassiveClock
}

// SetupWithManager registers the reconciler.
func (r *AdmissionReconciler) SetupWithManager(mgr ctrl.Manager) error {
	everything := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{requestFor(internalv1alpha1.EffectiveSetName)}
	})
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	controllerBuilder := ctrl.NewControllerManagedBy(mgr).
		Named(admissionControllerName).
		Watches(&internalv1alpha1.NamespaceInitializerSet{}, everything, changed).
		WithOptions(controller.Options{RateLimiter: newRateLimiter(5 * time.Millisecond)})
	for _, object := range policyverifier.Objects() {
		controllerBuilder.Watches(object, everything, builder.WithPredicates(hasPolicyChanged))
	}
	started, err := controllerBuilder.Build(r)
	if err != nil {
		return err
	}
	r.Mutation.Watch = func(object client.Object) error {
		return watchMutation(mgr, started, object, everything, hasPolicyChanged)
	}
	return nil
}

// hasPolicyChanged ignores changes of the status. Labels identify policies, and do not change their generation.
var hasPolicyChanged = predicate.Or[client.Object](
	predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{})

// watchMutation watches the objects of package mutation, with a cache of their own: the cache of the manager must only
// contain types that every API server serves.
func watchMutation(
	mgr ctrl.Manager, started controller.Controller, object client.Object, eventHandler handler.EventHandler,
	predicates ...predicate.Predicate,
) error {
	objects, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{object: {Label: policyverifier.Selector()}},
	})
	if err != nil {
		return fmt.Errorf("failed to create a cache for %T: %w", object, err)
	}
	if err := mgr.Add(objects); err != nil {
		return err
	}
	return started.Watch(source.Kind(objects, object, eventHandler, predicates...))
}

// Reconcile writes the status of the set.
func (r *AdmissionReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	set := &internalv1alpha1.NamespaceInitializerSet{}
	if err := r.Get(ctx, request.NamespacedName, set); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	status, err := r.Policies.Verify(ctx, set)
	if status.Reason == "" {
		return ctrl.Result{}, err
	}
	conditions := []metav1.Condition{enforcedCondition(status)}
	protection, protectionErr := policyverifier.ProtectionCondition(ctx, r.Client)
	if protectionErr == nil {
		conditions = append(conditions, protection)
	}
	statusErr := r.writeStatus(ctx, set, status.IsAudited, conditions)
	if nsobject.IsConflict(statusErr) {
		// The cache is stale, and the predicate drops the watch events of status changes.
		status.RetryAfter, statusErr = conflictRetry, nil
	}
	if err := errors.Join(err, protectionErr, statusErr); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: status.RetryAfter}, nil
}

func enforcedCondition(status policyverifier.PolicyStatus) metav1.Condition {
	condition := metav1.Condition{
		Type: internalv1alpha1.ConditionEnforced, Status: metav1.ConditionFalse,
		Reason: status.Reason, Message: printable.Escape(status.Message),
	}
	if status.Reason == v1alpha1.ReasonEnforced {
		condition.Status = metav1.ConditionTrue
	}
	return condition
}

// writeStatus writes the status of the set if it has changed.
func (r *AdmissionReconciler) writeStatus(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, isAudited bool, conditions []metav1.Condition,
) error {
	enforcement := internalv1alpha1.EnforcementEnforce
	if isAudited {
		enforcement = internalv1alpha1.EnforcementAudit
	}
	base := set.DeepCopy()
	hasChanged := set.Status.ObservedGeneration != set.Generation || set.Status.Enforcement != enforcement
	for _, condition := range conditions {
		condition.ObservedGeneration, condition.LastTransitionTime = set.Generation, metav1.NewTime(r.Clock.Now())
		hasChanged = meta.SetStatusCondition(&set.Status.Conditions, condition) || hasChanged
	}
	if !hasChanged {
		return nil
	}
	set.Status.ObservedGeneration, set.Status.Enforcement = set.Generation, enforcement
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	switch err := r.Status().Patch(ctx, set, patch, client.FieldOwner(nsobject.FieldOwner)); {
	case nsobject.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("failed to update the status of NamespaceInitializerSet %q: %w", set.Name, err)
	}
	log.FromContext(ctx).Info("Updated the status of the effective set", "reason", conditions[0].Reason,
		"enforcement", enforcement)
	return nil
}

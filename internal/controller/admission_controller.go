// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	"github.com/nslifecycle/nslifecycle/internal/admission/install"
	"github.com/nslifecycle/nslifecycle/internal/admission/policies"
	"github.com/nslifecycle/nslifecycle/internal/admission/verify"
	"github.com/nslifecycle/nslifecycle/internal/admission/webhooks"
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// AdmissionReconciler makes API servers enforce NamespaceInitializerSet/effective, and reports in its status
// whether they do. No other part of the operator writes admission policies and webhook configurations.
//
// Its permissions are those of packages install and verify, and in config/webhook.
type AdmissionReconciler struct {
	client.Client
	Installer *install.Installer
	Verifier  *verify.Verifier
	Clock     clock.PassiveClock
	// Webhooks configure the controllers of the component config/webhook, which start when it is installed.
	Webhooks        webhooks.Options
	SystemNamespace string

	manager    *runningManager
	controller controller.Controller
	handler    handler.EventHandler
	// watched contains the types of which watches were started.
	watched map[string]bool
	// setupWebhooks adds the controllers of the component, unless it has.
	setupWebhooks func() error
}

// SetupWithManager registers the reconciler.
func (r *AdmissionReconciler) SetupWithManager(mgr ctrl.Manager) error {
	var err error
	if r.manager, err = newRunningManager(mgr); err != nil {
		return err
	}
	r.watched, r.setupWebhooks = map[string]bool{}, sync.OnceValue(r.setupWebhookConfigurations)
	r.handler = handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{requestFor(internalv1alpha1.EffectiveSetName)}
	})
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	controllerBuilder := ctrl.NewControllerManagedBy(mgr).
		Named(admissionControllerName).
		Watches(&internalv1alpha1.NamespaceInitializerSet{}, r.handler, changed).
		WithOptions(controller.Options{RateLimiter: newRateLimiter(5 * time.Millisecond)})
	for _, object := range policies.Objects() {
		controllerBuilder.Watches(object, r.handler, builder.WithPredicates(hasPolicyChanged))
	}
	r.controller, err = controllerBuilder.Build(r)
	return err
}

// hasPolicyChanged ignores changes of the status. Labels identify policies, and do not change their generation.
var hasPolicyChanged = predicate.Or[client.Object](
	predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{})

// startWatches watches the types that the API server serves and the installation permits to read, and starts the
// controllers of the component config/webhook if it is installed.
func (r *AdmissionReconciler) startWatches(installed *install.Result) error {
	for _, object := range installed.Readable {
		kind := fmt.Sprintf("%T", object)
		if r.watched[kind] {
			continue
		}
		if err := r.watch(object); err != nil {
			return fmt.Errorf("failed to watch %s: %w", kind, err)
		}
		r.watched[kind] = true
	}
	if !installed.HasWebhooks {
		return nil
	}
	return r.setupWebhooks()
}

// watch watches the objects of a type, with a cache of their own: the cache of the manager must only contain types that
// every API server serves.
func (r *AdmissionReconciler) watch(object client.Object) error {
	objects, err := cache.New(r.manager.GetConfig(), cache.Options{
		Scheme: r.manager.GetScheme(), Mapper: r.manager.GetRESTMapper(), HTTPClient: r.manager.GetHTTPClient(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{object: {Label: policies.Selector()}},
	})
	if err != nil {
		return fmt.Errorf("failed to create a cache: %w", err)
	}
	if err := r.manager.Add(objects); err != nil {
		return err
	}
	return r.controller.Watch(source.Kind(objects, object, r.handler, hasPolicyChanged))
}

// setupWebhookConfigurations adds the controllers that set the address and the certificate of the webhooks, and what
// the hold webhooks select.
func (r *AdmissionReconciler) setupWebhookConfigurations() error {
	reconcilers := []interface{ SetupWithManager(ctrl.Manager) error }{
		&HoldReconciler{Client: r.Client, URL: r.Webhooks.URL},
	}
	if r.Webhooks.URL != "" {
		reconcilers = append(reconcilers, &TemplateWebhookReconciler{Client: r.Client, URL: r.Webhooks.URL})
	}
	for _, reconciler := range reconcilers {
		if err := reconciler.SetupWithManager(r.manager); err != nil {
			return fmt.Errorf("failed to set up %T: %w", reconciler, err)
		}
	}
	return webhooks.RotateCertificate(r.manager, r.Webhooks, r.SystemNamespace)
}

// Reconcile makes the API server enforce the set, and writes the status of the set.
func (r *AdmissionReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	set := &internalv1alpha1.NamespaceInitializerSet{}
	if err := r.Get(ctx, request.NamespacedName, set); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	installed, installErr := r.Installer.Install(ctx, set)
	watchErr := r.startWatches(&installed)
	status, err := r.enforce(ctx, set, &installed, installErr)
	return r.publish(ctx, set, status, installed.ProtectionCondition(), errors.Join(err, watchErr))
}

// enforce verifies what is installed, unless the installation failed, and then sets the failure policies.
func (r *AdmissionReconciler) enforce(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, installed *install.Result, installErr error,
) (verify.Status, error) {
	if installErr != nil {
		return verify.NotInstalled(&installed.Installed, installErr), errors.Join(installErr, installed.Err)
	}
	status, err := r.Verifier.Verify(ctx, set, &installed.Installed)
	if err == nil {
		err = r.Installer.SetFail(ctx, installed, &status)
	}
	if status.Reason != "" && installed.Unauthorized != "" {
		status.Message += installed.Unauthorized
		status.RetryWithin(verify.UnconfirmedRetryInterval)
	}
	return status, errors.Join(err, installed.Err)
}

// publish writes the status of the set, and returns the error of the verification. Without a reason, it writes nothing.
func (r *AdmissionReconciler) publish(
	ctx context.Context, set *internalv1alpha1.NamespaceInitializerSet, status verify.Status,
	protection metav1.Condition, err error,
) (ctrl.Result, error) {
	if status.Reason == "" {
		return ctrl.Result{}, err
	}
	conditions := []metav1.Condition{enforcedCondition(status), protection}
	statusErr := r.writeStatus(ctx, set, status.IsAudited, conditions)
	if nsobject.IsConflict(statusErr) {
		// The cache is stale, and the predicate drops the watch events of status changes.
		status.RetryAfter, statusErr = conflictRetry, nil
	}
	if err := errors.Join(err, statusErr); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: status.RetryAfter}, nil
}

func enforcedCondition(status verify.Status) metav1.Condition {
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

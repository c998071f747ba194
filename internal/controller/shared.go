// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/nscache"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
)

// Names of the reconcilers, in logs and metrics.
const (
	admissionControllerName              = "admission"
	configurationControllerName          = "initializer-configuration"
	namespaceControllerName              = "namespace-initialization"
	finalizationControllerName           = "namespace-finalization"
	diagnosisControllerName              = "namespace-diagnosis"
	holdControllerName                   = "hold-webhooks"
	templateControllerName               = "namespace-template"
	templateInitializationControllerName = "template-initialization"
	templatedNamespaceControllerName     = "templated-namespace"
	templateWebhookControllerName        = "template-webhook"
)

const (
	// firstRetryDelay is the delay after the first error, unless a reconciler sets a different one.
	firstRetryDelay = 200 * time.Millisecond
	// maxRetryDelay is the longest delay after errors, as in the namespace controller of
	// kube-controller-manager. With controller-runtime's default, the delay grows to 1000 s.
	maxRetryDelay = 60 * time.Second
	// conflictRetry is the delay after a write to an object that has changed. It gives the cache time to receive the
	// other write.
	conflictRetry = 100 * time.Millisecond
)

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// newRateLimiter returns a rate limiter that starts with the given delay and doubles it after each
// error, up to maxRetryDelay.
func newRateLimiter(first time.Duration) workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, maxRetryDelay)
}

// untilStopped returns a reconciler that ignores errors after the manager has begun to stop. It cancels the requests in
// progress, and the next leader reconciles all objects.
func untilStopped(reconciler reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		result, err := reconciler.Reconcile(ctx, req)
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctrl.Result{}, nil
		}
		return result, err
	})
}

// actionReport is the action of Events about a rejected report of the progress of an initialization.
const actionReport = "Report"

// recordRejectedWrite records an Event if a rule rejects a write to a Namespace: its conditions cannot show the reason.
func recordRejectedWrite(recorder events.EventRecorder, namespace *corev1.Namespace, action string, err error) {
	if err == nil || !apierrors.IsForbidden(err) && !denial.IsFromAdmission(err.Error()) {
		return
	}
	nsobject.RecordEvent(recorder, namespace, corev1.EventTypeWarning, v1alpha1.ReasonWriteRejected, action,
		denial.Message(err, nsobject.MaxEventNote))
}

// retryStale converts the error of a write to a reconcile result. If the object has changed or was deleted since it was
// read, it requeues the request: a predicate may drop the event of the other write, such as a label change, and this
// request may have replaced one that was queued for a timeout.
func retryStale(err error) (ctrl.Result, error) {
	if err != nil && nsobject.IgnoreStale(err) == nil {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	return ctrl.Result{}, err
}

// cacheCheck is a check of the cache by generations.
type cacheCheck struct {
	nscache.Check
}

// errOutdated is a conflict, so that the reconciliation is repeated and not reported as an error.
var errOutdated = apierrors.NewConflict(schema.GroupResource{}, "cache", errors.New("the cache lacks changes"))

// verify returns errOutdated until the cache is current. The lists are empty.
func (c *cacheCheck) verify(ctx context.Context, cached, live client.Reader, lists ...client.ObjectList) error {
	isCurrent, err := c.IsCurrent(ctx, cached, live, client.Object.GetGeneration, lists...)
	if err == nil && !isCurrent {
		return errOutdated
	}
	return err
}

// setConditions sets conditions of an object, and removes ConditionStalled unless it is wanted. The list can also
// contain conditions of other controllers.
func setConditions(conditions *[]metav1.Condition, wanted []metav1.Condition, generation int64, now time.Time) {
	*conditions = slices.Clone(*conditions)
	if meta.FindStatusCondition(wanted, v1alpha1.ConditionStalled) == nil {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionStalled)
	}
	for _, condition := range wanted {
		condition.ObservedGeneration, condition.LastTransitionTime = generation, metav1.NewTime(now)
		meta.SetStatusCondition(conditions, condition)
	}
}

// handlerFor returns an event handler that calls handle with the created, updated or deleted object. After a
// watch was interrupted, one update event can replace an object by a new one with the same name.
func handlerFor(
	handle func(ctx context.Context, object client.Object, isDeleted bool, queue requestQueue),
) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue requestQueue) {
			handle(ctx, e.Object, false, queue)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue requestQueue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				handle(ctx, e.ObjectOld, true, queue)
			}
			handle(ctx, e.ObjectNew, false, queue)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue requestQueue) {
			handle(ctx, e.Object, true, queue)
		},
	}
}

// requestFor returns the request for a cluster-scoped object.
func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

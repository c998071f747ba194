// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/expiry"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nscondition"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
)

const (
	actionExpire = "Expire"

	// noticeableSkew is how far two clocks may be apart before it is said.
	noticeableSkew = time.Minute
)

// ExpiryReconciler deletes every Namespace at the time that was set for it, after a warning.
type ExpiryReconciler struct {
	client.Client
	// Live reads from the API server instead of a cache, and notes the time there.
	Live     client.Reader
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// SystemNamespace is the namespace that the operator is installed in, OwnNamespace the one
	// that this very program runs in, if any. Neither is ever deleted.
	SystemNamespace, OwnNamespace string
	// IsDryRun keeps it from deleting anything.
	IsDryRun bool

	// refused is until when a Namespace, by its name, is left alone after a refused deletion.
	refused map[string]time.Time
}

// It reads the policies, reads and deletes namespaces and writes their conditions with the
// rights of initialization.

// SetupWithManager registers the reconciler.
func (r *ExpiryReconciler) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(r.allExpiring)
	isExpiryPolicy := builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetLabels()[v1alpha1.LabelPolicy] == v1alpha1.PolicyExpiry
	}))
	return ctrl.NewControllerManagedBy(mgr).
		Named(expiryControllerName).
		For(&corev1.Namespace{}, builder.WithPredicates(predicate.NewPredicateFuncs(mayExpire))).
		Watches(&admissionv1.ValidatingAdmissionPolicy{}, all, isExpiryPolicy).
		Watches(&admissionv1.ValidatingAdmissionPolicyBinding{}, all, isExpiryPolicy).
		// One worker: refused is not locked.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: newRateLimiter(firstRetryDelay)}).
		Complete(r)
}

// Reconcile does what is to be done about one Namespace. The cache tells no more than that
// there is something to do: it may be behind, and not know that the time was put off.
func (r *ExpiryReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var namespace corev1.Namespace
	if err := r.Get(ctx, req.NamespacedName, &namespace); err != nil {
		if apierrors.IsNotFound(err) {
			delete(r.refused, req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	now := r.Clock.Now()
	decision, err := r.decide(ctx, r.Client, &namespace, clocks{now, now})
	if err != nil || decision.IsIdle() {
		return ctrl.Result{RequeueAfter: decision.Wait}, err
	}
	// The refusal is written to the Namespace, which comes back here as an event. Where its
	// text is another one each time, that would go round without a rest.
	if left := r.refused[req.Name].Sub(now); decision.ShouldDelete && left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}

	live, serverTime, err := r.readLive(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	decision, err = r.decide(ctx, r.Live, live, r.compare(ctx, now, serverTime))
	if err != nil {
		return ctrl.Result{}, err
	}
	if decision.ShouldDelete {
		return r.deleteExpired(ctx, live, decision)
	}
	return ctrl.Result{RequeueAfter: decision.Wait}, nswrite.IgnoreStale(r.tell(ctx, live, decision))
}

// decide says what is to be done about a Namespace, with the policies as a reader knows them.
func (r *ExpiryReconciler) decide(
	ctx context.Context, reader client.Reader, namespace *corev1.Namespace, now clocks,
) (expiry.Decision, error) {
	given := expiry.Circumstances{
		Now: now.earlier, Latest: now.later, IsDryRun: r.IsDryRun,
		IsExempt: initialization.IsExempt(namespace.Name, r.SystemNamespace) || namespace.Name == r.OwnNamespace,
	}
	if expiry.Has(namespace) && namespace.DeletionTimestamp == nil {
		enforced, err := policyverifier.IsExpiryEnforced(ctx, reader)
		if err != nil {
			return expiry.Decision{}, err
		}
		if !enforced {
			given.PolicyProblem = policyverifier.MsgExpiryNotEnforced
		}
	}
	return expiry.Decide(namespace, given), nil
}

// readLive reads a Namespace from the API server, and the time there.
func (r *ExpiryReconciler) readLive(
	ctx context.Context, key client.ObjectKey,
) (*corev1.Namespace, time.Time, error) {
	namespace := &corev1.Namespace{}
	dated, serverTime := servertime.Record(ctx)
	if err := r.Live.Get(dated, key, namespace); err != nil {
		return nil, time.Time{}, err
	}
	if serverTime.IsZero() {
		return nil, time.Time{}, errors.New("the API server does not say what time it is there, " +
			"and by the clock of one machine alone no namespace is deleted")
	}
	return namespace, *serverTime, nil
}

// clocks are what two clocks show at the same time.
type clocks struct{ earlier, later time.Time }

// compare puts two times in order, so that a clock that is wrong deletes nothing too early:
// not the one here, and not the one of the API server.
func (r *ExpiryReconciler) compare(ctx context.Context, here, there time.Time) clocks {
	if skew := here.Sub(there); skew.Abs() > noticeableSkew {
		log.FromContext(ctx).Info("The clocks here and of the API server differ; deletions go by the earlier one, "+
			"and warnings by the later one", "here", here.UTC(), "there", there.UTC())
	}
	if there.Before(here) {
		return clocks{earlier: there, later: here}
	}
	return clocks{earlier: here, later: there}
}

// tell writes a condition and then records the Event about it.
func (r *ExpiryReconciler) tell(
	ctx context.Context, namespace *corev1.Namespace, decision expiry.Decision,
) error {
	if decision.Condition == nil {
		return nil
	}
	before, condition := namespace.DeepCopy(), *decision.Condition
	if err := nswrite.PatchConditions(ctx, r.Client, namespace, []corev1.NamespaceCondition{condition}); err != nil {
		return err
	}
	log.FromContext(ctx).Info("The expiry of a namespace has changed", "reason", condition.Reason,
		"message", condition.Message)
	if decision.EventType != "" {
		nswrite.RecordEvent(r.Recorder, before, decision.EventType, condition.Reason, actionExpire, condition.Message)
	}
	return nil
}

// deleteExpired deletes a Namespace, if it is still as it was read from the API server.
func (r *ExpiryReconciler) deleteExpired(
	ctx context.Context, namespace *corev1.Namespace, decision expiry.Decision,
) (ctrl.Result, error) {
	err := r.Delete(ctx, namespace, client.Preconditions{
		UID: &namespace.UID, ResourceVersion: &namespace.ResourceVersion,
	})
	switch {
	case apierrors.IsConflict(err):
		// Not every change of a Namespace comes back as an event that mayExpire lets through.
		return ctrl.Result{RequeueAfter: firstRetryDelay}, nil
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case policyverifier.IsRefusal(err):
		log.FromContext(ctx).Info("The API server refuses to delete an expired namespace", "error", err.Error(),
			"next", decision.Wait.String())
		if r.refused == nil {
			r.refused = map[string]time.Time{}
		}
		r.refused[namespace.Name] = r.Clock.Now().Add(decision.Wait)
		return ctrl.Result{RequeueAfter: decision.Wait},
			nswrite.IgnoreStale(r.tell(ctx, namespace, expiry.Refused(namespace, err)))
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("deleting namespace %q, which has expired: %w", namespace.Name, err)
	}
	expires, _ := expiry.Read(namespace) // It was read before, to decide.
	log.FromContext(ctx).Info("Deleted an expired namespace", "uid", namespace.UID, "expiry", expires.String())
	nswrite.RecordEvent(r.Recorder, namespace, corev1.EventTypeNormal, "Expired", actionExpire,
		fmt.Sprintf("the namespace has expired (%s) and is deleted", expires))
	return ctrl.Result{}, nil
}

// allExpiring asks for all Namespaces that may expire: the policy concerns each of them.
func (r *ExpiryReconciler) allExpiring(ctx context.Context, _ client.Object) []reconcile.Request {
	var namespaces corev1.NamespaceList
	if err := r.List(ctx, &namespaces); err != nil {
		log.FromContext(ctx).Error(err, "Could not list the namespaces that may expire")
		return nil
	}
	var requests []reconcile.Request
	for i := range namespaces.Items {
		if mayExpire(&namespaces.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&namespaces.Items[i])})
		}
	}
	return requests
}

// mayExpire lets the Namespaces pass that are to expire, and those that say so although
// they are not any more.
func mayExpire(object client.Object) bool {
	namespace, isNamespace := object.(*corev1.Namespace)
	return !isNamespace || expiry.Has(namespace) ||
		nscondition.Find(namespace, v1alpha1.ConditionExpiring) != nil
}

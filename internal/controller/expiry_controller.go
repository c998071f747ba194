// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	internalv1alpha1 "github.com/nslifecycle/nslifecycle/internal/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/expiry"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/policyverifier"
	"github.com/nslifecycle/nslifecycle/internal/servertime"
)

const (
	actionExpire = "Expire"
	eventExpired = "Expired"
	noteExpired  = "The namespace expired (%s) and was deleted"

	// maxClockSkew is the clock skew above which the reconciler logs a message.
	maxClockSkew = time.Minute
)

// errNoServerTime is returned because the reconciler must not rely on the local clock alone.
var errNoServerTime = errors.New("the API server's response has no valid Date header, which is required to delete " +
	"expired namespaces")

// ExpiryReconciler deletes Namespaces at the time set in their annotations, after a warning. It needs
// no permissions beyond those of NamespaceReconciler.
type ExpiryReconciler struct {
	client.Client
	// Live reads from the API server instead of a cache, and records the API server's time.
	Live     client.Reader
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Exempt are the names of the Namespaces that are exempt from initialization. OwnNamespace is the namespace that
	// this process runs in, if any. The reconciler deletes none of them.
	Exempt       []string
	OwnNamespace string
	// IsDryRun disables all deletions.
	IsDryRun bool

	// nextAttempt contains, by namespace name, when to retry a deletion that the API server rejected.
	nextAttempt map[string]time.Time
}

// Package policyverifier reads the policies.
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=list;watch

// SetupWithManager registers the reconciler.
func (r *ExpiryReconciler) SetupWithManager(mgr ctrl.Manager) error {
	enqueueAll := handler.EnqueueRequestsFromMapFunc(r.listRequests)
	isExpiryPolicy := builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetLabels()[internalv1alpha1.LabelPolicy] == internalv1alpha1.PolicyExpiry
	}))
	return ctrl.NewControllerManagedBy(mgr).
		Named(expiryControllerName).
		For(&corev1.Namespace{}, builder.WithPredicates(predicate.NewPredicateFuncs(mayExpire))).
		Watches(&admissionv1.ValidatingAdmissionPolicy{}, enqueueAll, isExpiryPolicy).
		Watches(&admissionv1.ValidatingAdmissionPolicyBinding{}, enqueueAll, isExpiryPolicy).
		// Access to nextAttempt is not synchronized.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: newRateLimiter(firstRetryDelay)}).
		Complete(untilStopped(r))
}

// Reconcile first uses the cached Namespace to decide whether an action is necessary. It then
// decides again with the Namespace from the API server, because a stale cache might not contain an
// extension of the expiry.
func (r *ExpiryReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var namespace corev1.Namespace
	if err := r.Get(ctx, req.NamespacedName, &namespace); err != nil {
		if apierrors.IsNotFound(err) {
			delete(r.nextAttempt, req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	now := r.Clock.Now()
	decision, err := r.decide(ctx, r.Client, &namespace, clockRange{now, now})
	if err != nil || decision.IsIdle() {
		return ctrl.Result{RequeueAfter: decision.RequeueAfter}, err
	}
	// Writing the condition that reports the rejection triggers a watch event. Without this check, the
	// reconciler would retry without a delay if each rejection had a different text.
	if left := r.nextAttempt[req.Name].Sub(now); decision.ShouldDelete && left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}

	live, serverTime, err := r.readLive(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	clocks := computeClockRange(ctx, now, serverTime)
	decision, err = r.decide(ctx, r.Live, live, clocks)
	if err != nil {
		return ctrl.Result{}, err
	}
	if decision.ShouldDelete {
		return r.deleteExpired(ctx, live, decision, clocks.earlier)
	}
	if err := r.writeCondition(ctx, live, decision); err != nil {
		return retryStale(err)
	}
	return ctrl.Result{RequeueAfter: decision.RequeueAfter}, nil
}

// decide computes the decision for a Namespace, based on the policies that the reader returns.
func (r *ExpiryReconciler) decide(
	ctx context.Context, reader client.Reader, namespace *corev1.Namespace, now clockRange,
) (expiry.Decision, error) {
	input := expiry.Input{
		Now: now.earlier, Latest: now.later, IsDryRun: r.IsDryRun,
		IsExempt: slices.Contains(r.Exempt, namespace.Name) || namespace.Name == r.OwnNamespace,
	}
	if expiry.IsSet(namespace) && namespace.DeletionTimestamp == nil {
		enforced, err := policyverifier.IsExpiryEnforced(ctx, reader)
		if err != nil {
			return expiry.Decision{}, err
		}
		if !enforced {
			input.PolicyProblem = policyverifier.MsgExpiryNotEnforced
		}
	}
	return expiry.Decide(namespace, input), nil
}

// readLive reads a Namespace from the API server. It returns the Namespace and the API server's time.
func (r *ExpiryReconciler) readLive(
	ctx context.Context, key client.ObjectKey,
) (*corev1.Namespace, time.Time, error) {
	namespace := &corev1.Namespace{}
	recordingCtx, serverTime := servertime.Record(ctx)
	if err := r.Live.Get(recordingCtx, key, namespace); err != nil {
		return nil, time.Time{}, err
	}
	if serverTime.IsZero() {
		return nil, time.Time{}, errNoServerTime
	}
	return namespace, *serverTime, nil
}

// clockRange is the current time according to two clocks.
type clockRange struct{ earlier, later time.Time }

// computeClockRange sorts the times of the operator and the API server. Deletions depend on the earlier
// time, so that a single wrong clock does not cause an early deletion.
func computeClockRange(ctx context.Context, local, server time.Time) clockRange {
	if skew := local.Sub(server); skew.Abs() > maxClockSkew {
		log.FromContext(ctx).Info("The clocks of the operator and the API server differ; using the earlier time for "+
			"deletions and the later time for warnings", "localTime", local.UTC(), "serverTime", server.UTC())
	}
	if server.Before(local) {
		return clockRange{earlier: server, later: local}
	}
	return clockRange{earlier: local, later: server}
}

// writeCondition writes the condition and the record of a decision in one request, and then records its Event.
func (r *ExpiryReconciler) writeCondition(
	ctx context.Context, namespace *corev1.Namespace, decision expiry.Decision,
) error {
	if decision.Condition == nil {
		return nil
	}
	before, condition := namespace.DeepCopy(), *decision.Condition
	conditions := []corev1.NamespaceCondition{condition}
	if outdated := expiry.ComputeNotExpired(namespace, r.Clock.Now()); outdated != nil {
		conditions = append(conditions, *outdated)
	}
	var annotations map[string]string
	if decision.WarnedAt != nil {
		annotations = map[string]string{v1alpha1.AnnotationExpiryWarnedAt: *decision.WarnedAt}
	}
	if err := nsobject.PatchAnnotations(ctx, r.Client, namespace, "", annotations, conditions); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Updated the condition of an expiring namespace", "reason", condition.Reason,
		"message", condition.Message)
	if decision.EventType != "" {
		nsobject.RecordEvent(r.Recorder, before, decision.EventType, condition.Reason, actionExpire, condition.Message)
	}
	return nil
}

// recordAndDelete records that a Namespace has expired and deletes it, unless the Namespace has changed since it was
// read. The API server denies the deletion without the record (config/confine).
func (r *ExpiryReconciler) recordAndDelete(ctx context.Context, namespace *corev1.Namespace, now time.Time) error {
	if expired := expiry.ComputeExpired(namespace, now); expired != nil {
		err := nsobject.PatchConditions(ctx, r.Client, namespace, []corev1.NamespaceCondition{*expired},
			namespace.ResourceVersion)
		if err != nil {
			return err
		}
	}
	return deleteNamespace(ctx, r.Client, namespace, client.Preconditions{
		UID: &namespace.UID, ResourceVersion: &namespace.ResourceVersion,
	})
}

// deleteExpired deletes a Namespace unless the Namespace has changed since it was read.
func (r *ExpiryReconciler) deleteExpired(
	ctx context.Context, namespace *corev1.Namespace, decision expiry.Decision, now time.Time,
) (ctrl.Result, error) {
	err := r.recordAndDelete(ctx, namespace, now)
	switch {
	// An admission webhook can deny the request with any code.
	case policyverifier.IsRefusal(err), errors.Is(err, context.DeadlineExceeded),
		err != nil && denial.IsFromAdmission(err.Error()):
		log.FromContext(ctx).Info("The API server refused to delete an expired namespace", "error", err.Error(),
			"retryAfter", decision.RequeueAfter.String())
		if r.nextAttempt == nil {
			r.nextAttempt = map[string]time.Time{}
		}
		r.nextAttempt[namespace.Name] = r.Clock.Now().Add(decision.RequeueAfter)
		return ctrl.Result{RequeueAfter: decision.RequeueAfter},
			nsobject.IgnoreStale(r.writeCondition(ctx, namespace, expiry.DecideRefused(namespace, err)))
	case err != nil:
		return retryStale(fmt.Errorf("failed to delete expired namespace %q: %w", namespace.Name, err))
	}
	expires, _ := expiry.Parse(namespace) // A Namespace with an invalid expiry is not deleted.
	log.FromContext(ctx).Info("Deleted an expired namespace", "uid", namespace.UID, "expiry", expires.String())
	nsobject.RecordEvent(r.Recorder, namespace, corev1.EventTypeNormal, eventExpired, actionExpire,
		fmt.Sprintf(noteExpired, expires))
	return ctrl.Result{}, nil
}

// listRequests returns a request for each Namespace that may expire.
func (r *ExpiryReconciler) listRequests(ctx context.Context, _ client.Object) []reconcile.Request {
	var namespaces corev1.NamespaceList
	if err := r.List(ctx, &namespaces); err != nil {
		log.FromContext(ctx).Error(err, "Failed to list the namespaces that may expire")
		return nil
	}
	var requests []reconcile.Request
	for i := range namespaces.Items {
		if mayExpire(&namespaces.Items[i]) {
			requests = append(requests, requestFor(namespaces.Items[i].Name))
		}
	}
	return requests
}

// mayExpire reports whether a Namespace has an expiry annotation, or an Expiring condition, which may be
// outdated.
func mayExpire(object client.Object) bool {
	namespace, ok := object.(*corev1.Namespace)
	return !ok || expiry.IsSet(namespace) || nsobject.FindCondition(namespace, v1alpha1.ConditionExpiring) != nil
}

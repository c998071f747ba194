// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
	"github.com/nslifecycle/nslifecycle/internal/initialization"
	"github.com/nslifecycle/nslifecycle/internal/nswrite"
	"github.com/nslifecycle/nslifecycle/internal/protection"
)

const actionInitialize = "Initialize"

// ProgressInterval is short for a user who watches a Namespace, and long compared to the duration of a
// fast initializer.
const ProgressInterval = 200 * time.Millisecond

// NamespaceReconciler keeps the conditions of every Namespace in step with its list
// of pending initializers, and deletes a Namespace whose initialization failed.
type NamespaceReconciler struct {
	client.Client
	// Live reads from the API server and not from a cache.
	Live     client.Reader
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// SystemNamespace is the namespace that the operator runs in; it is never deleted.
	SystemNamespace string
	// Workers is the number of Namespaces worked on at a time; 1 if unset.
	Workers int
	// ProgressInterval is the least time between two writes that say which initializer is waited
	// for. That one is waited for at all, and the end, are written at once.
	ProgressInterval time.Duration

	// Injector adds the pending list to new Namespaces if the API server does not.
	Injector Injector
	// Overruler goes on without initializers that take too long or are registered no more; nil
	// if nobody does.
	Overruler *Overruler

	births births
}

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=namespaces/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch;update

// SetupWithManager registers the reconciler.
func (r *NamespaceReconciler) SetupWithManager(mgr ctrl.Manager) error {
	controllerBuilder := ctrl.NewControllerManagedBy(mgr).
		Named(namespaceControllerName).
		// No GenerationChangedPredicate: a Namespace has no generation.
		For(&corev1.Namespace{}, builder.WithPredicates(initializationChanged())).
		Watches(&corev1.Namespace{}, r.births.handler(r.Clock)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.Workers, RateLimiter: newRateLimiter(5 * time.Millisecond),
		})
	if r.Overruler != nil {
		controllerBuilder.Watches(&v1alpha1.NamespaceInitializerConfiguration{}, r.Overruler.handler(),
			builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	return controllerBuilder.Complete(r)
}

// Reconcile brings the conditions of one Namespace up to date.
func (r *NamespaceReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var namespace corev1.Namespace
	if err := r.Get(ctx, req.NamespacedName, &namespace); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if namespace.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}

	if retryAfter, err := r.Injector.Inject(ctx, &namespace); err != nil || retryAfter > 0 {
		return ctrl.Result{RequeueAfter: retryAfter}, nswrite.IgnoreStale(err)
	}
	state := initialization.Observe(&namespace)
	if state.Repair != nil {
		// What this changes comes back as a watch event.
		return ctrl.Result{}, nswrite.IgnoreStale(r.repairLabel(ctx, &namespace, *state.Repair))
	}
	if retryAfter, err := r.writeConditions(ctx, &namespace); err != nil || retryAfter > 0 {
		return ctrl.Result{RequeueAfter: retryAfter}, nswrite.IgnoreStale(err)
	}
	if state.Stage == initialization.StageFailed {
		return ctrl.Result{}, nswrite.IgnoreStale(r.deleteFailed(ctx, &namespace))
	}
	after, err := r.Overruler.Overrule(ctx, &namespace, state)
	return ctrl.Result{RequeueAfter: after}, err
}

// writeConditions writes the conditions that have to change, and records Events about the change.
// It returns when to retry if no watch event will trigger that.
func (r *NamespaceReconciler) writeConditions(
	ctx context.Context, seen *corev1.Namespace,
) (retryAfter time.Duration, err error) {
	err = nswrite.RetryOnConflict(ctx, r.Live, seen, func(namespace *corev1.Namespace, resourceVersion string) error {
		state := initialization.Observe(namespace)
		if namespace.DeletionTimestamp != nil || state.Repair != nil {
			return nil // The watch event of this state is still to come.
		}
		changed := initialization.ComputeConditions(namespace, state, metav1.NewTime(r.Clock.Now()))
		turn, err := r.Overruler.Turn(ctx, namespace, state)
		if err != nil {
			return err
		}
		if turn != nil {
			changed = append(changed, *turn)
		}
		if len(changed) == 0 {
			return nil
		}
		isProgress := state.Stage == initialization.StagePending
		// Time-outs are counted from the condition InitializerTurn.
		if isProgress && turn == nil && initialization.IsInitializing(namespace) {
			retryAfter = r.births.untilProgress(namespace.UID, r.Clock.Now(), r.ProgressInterval)
			if retryAfter > 0 {
				return nil
			}
		}
		before := namespace.DeepCopy()
		// With the resource version, so that a stale cache does not lead to a second report. After a
		// conflict the caller requeues: the predicate may drop the watch event of the other write, and
		// this request has replaced the one that was queued for the end of a time-out.
		if err := nswrite.PatchConditions(ctx, r.Client, namespace, changed, resourceVersion); err != nil {
			return err
		}
		if isProgress {
			r.births.wroteProgress(namespace.UID, r.Clock.Now())
		}
		r.recordEvents(ctx, before, changed, state)
		return nil
	})
	if apierrors.IsConflict(err) {
		return conflictRetry, nil
	}
	return retryAfter, err
}

// repairLabel makes the label agree with the list. They disagree only where
// somebody edited them while the admission policies were away.
func (r *NamespaceReconciler) repairLabel(ctx context.Context, namespace *corev1.Namespace, want string) error {
	base := namespace.DeepCopy()
	namespace.Labels = maps.Clone(namespace.Labels)
	note := "Set label %[1]s to %[2]q again: initializers are pending"
	if want == "" {
		delete(namespace.Labels, v1alpha1.LabelInitializing)
		// A list of nothing but blanks goes too, and with it a result that no longer counts:
		// guard refuses to let the label go alone.
		namespace.Annotations = maps.Clone(namespace.Annotations)
		delete(namespace.Annotations, v1alpha1.AnnotationPendingInitializers)
		delete(namespace.Annotations, v1alpha1.AnnotationInitializationResult)
		note = "Removed label %[1]s: no initializer is pending, and the label alone would keep the namespace shut for ever"
	} else {
		if namespace.Labels == nil {
			namespace.Labels = map[string]string{}
		}
		namespace.Labels[v1alpha1.LabelInitializing] = want
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Patch(ctx, namespace, patch, client.FieldOwner(nswrite.FieldOwner)); err != nil {
		return fmt.Errorf("repairing label %s of namespace %q: %w", v1alpha1.LabelInitializing, namespace.Name, err)
	}
	if _, isInjected := base.Annotations[v1alpha1.AnnotationInjectedAt]; isInjected && want == "" {
		// Nothing is wrong: without policy complete this is how every initialization ends.
		log.FromContext(ctx).Info("Opened a namespace, whose list has become empty")
		return nil
	}
	note = fmt.Sprintf(note, v1alpha1.LabelInitializing, want)
	log.FromContext(ctx).Info("Repaired a namespace whose label disagreed with its list", "note", note)
	nswrite.RecordEvent(r.Recorder, base, corev1.EventTypeWarning, "InitializationRepaired", "Repair", note)
	return nil
}

// deleteFailed deletes a Namespace whose initialization has failed. Its conditions say so already.
func (r *NamespaceReconciler) deleteFailed(ctx context.Context, seen *corev1.Namespace) error {
	return nswrite.RetryOnConflict(ctx, r.Live, seen, func(namespace *corev1.Namespace, resourceVersion string) error {
		if namespace.DeletionTimestamp != nil {
			return nil
		}
		state := initialization.Observe(namespace)
		if why := initialization.WhyNotDelete(namespace, state, r.SystemNamespace); why != "" {
			log.FromContext(ctx).Info("Not deleting a namespace with a failure result", "why", why)
			return nil
		}
		preconditions := client.Preconditions{UID: &namespace.UID}
		if resourceVersion != "" {
			preconditions.ResourceVersion = &resourceVersion
		}
		if err := r.Delete(ctx, namespace, preconditions); err != nil {
			return fmt.Errorf("deleting namespace %q, whose initialization failed: %w", namespace.Name, err)
		}
		log.FromContext(ctx).Info("Deleted a namespace whose initialization failed", "uid", namespace.UID)
		return nil
	})
}

// recordEvents tells what the written conditions have changed; namespace is as it was
// before.
func (r *NamespaceReconciler) recordEvents(
	ctx context.Context, namespace *corev1.Namespace, changed []corev1.NamespaceCondition, state initialization.State,
) {
	for _, condition := range changed {
		if condition.Type != v1alpha1.ConditionInitializing {
			continue
		}
		log.FromContext(ctx).Info("Initialization has moved on", "uid", namespace.UID, "reason", condition.Reason,
			"message", condition.Message, "pending", state.Pending)
		switch condition.Reason {
		case v1alpha1.ReasonPending:
			if state.ResultProblem != "" {
				r.event(namespace, corev1.EventTypeWarning, "InvalidInitializationResult", state.ResultProblem)
				continue
			}
			if !initialization.IsInitializing(namespace) {
				r.event(namespace, corev1.EventTypeNormal, "Initializing", condition.Message)
			}
		case v1alpha1.ReasonCompleted:
			r.event(namespace, corev1.EventTypeNormal, "Initialized", condition.Message)
		case v1alpha1.ReasonFailed:
			outcome := "; the namespace is deleted"
			if why := initialization.WhyNotDelete(namespace, state, r.SystemNamespace); why != "" {
				outcome = "; the namespace is not deleted: " + why
			}
			if protection.IsProtected(namespace) { // The message says so already.
				outcome = ""
			}
			r.event(namespace, corev1.EventTypeWarning, "InitializationFailed", condition.Message+outcome)
		}
	}
}

func (r *NamespaceReconciler) event(namespace *corev1.Namespace, eventType, reason, note string) {
	nswrite.RecordEvent(r.Recorder, namespace, eventType, reason, actionInitialize, note)
}

// initializationChanged lets pass what the reconciler acts on.
func initializationChanged() predicate.Predicate {
	return predicate.Funcs{
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, isNamespace := e.ObjectOld.(*corev1.Namespace)
			after, isStillNamespace := e.ObjectNew.(*corev1.Namespace)
			if !isNamespace || !isStillNamespace {
				return true
			}
			if before.UID != after.UID || before.ResourceVersion == after.ResourceVersion {
				return true // recreated, or a resync
			}
			state := initialization.Observe(after)
			// A repair comes back for what the request that made it has not come to: it has taken
			// the place of the one that was to come when a time is over.
			return after.DeletionTimestamp == nil && (state.Repair != nil ||
				initialization.Observe(before).Repair != nil ||
				state.Stage == initialization.StageFailed ||
				len(initialization.ComputeConditions(after, state, metav1.Time{})) > 0)
		},
	}
}

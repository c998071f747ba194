// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package workrunner

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/internal/denial"
	"github.com/nslifecycle/nslifecycle/internal/nsobject"
	"github.com/nslifecycle/nslifecycle/internal/printable"
)

const (
	// maxMessage is the maximum length of a published message in bytes.
	maxMessage = 1024
	// forbiddenInterval is the time for which no conditions are published after a write has failed
	// because of a missing permission.
	forbiddenInterval = time.Minute
	// publishAttempts is the maximum number of attempts to write a condition despite update conflicts.
	publishAttempts = 4
)

// TruncateMessage escapes a message for a condition, and truncates it to 1024 bytes.
func TruncateMessage(message string) string {
	return printable.Truncate(message, maxMessage)
}

// publish writes the condition unless it is already up to date. The condition is only
// informational, so errors are logged and not returned.
func (r *Reconciler) publish(
	ctx context.Context, task *task, namespace *corev1.Namespace,
	status corev1.ConditionStatus, reason, message string,
) {
	now := r.Clock.Now()
	if until := r.forbiddenUntil.Load(); r.Handler.ConditionType == "" || (until != nil && now.Before(*until)) {
		return
	}
	want := corev1.NamespaceCondition{
		Type: r.Handler.ConditionType, Status: status, Reason: reason, Message: TruncateMessage(message),
	}
	task.publishing.Lock()
	defer task.publishing.Unlock()
	published, err := r.writeCondition(ctx, newest(namespace, task.published), want, metav1.NewTime(now))
	switch {
	case err == nil:
		task.published = published
	case denial.IsMissingPermission(err):
		until := now.Add(forbiddenInterval)
		if wasForbidden := r.forbiddenUntil.Swap(&until) != nil; !wasForbidden {
			log.FromContext(ctx).Info("Cannot publish conditions without the permission to patch namespaces/status",
				"conditionType", want.Type, "error", err.Error())
		}
	default:
		log.FromContext(ctx).V(1).Info("Failed to publish a condition", "uid", namespace.UID,
			"conditionType", want.Type, "reason", want.Reason, "error", err.Error())
	}
}

// newest returns the newer version of a Namespace. The Namespace that a call uses is older than a
// condition that was published during the call, and the cache can be stale.
func newest(namespace, published *corev1.Namespace) *corev1.Namespace {
	if published == nil {
		return namespace
	}
	order, err := resourceversion.CompareResourceVersion(namespace.ResourceVersion, published.ResourceVersion)
	if err == nil && order > 0 {
		return namespace
	}
	return published
}

// writeCondition writes a condition unless it is already up to date, and returns the Namespace that
// was read or written last. It does not modify the given Namespace. It writes the status False only
// if the Namespace still matches, because the operator sets the final condition in the write with
// which it skips an initializer.
func (r *Reconciler) writeCondition(
	ctx context.Context, namespace *corev1.Namespace, want corev1.NamespaceCondition, now metav1.Time,
) (*corev1.Namespace, error) {
	for attempt := 1; ; attempt++ {
		resourceVersion := ""
		if want.Status == corev1.ConditionFalse {
			if !r.Handler.Match(namespace) {
				return namespace, nil
			}
			resourceVersion = namespace.ResourceVersion
		}
		if !nsobject.CompleteCondition(nsobject.FindCondition(namespace, want.Type), &want, now) {
			return namespace, nil
		}
		written, err := patchCondition(ctx, r.Client, namespace, resourceVersion, want)
		if !nsobject.IsConflict(err) || attempt == publishAttempts {
			return written, err
		}
		namespace = namespace.DeepCopy()
		if err := Refresh(ctx, r.Client, namespace); err != nil {
			return nil, err
		}
	}
}

// patchCondition writes one condition and returns the changed Namespace. The strategic merge patch
// does not change conditions of other types. The API server rejects the patch if the UID differs
// because the Namespace was recreated, or if the resource version is neither empty nor current.
func patchCondition(
	ctx context.Context, c client.Client, namespace *corev1.Namespace, resourceVersion string,
	condition corev1.NamespaceCondition,
) (*corev1.Namespace, error) {
	body, err := json.Marshal(map[string]any{
		"metadata": nsobject.Preconditions(namespace, resourceVersion),
		"status":   map[string]any{"conditions": []corev1.NamespaceCondition{condition}},
	})
	if err != nil {
		return nil, fmt.Errorf("failed to encode a condition of namespace %q: %w", namespace.Name, err)
	}
	changed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}}
	return changed, c.Status().Patch(ctx, changed, client.RawPatch(types.StrategicMergePatchType, body))
}

// progress publishes conditions during a call.
type progress struct {
	reconciler *Reconciler
	task       *task
	namespace  *corev1.Namespace

	mutex     sync.Mutex
	isStopped bool
}

type progressKey struct{}

// stop disables publishing: goroutines that outlive the call can still use the context.
func (p *progress) stop() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.isStopped = true
}

// publishHeartbeats calls publishHeartbeat at each interval until the call ends.
func (p *progress) publishHeartbeats(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.publishHeartbeat(ctx)
		}
	}
}

// publishHeartbeat publishes that the call is running, if no condition has been published for the
// Namespace yet. Without a condition, the operator would report the initializer as unresponsive.
func (p *progress) publishHeartbeat(ctx context.Context) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	// After the call, the caller modifies the Namespace without holding this mutex.
	if p.isStopped || ctx.Err() != nil || p.task.hasPublished() {
		return
	}
	current := nsobject.FindCondition(p.namespace, p.reconciler.Handler.ConditionType)
	if current != nil && (p.reconciler.Handler.IsReserved == nil || !p.reconciler.Handler.IsReserved(current.Reason)) {
		return
	}
	p.reconciler.publish(ctx, p.task, p.namespace, corev1.ConditionFalse, ReasonWorking, MessageWorking)
}

// Progress publishes the progress of the call to which ctx belongs.
func Progress(ctx context.Context, reason, message string) {
	p, ok := ctx.Value(progressKey{}).(*progress)
	if !ok {
		return
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.isStopped || ctx.Err() != nil {
		return
	}
	p.reconciler.publish(ctx, p.task, p.namespace, corev1.ConditionFalse,
		p.reconciler.reason(reason, ReasonProgressing), message)
}

// ValidateFinalizer returns an error if name is not a valid namespace finalizer (an entry in
// spec.finalizers) for a user's controller.
func ValidateFinalizer(name corev1.FinalizerName) error {
	problems := validation.IsQualifiedName(string(name))
	switch {
	case name == corev1.FinalizerKubernetes:
		problems = []string{"it belongs to the namespace controller"}
	case len(problems) == 0 && !strings.Contains(string(name), "/"):
		problems = []string{"it has no domain"}
	}
	if len(problems) > 0 {
		return fmt.Errorf(messageInvalidFinalizer, name, strings.Join(problems, "; "))
	}
	return nil
}

// MaxConflicts is the number of consecutive update conflicts that are retried immediately.
const MaxConflicts = 20

// Refresh reads a Namespace from the API server into namespace. It returns a NotFound error if the
// Namespace was deleted, or recreated with another UID.
func Refresh(ctx context.Context, reader client.Reader, namespace *corev1.Namespace) error {
	uid := namespace.UID
	var fresh corev1.Namespace
	if err := reader.Get(ctx, client.ObjectKeyFromObject(namespace), &fresh); err != nil {
		return err
	}
	if fresh.UID != uid {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), namespace.Name)
	}
	*namespace = fresh
	return nil
}

// UpdateFinalizers changes spec.finalizers of a Namespace, and updates the given object. The
// preconditions are the UID and the resource version that were read. edit returns the new
// finalizers, or false to skip the write. After a conflict, edit is called again with the current
// Namespace. UpdateFinalizers reports whether it has changed the Namespace.
func UpdateFinalizers(
	ctx context.Context, c client.Client, namespace *corev1.Namespace,
	edit func(namespace *corev1.Namespace) ([]corev1.FinalizerName, bool),
) (bool, error) {
	for range MaxConflicts {
		finalizers, ok := edit(namespace)
		if !ok {
			return false, nil
		}
		changed := namespace.DeepCopy()
		changed.Spec.Finalizers = finalizers
		err := c.SubResource("finalize").Update(ctx, changed)
		if err == nil {
			*namespace = *changed
			return true, nil
		}
		if !nsobject.IsConflict(err) {
			return false, fmt.Errorf("failed to update spec.finalizers of namespace %q: %w", namespace.Name, err)
		}
		if err := Refresh(ctx, c, namespace); err != nil {
			return false, err
		}
	}
	return false, fmt.Errorf("failed to update spec.finalizers of namespace %q: %d consecutive update conflicts",
		namespace.Name, MaxConflicts)
}

// AddFinalizer adds a finalizer to a Namespace that matches and is not terminating.
func AddFinalizer(
	ctx context.Context, c client.Client, namespace *corev1.Namespace, name corev1.FinalizerName,
	match func(namespace *corev1.Namespace) bool,
) error {
	_, err := UpdateFinalizers(ctx, c, namespace, func(current *corev1.Namespace) ([]corev1.FinalizerName, bool) {
		exists := slices.Contains(current.Spec.Finalizers, name)
		// The finalizer would block the deletion of a Namespace that was never prepared.
		if exists || current.DeletionTimestamp != nil || !match(current) {
			return nil, false
		}
		return append(slices.Clone(current.Spec.Finalizers), name), true
	})
	return err
}
